{$ include "kernel.wgsl" $}
{$ include "loads.wgsl" $}
{$ include "rows.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded, storable $}
{$ set number = "vec4<f32>" if wide == 4 else "f32" $}

@group(1) @binding(0) var<storage, read> x: {{ array_of(source) }};
@group(1) @binding(1) var<storage, read_write> y: {{ array_of(result) }};

// WGSL need not have infinities: a masked element counts as the lowest finite value.
fn load(i: u32) -> {{ number }} {
    return max({{ loaded("x[i]", source) }}, {{ number }}(-3.4e38));
}

// e^v for v <= 0; below -104 it is 0 in f32, and the difference of two extremes may have overflowed.
fn power(v: {{ number }}) -> {{ number }} {
    return exp(max(v, {{ number }}(-104.0)));
}

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    let lane = i % LANES;
    let row = i / LANES;
    let size = select(0u, p.size, i < p.threads);
    let start = (row / p.inner) * p.inner * p.size + row % p.inner;
    var own = {{ number }}(-3.4e38);
    for (var k = lane; k < size; k += LANES) {
        own = max(own, load(start + k * p.inner));
    }
    let highest = highest_over_lanes(lane, {{ "max(max(own.x, own.y), max(own.z, own.w))" if wide == 4 else "own" }});
    var sum = {{ number }}();
    for (var block = lane; block < size; block += BLOCK) {
        var part = {{ number }}();
        for (var k = block; k < min(block + BLOCK, size); k += LANES) {
            part += power(load(start + k * p.inner) - highest);
        }
        sum += part;
    }
    let whole = sum_over_lanes(lane, total(sum));
    for (var k = lane; k < size; k += LANES) {
        let at = start + k * p.inner;
$$ if log
        let v = {{ loaded("x[at]", source) }} - highest - log(whole);
$$ else
        let v = power(load(at) - highest) / whole;
$$ endif
        y[at] = {{ storable("v", result) }};
    }
}
