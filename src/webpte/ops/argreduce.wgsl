{$ include "kernel.wgsl" $}
{$ set number = "f32" if type == "f16" else type $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
$$ if with_values
@group(1) @binding(1) var<storage, read_write> values: array<{{ type }}>;
@group(1) @binding(2) var<storage, read_write> indices: array<i32>;
$$ else
@group(1) @binding(1) var<storage, read_write> indices: array<i32>;
$$ endif

{$ include "extreme.wgsl" $}

// One invocation per output.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let first = (i / p.inner) * p.inner * p.size + i % p.inner;
    var best = {{ number }}(x[first]);
    var at = 0u;
    for (var k = 1u; k < p.size; k++) {
        let v = {{ number }}(x[first + k * p.inner]);
        if (beats(v, best)) {
            best = v;
            at = k;
        }
    }
    indices[i] = i32(at);
$$ if with_values
    values[i] = {{ type }}(best);
$$ endif
}
