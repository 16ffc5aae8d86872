{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ set slots = slots | default(false) $}

var<storage> x: array<{{ type }}>;
var<storage> cosine: array<{{ table }}>;
$$ if not packed
var<storage> sine: array<{{ table }}>;
$$ endif
$$ if slots
var<storage> slot_mapping: array<vec2<i32>>;  // slot and position of each row
$$ endif
var<storage> y: array<{{ type }}>;

// One invocation per pair of neighbours: (B, S, H, D/2). A packed table holds (cosine, sine) pairs.
$$ call per_thread()
$$ if slots
    let s = u32(live(p.start) + slot_mapping[i / (p.pairs * p.heads)].y);
$$ else
    let s = u32(live(p.start)) + (i / (p.pairs * p.heads)) % p.seq;
$$ endif
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
$$ endcall
