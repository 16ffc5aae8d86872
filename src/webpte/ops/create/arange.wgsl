{$ include "kernel.wgsl" $}
{$ from "types.wgsl" import number_type, saved, stored $}
{$ set number = number_type(type) $}

@group(1) @binding(0) var<storage, read_write> y: array<{{ stored(type) }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let start = bitcast<{{ number }}>(live(p.start));
    let step = bitcast<{{ number }}>(live(p.step));
    y[i] = {{ saved("start + " ~ number ~ "(i) * step", type) }};
}
