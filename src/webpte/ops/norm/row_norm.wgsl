{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import rows_main $}
{$ include "loads.wgsl" $}
{$ include "rows.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ set number = "vec4<f32>" if wide == 4 else "f32" $}

var<storage> x: {{ array_of(type) }};
$$ if scaled
var<storage> weight: {{ array_of(weight_type) }};
$$ endif
$$ if shifted
var<storage> bias: {{ array_of(weight_type) }};
$$ endif
var<storage> y: {{ array_of(type) }};
var<storage> means: array<{{ statistics_type }}>;
var<storage> rstds: array<{{ statistics_type }}>;

// The sum of (v - shift), or of its square, over a lane's share of a row.
fn sum_around(first: u32, end: u32, shift: f32, squared: bool) -> f32 {
    var sum = {{ number }}();
    for (var block = first; block < end; block += BLOCK) {
        var part = {{ number }}();
        for (var k = block; k < min(block + BLOCK, end); k += LANES) {
            let v = {{ loaded("x[k]", type) }} - shift;
            part += select(v, v * v, squared);
        }
        sum += part;
    }
    return total(sum);
}

// The mean first, then the squares around it, which loses no digits to cancellation.
$$ call rows_main(subgroups)
    let i = thread_index(id, groups);
    let lane = i % LANES;
    let row = i / LANES;
    let start = row * p.steps;
    let end = start + select(0u, p.steps, i < p.threads);
    let mean = sum_over_lanes(lane, sum_around(start + lane, end, 0.0, false)) / p.columns;
    let rstd = inverseSqrt(sum_over_lanes(lane, sum_around(start + lane, end, mean, true)) / p.columns + p.eps);
    if (lane == 0u && i < p.threads) {
        means[row] = {{ statistics_type }}(mean);
        rstds[row] = {{ statistics_type }}(rstd);
    }
    let first_weight = (row % p.groups) * p.weights;
    for (var k = start + lane; k < end; k += LANES) {
        var v = ({{ loaded("x[k]", type) }} - mean) * rstd;
$$ if scaled or shifted
        let w = first_weight + (k - start) / p.inner;
$$ endif
$$ if scaled
        v *= {{ loaded("weight[w]", weight_type) }};
$$ endif
$$ if shifted
        v += {{ loaded("bias[w]", weight_type) }};
$$ endif
        y[k] = {{ storable("v", type) }};
    }
$$ endcall
