{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read> cosine: array<{{ table }}>;
$$ if not packed
@group(1) @binding(2) var<storage, read> sine: array<{{ table }}>;
$$ endif
@group(1) @binding({{ 2 if packed else 3 }}) var<storage, read_write> y: array<{{ type }}>;

// One invocation per pair of neighbours: (B, S, H, D/2). A packed table holds (cosine, sine) pairs.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let s = u32(live(p.start)) + (i / (p.pairs * p.heads)) % p.seq;
    let t = s * p.pairs + i % p.pairs;
$$ if packed
    let c = f32(cosine[2u * t]);
    let n = f32(cosine[2u * t + 1u]);
$$ else
    let c = f32(cosine[t]);
    let n = f32(sine[t]);
$$ endif
    let even = f32(x[2u * i]);
    let odd = f32(x[2u * i + 1u]);
    y[2u * i] = {{ type }}(even * c - odd * n);
    y[2u * i + 1u] = {{ type }}(even * n + odd * c);
}
