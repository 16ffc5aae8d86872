{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ type }}>;

{$ include "reduce_walk.wgsl" $}

// The sum of (v - shift), or of its square, over the elements behind an output.
fn sum_around(first: u32, shift: f32, squared: bool) -> f32 {
    var total = 0.0;
    for (var o = 0u; o < p.outer; o++) {
        let run = first + run_of(o);
        for (var block = 0u; block < p.inner; block += 256u) {
            let end = min(block + 256u, p.inner);
            var part = 0.0;
            for (var k = block; k < end; k++) {
                let v = f32(x[run + k * p.inner_stride]) - shift;
                part += select(v, v * v, squared);
            }
            total += part;
        }
    }
    return total;
}

// One invocation per output: the mean first, then the squares around it, which loses no digits to cancellation.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let first = first_of(i);
    let mean = sum_around(first, 0.0, false) / f32(p.outer * p.inner);
    y[i] = {{ type }}(sum_around(first, mean, true) / p.divisor);
}
