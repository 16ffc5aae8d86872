{$ include "kernel.wgsl" $}
{# words, tile, columns: as in linear_q4.wgsl; packed: x is int8, see linear_q4_pack.wgsl. #}
{$ set x_type = "vec2<u32>" if packed else "vec4<" ~ type ~ ">" $}
{$ set w_type = "u32" if words == 1 else "vec" ~ words ~ "<u32>" $}
{$ set s_type = scale_type $}
{$ set results = tile * columns $}
{$ include "q4/linear_q4_bindings.wgsl" $}

$$ if packed
const ONES = 0x01010101u;
$$ else
{$ include "q4/codes_q4.wgsl" $}
$$ endif

var<workgroup> shares: array<f32, {{ weights * results * workgroup }}>;

// A workgroup owns {{ tile }} rows by {{ columns }} columns: its invocations read neighbouring loads of a row of the
// weight, and add up what they have in the end. Tails clamp their reads and skip their writes.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let workgroup = id.x + id.y * workgroups.x;
    if (workgroup * wg >= p.threads) {
        return;
    }
    let column = (workgroup % p.column_groups) * {{ columns }}u;
    let row = (workgroup / p.column_groups) * {{ tile }}u;
$$ for c in range(columns)
    let n{{ c }} = min(column + {{ c }}u, p.columns - 1u);
$$ endfor
$$ for r in range(tile)
$$ if packed
    let x{{ r }} = min(row + {{ r }}u, p.rows - 1u) * (p.row_loads * {{ words }}u + 1u);
    let zero{{ r }} = bitcast<i32>(x[x{{ r }}].y);
$$ else
    let x{{ r }} = min(row + {{ r }}u, p.rows - 1u) * p.row_loads * {{ 2 * words }}u;
$$ endif
$$ for v in range(weights)
$$ for c in range(columns)
    var sum{{ v }}_{{ r }}_{{ c }} = 0.0;
$$ endfor
$$ endfor
$$ endfor
    for (var load = local; load < p.row_loads; load += wg) {
        let s = (load / p.group_loads) * p.scale_stride + p.first;
$$ for r in range(tile)
$$ if packed
        var excess{{ r }} = 0;
$$ for h in range(words)
        let a{{ r }}_{{ h }} = x[x{{ r }} + load * {{ words }}u + {{ h + 1 }}u];
        excess{{ r }} += 8 * (dot4I8Packed(a{{ r }}_{{ h }}.x, ONES) + dot4I8Packed(a{{ r }}_{{ h }}.y, ONES));
$$ endfor
$$ else
        var x_total{{ r }} = vec4<f32>();
$$ for h in range(2 * words)
        let own{{ r }}_{{ h }} = vec4<f32>(x[x{{ r }} + load * {{ 2 * words }}u + {{ h }}u]);
        x_total{{ r }} += own{{ r }}_{{ h }};
        let a{{ r }}_{{ h }} = own{{ r }}_{{ h }} * UNITS;
$$ endfor
        let excess{{ r }} = dot(x_total{{ r }}, vec4<f32>(8.0));
$$ endif
$$ endfor
$$ for v in range(weights)
$$ for c in range(columns)
        {
            let q = weight{{ v }}[n{{ c }} * p.row_loads + load];
            let scale = f32(scales{{ v }}[s + n{{ c }}]);
$$ for r in range(tile)
            var part{{ r }} = -excess{{ r }};
$$ endfor
$$ if packed
            var total = {{ -64 * words }};
$$ for h in range(words)
{$ set word = "q" if words == 1 else "q." ~ "xyzw"[h] $}
            let even{{ h }} = {{ word }} & 0x0f0f0f0fu;
            let odd{{ h }} = ({{ word }} >> 4u) & 0x0f0f0f0fu;
            total += dot4I8Packed(even{{ h }} + odd{{ h }}, ONES);
$$ for r in range(tile)
            part{{ r }} += dot4I8Packed(even{{ h }}, a{{ r }}_{{ h }}.x) + dot4I8Packed(odd{{ h }}, a{{ r }}_{{ h }}.y);
$$ endfor
$$ endfor
$$ else
$$ for h in range(2 * words)
            let b{{ h }} = codes(q{{ "" if words == 1 else "." ~ "xyzw"[h // 2] }}{{ " >> 16u" if h % 2 }});
$$ for r in range(tile)
            part{{ r }} += dot(a{{ r }}_{{ h }}, b{{ h }});
$$ endfor
$$ endfor
$$ endif
$$ for r in range(tile)
$$ if packed
            sum{{ v }}_{{ r }}_{{ c }} += scale * f32(part{{ r }} - zero{{ r }} * total);
$$ else
            sum{{ v }}_{{ r }}_{{ c }} += scale * part{{ r }};
$$ endif
$$ endfor
        }
$$ endfor
$$ endfor
    }
$$ for v in range(weights)
$$ for r in range(tile)
$$ for c in range(columns)
    shares[{{ (v * tile + r) * columns + c }}u * wg + local] = sum{{ v }}_{{ r }}_{{ c }};
$$ endfor
$$ endfor
$$ endfor
    for (var half = wg / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (local < half) {
$$ for j in range(weights * results)
            shares[{{ j }}u * wg + local] += shares[{{ j }}u * wg + local + half];
$$ endfor
        }
    }
    workgroupBarrier();
    let r = local / {{ columns }}u;
    let c = local % {{ columns }}u;
    if (local < {{ results }}u && row + r < p.rows && column + c < p.columns) {
$$ if packed
        let factor = bitcast<f32>(x[(row + r) * (p.row_loads * {{ words }}u + 1u)].x);
$$ else
        let factor = 1.0;
$$ endif
        let value = factor * shares[local * wg];
$$ if weights == 2
        put(row + r, p.first + column + c, gated(value, factor * shares[({{ results }}u + local) * wg]));
$$ else
        put(row + r, p.first + column + c, value);
$$ endif
    }
}
