{$ include "kernel.wgsl" $}
{$ set first_output = 1 + scaled + shifted $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
$$ if scaled
@group(1) @binding(1) var<storage, read> weight: array<{{ weight_type }}>;
$$ endif
$$ if shifted
@group(1) @binding({{ first_output - 1 }}) var<storage, read> bias: array<{{ weight_type }}>;
$$ endif
@group(1) @binding({{ first_output }}) var<storage, read_write> y: array<{{ type }}>;
@group(1) @binding({{ first_output + 1 }}) var<storage, read_write> means: array<{{ statistics_type }}>;
@group(1) @binding({{ first_output + 2 }}) var<storage, read_write> rstds: array<{{ statistics_type }}>;

// The sum of (v - shift), or of its square, over a row; partial sums of bounded length keep rounding errors small.
fn sum_around(start: u32, shift: f32, squared: bool) -> f32 {
    var total = 0.0;
    for (var block = 0u; block < p.columns; block += 256u) {
        let end = min(block + 256u, p.columns);
        var part = 0.0;
        for (var k = block; k < end; k++) {
            let v = f32(x[start + k]) - shift;
            part += select(v, v * v, squared);
        }
        total += part;
    }
    return total;
}

// One invocation per row: the mean, then the squares around it, which loses no digits to cancellation.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = thread_index(id, groups);
    if (row >= p.threads) {
        return;
    }
    let start = row * p.columns;
    let mean = sum_around(start, 0.0, false) / f32(p.columns);
    let rstd = inverseSqrt(sum_around(start, mean, true) / f32(p.columns) + p.eps);
    means[row] = {{ statistics_type }}(mean);
    rstds[row] = {{ statistics_type }}(rstd);
    let first_weight = (row % p.groups) * p.weights;
    for (var k = 0u; k < p.columns; k++) {
        var v = (f32(x[start + k]) - mean) * rstd;
$$ if scaled or shifted
        let w = first_weight + k / p.inner;
$$ endif
$$ if scaled
        v *= f32(weight[w]);
$$ endif
$$ if shifted
        v += f32(bias[w]);
$$ endif
        y[start + k] = {{ type }}(v);
    }
}
