{# Rotary embedding of four elements at a time: element d of a row of p.key_steps loads. #}
{$ from "loads.wgsl" import loaded $}
{# Declares c and n, cosine and sine for load d by a row of the tables, and mate, the load that d turns with. #}
{$ macro angles(turn, table, row) -$}
$$ if turn == "neighbours"
        let entry = ({{ row }}) * p.key_steps + d;
        let c = {{ loaded("cosine[entry]", table) }};
        let n = {{ loaded("sine[entry]", table) }};
$$ elif turn == "halves"
        let turns = d < p.turned;  // what is behind the table's width passes
        let low = d < p.turned / 2u;
        let mate = select(d, select(d - p.turned / 2u, d + p.turned / 2u, low), turns);
        let entry = ({{ row }}) * p.turned + select(0u, d, turns);
        let c = select(vec4<f32>(1.0), {{ loaded("cosine[entry]", table) }}, turns);
        let n = select(vec4<f32>(), select(1.0, -1.0, low) * {{ loaded("sine[entry]", table) }}, turns);
$$ endif
{$- endmacro $}
{# Load d of a row, turned. #}
{$ macro turned(turn, array, row, kind) -$}
{$ if turn == "neighbours" -$}
turn_neighbours({{ loaded(array ~ "[" ~ row ~ " * p.key_steps + d]", kind) }}, c, n)
{$- elif turn == "halves" -$}
{{ loaded(array ~ "[" ~ row ~ " * p.key_steps + d]", kind) }} * c
            + {{ loaded(array ~ "[" ~ row ~ " * p.key_steps + mate]", kind) }} * n
{$- else -$}
{{ loaded(array ~ "[" ~ row ~ " * p.key_steps + d]", kind) }}
{$- endif $}
{$- endmacro $}
fn turn_neighbours(x: vec4<f32>, c: vec2<f32>, n: vec2<f32>) -> vec4<f32> {
    return x * c.xxyy + vec4<f32>(-x.y, x.x, -x.w, x.z) * n.xxyy;
}
