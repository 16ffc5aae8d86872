{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> cache: array<{{ cache }}>;
$$ if done
@group(1) @binding(2) var<storage, read_write> done: array<{{ cache }}>;
$$ endif

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let token = i / p.row;
    let position = u32(live(p.start)) + token % p.seq;
    cache[((token / p.seq) * p.capacity + position) * p.row + i % p.row] = {{ cache }}(x[i]);
$$ if done
    if (i == 0u) {
        done[0] = {{ cache }}(0.0);
    }
$$ endif
}
