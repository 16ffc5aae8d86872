{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ source }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ result }}>;

// WGSL need not have infinities: a masked element counts as the lowest finite value.
fn load(i: u32) -> f32 {
    return max(f32(x[i]), -3.4e38);
}

// e^v for v <= 0; below -104 it is 0 in f32, and the difference of two extremes may have overflowed.
fn power(v: f32) -> f32 {
    return exp(max(v, -104.0));
}

// One invocation per row.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = thread_index(id, groups);
    if (row >= p.threads) {
        return;
    }
    let start = (row / p.inner) * p.inner * p.size + row % p.inner;
    var highest = -3.4e38;
    for (var k = 0u; k < p.size; k++) {
        highest = max(highest, load(start + k * p.inner));
    }
    // Partial sums of bounded length keep the rounding error of long rows small.
    var sum = 0.0;
    for (var block = 0u; block < p.size; block += 256u) {
        let end = min(block + 256u, p.size);
        var part = 0.0;
        for (var k = block; k < end; k++) {
            part += power(load(start + k * p.inner) - highest);
        }
        sum += part;
    }
$$ if log
    let log_sum = log(sum);
$$ endif
    for (var k = 0u; k < p.size; k++) {
        let i = start + k * p.inner;
$$ if log
        y[i] = {{ result }}(f32(x[i]) - highest - log_sum);
$$ else
        y[i] = {{ result }}(power(load(i) - highest) / sum);
$$ endif
    }
}
