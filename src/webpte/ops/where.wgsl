{$ include "kernel.wgsl" $}
{$ from "types.wgsl" import converted, saved, stored $}
{$ set layouts = ["c", "a", "b"] $}
{# Equal dtypes are moved as bits: `word` is u32 or f16 then. Others are converted, and `word` is none. #}
{$ set moved = word is not none $}

@group(1) @binding(0) var<storage, read> condition: array<u32>;
@group(1) @binding(1) var<storage, read> a_data: array<{{ word if moved else stored(a) }}>;
@group(1) @binding(2) var<storage, read> b_data: array<{{ word if moved else stored(b) }}>;
@group(1) @binding(3) var<storage, read_write> y: array<{{ word if moved else stored(out) }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
{$ include "walk.wgsl" $}
    if (condition[ci] != 0u) {
        y[i] = {{ "a_data[ai]" if moved else saved(converted("a_data[ai]", a, out), out) }};
    } else {
        y[i] = {{ "b_data[bi]" if moved else saved(converted("b_data[bi]", b, out), out) }};
    }
}
