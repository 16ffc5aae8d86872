{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "loads.wgsl" $}
{$ from "loads.wgsl" import array_of, loaded $}
{$ set lanes = 4 if type.endswith("x4") else 1 $}
{$ set words = "vec4<u32>" if lanes == 4 else "u32" $}

const HIDDEN = 0xff800000u;  // bits of minus infinity, which WGSL has no number for

var<storage> logits: {{ array_of(type) }};
var<storage> choices: array<i32>;
var<storage> edited: array<{{ words }}>;

// One invocation per load: the logits, hidden where the row's mask does not allow the token.
$$ call per_thread()
    let first = i % p.steps * {{ lanes }}u;
    let mask = u32(choices[i / p.steps * {{ columns }}u + {{ mask }}u]);  // where its words begin; no mask is beyond
    var bits = 0xffffffffu;
    if (mask <= p.last_mask) {
        bits = u32(choices[mask + first / 32u]) >> (first % 32u);
    }
    let x = bitcast<{{ words }}>({{ loaded("logits[i]", type) }});
$$ if lanes == 4
    edited[i] = select(vec4<u32>(HIDDEN), x, (vec4<u32>(bits) & vec4<u32>(1u, 2u, 4u, 8u)) != vec4<u32>(0u));
$$ else
    edited[i] = select(HIDDEN, x, (bits & 1u) != 0u);
$$ endif
$$ endcall
