{# Rotary embedding of four elements at a time: element d of a row of p.key_steps loads. #}
{$ from "loads.wgsl" import loaded $}
{# Declare c and n, cosine and sine for load d by a row of the tables, and mate, the load that d rotates with. #}
{$ macro angles(rotary, table, row, sine="sine[entry]") -$}
$$ if rotary == "neighbours"
        let entry = ({{ row }}) * p.key_steps + d;
        let c = {{ loaded("cosine[entry]", table) }};
        let n = {{ loaded(sine, table) }};
$$ elif rotary == "halves"
        let rotates = d < p.rotated;  // elements past the table's width are not rotated
        let low = d < p.rotated / 2u;
        let mate = select(d, select(d - p.rotated / 2u, d + p.rotated / 2u, low), rotates);
        let entry = ({{ row }}) * p.rotated + select(0u, d, rotates);
        let c = select(vec4<f32>(1.0), {{ loaded("cosine[entry]", table) }}, rotates);
        let n = select(vec4<f32>(), select(1.0, -1.0, low) * {{ loaded(sine, table) }}, rotates);
$$ endif
{$- endmacro $}
{# Load d of a row, rotated. #}
{$ macro rotated(rotary, array, row, kind) -$}
{$ if rotary == "neighbours" -$}
rotate_neighbours({{ loaded(array ~ "[" ~ row ~ " * p.key_steps + d]", kind) }}, c, n)
{$- elif rotary == "halves" -$}
{{ loaded(array ~ "[" ~ row ~ " * p.key_steps + d]", kind) }} * c
            + {{ loaded(array ~ "[" ~ row ~ " * p.key_steps + mate]", kind) }} * n
{$- else -$}
{{ loaded(array ~ "[" ~ row ~ " * p.key_steps + d]", kind) }}
{$- endif $}
{$- endmacro $}
fn rotate_neighbours(x: vec4<f32>, c: vec2<f32>, n: vec2<f32>) -> vec4<f32> {
    return x * c.xxyy + vec4<f32>(-x.y, x.x, -x.w, x.z) * n.xxyy;
}
