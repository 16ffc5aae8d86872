{$ include "kernel.wgsl" $}
{$ from "types.wgsl" import converted, saved, stored $}
{$ set layouts = ["a"] $}

@group(1) @binding(0) var<storage, read> a_data: array<{{ stored(source) }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ stored(target) }}>;

// Floats become integers by dropping the fraction, as in PyTorch.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
{$ include "walk.wgsl" $}
    y[i] = {{ saved(converted("a_data[ai]", source, target), target) }};
}
