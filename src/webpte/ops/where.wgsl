{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> condition: array<u32>;
@group(1) @binding(1) var<storage, read> a: array<{{ word }}>;
@group(1) @binding(2) var<storage, read> b: array<{{ word }}>;
@group(1) @binding(3) var<storage, read_write> y: array<{{ word }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    var ci = 0u;
    var ai = 0u;
    var bi = 0u;
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        let at = rest % size;
        rest /= size;
        ci += at * p.c_strides[k >> 2u][k & 3u];
        ai += at * p.a_strides[k >> 2u][k & 3u];
        bi += at * p.b_strides[k >> 2u][k & 3u];
    }
    if (condition[ci] != 0u) {
        y[i] = a[ai];
    } else {
        y[i] = b[bi];
    }
}
