{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read> cosine: array<{{ table }}>;
@group(1) @binding(2) var<storage, read> sine: array<{{ table }}>;
@group(1) @binding(3) var<storage, read_write> y: array<{{ type }}>;

// One invocation per element (B, S, H, D): element d of the first half pairs with element d of the second.
$$ call per_thread()
    let d = i % p.width;
    if (d >= p.rotated) {
        y[i] = x[i];
        return;
    }
    let s = (i / (p.width * p.heads)) % p.seq;
$$ if batched
    let t = (i / p.image) * p.table + (u32(live(p.start)) + s) * p.rotated + d;
$$ else
    let t = (u32(live(p.start)) + s) * p.rotated + d;
$$ endif
    let middle = p.rotated / 2u;
    var partner = 0.0;
    if (d < middle) {
        partner = -f32(x[i + middle]);
    } else {
        partner = f32(x[i - middle]);
    }
    y[i] = {{ type }}(f32(x[i]) * f32(cosine[t]) + partner * f32(sine[t]));
$$ endcall
