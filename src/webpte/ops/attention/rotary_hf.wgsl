{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ type }}>;
var<storage> cosine: array<{{ table }}>;
var<storage> sine: array<{{ table }}>;
var<storage> y: array<{{ type }}>;

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
