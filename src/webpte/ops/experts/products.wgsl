{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{$ from "packed.wgsl" import scale_of, stored $}
{# words: of a load of 4-bit codes; tile: pairs of an invocation, which are sorted if there are several; lanes: neighbors
   that share a sum, several on a GPU. #}
{$ set biased = biased | default(false) $}
$$ if lanes > 1
{$ set decode = "floats" $}
$$ endif
{$ set w_type = "vec4<f32>" if not loader else "u32" if words == 1 else "vec4<u32>" $}
var<storage> x: array<vec4<f32>>;
var<storage> order: array<i32>;  // the expert of each tile{{ ", then the pairs of each" if tile > 1 }}
$$ for v in range(weights)
var<storage> weight{{ v }}: array<{{ w_type }}>;  // (E, N, K)
$$ endfor
$$ if loader
$$ for v in range(weights)
var<storage> scales{{ v }}: array<{{ stored(scale_type) }}>;  // (E, N, K / group)
$$ endfor
$$ endif
$$ if biased
var<storage> bias: array<f32>;  // (E, {{ weights }}, N)
$$ endif
var<storage> y: array<f32>;  // a row for each pair

$$ if loader
{$ include loader $}

$$ endif
$$ if weights == 2
$$ if activation == "gelu_tanh"
{$ include "elementwise/hyperbolic.wgsl" $}

fn gated(gate: f32, value: f32) -> f32 {
    return value * 0.5 * gate * (1.0 + hyperbolic_tangent(0.7978845608 * (gate + 0.044715 * gate * gate * gate)));
}
$$ elif activation == "clamped_silu"
{$ include "floats.wgsl" $}

fn gated(gate: f32, value: f32) -> f32 {  // min and clamp may lose a NaN
    let low = select(min(gate, 7.0), gate, is_nan(gate));
    let limited = select(clamp(value, -7.0, 7.0), value, is_nan(value));
    return (limited + 1.0) * low / (1.0 + exp(-1.702 * max(low, -47.0)));
}
$$ else
fn gated(gate: f32, value: f32) -> f32 {
    return value * gate / (1.0 + exp(-max(gate, -80.0)));
}
$$ endif

$$ endif
$$ if lanes > 1
var<workgroup> by_lane: array<array<f32, {{ weights * tile }}>, {{ workgroup }}>;

$$ endif
// An invocation adds up every {{ lanes }}th group of a column, for {{ tile }} pairs of one expert. The order of a sum does not
// depend on the pairs beside it.
$$ call per_workgroup()
    let tile = workgroup / p.blocks;
    let column = (workgroup % p.blocks * wg + local) / {{ lanes }}u;
    let lane = local % {{ lanes }}u;
    let expert = u32(order[tile]);
    let own = (min(expert, p.experts - 1u) * p.columns + min(column, p.columns - 1u)) * p.groups;
    let groups = select(p.groups, 0u, expert >= p.experts);
$$ for r in range(tile)
$$ if tile > 1
    let pair{{ r }} = u32(order[p.tiles + tile * {{ tile }}u + {{ r }}u]);
$$ else
    let pair{{ r }} = tile;
$$ endif
    let x{{ r }} = min(pair{{ r }}, p.pairs - 1u) / p.row_pairs * p.quads;
$$ for v in range(weights)
    var sum{{ v }}_{{ r }} = 0.0;
$$ endfor
$$ endfor
    for (var g = lane; g < groups; g += {{ lanes }}u) {
$$ if not loader
$$ for v in range(weights)
        let b{{ v }} = weight{{ v }}[own + g];
$$ endfor
$$ for r in range(tile)
        let a{{ r }} = x[x{{ r }} + g];
$$ for v in range(weights)
        sum{{ v }}_{{ r }} += dot(a{{ r }}, b{{ v }});
$$ endfor
$$ endfor
$$ else
$$ for r in range(tile)
$$ for v in range(weights)
        var part{{ v }}_{{ r }} = 0.0;
$$ endfor
$$ endfor
        for (var k = 0u; k < p.group_loads; k++) {
            let load = g * p.group_loads + k;
$$ for v in range(weights)
            let q{{ v }} = weight{{ v }}[own * p.group_loads + load];
$$ endfor
$$ for h in range(2 * words)
            {
                let at = load * {{ 2 * words }}u + {{ h }}u;
$$ for v in range(weights)
{$ set word = "q%d" % v ~ ("" if words == 1 else "." ~ "xyzw"[h // 2]) $}
                let b{{ v }} = {{ "codes(%s%s)" % (word, " >> 16u" if h % 2) if lanes == 1 else ("upper_" if h % 2 else "") ~ "codes(%s)" % word }};
$$ endfor
$$ for r in range(tile)
                let a{{ r }} = x[x{{ r }} + at];
$$ for v in range(weights)
                part{{ v }}_{{ r }} += dot(a{{ r }}, b{{ v }});
$$ endfor
$$ endfor
            }
$$ endfor
        }
$$ for v in range(weights)
        let scale{{ v }} = {{ "UNIT * " if lanes > 1 }}{{ scale_of("scales%d" % v, "own + g", scale_type) }};
$$ for r in range(tile)
        sum{{ v }}_{{ r }} += scale{{ v }} * part{{ v }}_{{ r }};
$$ endfor
$$ endfor
$$ endif
    }
$$ if lanes > 1
$$ for r in range(tile)
$$ for v in range(weights)
    by_lane[local][{{ weights * r + v }}] = sum{{ v }}_{{ r }};
$$ endfor
$$ endfor
    workgroupBarrier();
    if (lane > 0u) {
        return;
    }
    for (var other = 1u; other < {{ lanes }}u; other++) {
$$ for r in range(tile)
$$ for v in range(weights)
        sum{{ v }}_{{ r }} += by_lane[local + other][{{ weights * r + v }}];
$$ endfor
$$ endfor
    }
$$ endif
    if (column >= p.columns || expert >= p.experts) {
        return;
    }
$$ if biased
$$ for v in range(weights)
    let bias{{ v }} = bias[(expert * {{ weights }}u + {{ v }}u) * p.columns + column];
$$ for r in range(tile)
    sum{{ v }}_{{ r }} += bias{{ v }};
$$ endfor
$$ endfor
$$ endif
$$ for r in range(tile)
    if (pair{{ r }} < p.pairs) {
        y[pair{{ r }} * p.columns + column] = {{ "gated(sum0_%d, sum1_%d)" % (r, r) if weights == 2 else "sum0_%d" % r }};
    }
$$ endfor
$$ endcall
