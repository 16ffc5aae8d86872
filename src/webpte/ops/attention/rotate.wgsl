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
{# A load of a row, times the weights of a norm that begin at load `norm` of the tables if there are any. #}
{$ macro element(array, row, at, kind, norm) -$}
{{ loaded(array ~ "[" ~ row ~ " * p.key_steps + " ~ at ~ "]", kind) }}{{ " * norm_weight(" ~ norm ~ ", " ~ at ~ ")" if norm }}
{$- endmacro $}
{# Load d of a row, rotated. #}
{$ macro rotated(rotary, array, row, kind, norm="") -$}
{$ if rotary == "neighbours" -$}
rotate_neighbours({{ element(array, row, "d", kind, norm) }}, c, n)
{$- elif rotary == "halves" -$}
{{ element(array, row, "d", kind, norm) }} * c
            + {{ element(array, row, "mate", kind, norm) }} * n
{$- else -$}
{{ element(array, row, "d", kind, norm) }}
{$- endif $}
{$- endmacro $}
fn rotate_neighbours(x: vec4<f32>, c: vec2<f32>, n: vec2<f32>) -> vec4<f32> {
    return x * c.xxyy + vec4<f32>(-x.y, x.x, -x.w, x.z) * n.xxyy;
}
