{$ include "kernel.wgsl" $}
{$ from "walk.wgsl" import operand_positions $}
{$ from "types.wgsl" import number_type, saved, stored $}
{$ include "elementwise/program.wgsl" $}
{# An invocation computes `width` neighbours. Operands in `repeated` have one element for all of them, those in `single`
   no other; the rest is walked. #}
{$ set layouts = [] $}

$$ for type in program.inputs
$$ if loop.index0 not in single
$$ set _ = layouts.append("x" ~ loop.index0)
$$ endif
$$ set element = stored(type) if width == 1 or loop.index0 in repeated else "vec4<" ~ stored(type) ~ ">"
var<storage> x{{ loop.index0 }}_data: array<{{ element }}>;
$$ endfor
$$ for type in program.output_types
$$ set element = stored(type) if width == 1 else "vec4<" ~ stored(type) ~ ">"
var<storage> y{{ loop.index0 }}_data: array<{{ element }}>;
$$ endfor

fn compute(i: u32) {
{{ operand_positions(layouts, flat) }}
$$ for type in program.inputs
    let x{{ loop.index0 }} = x{{ loop.index0 }}_data[{{ "0" if loop.index0 in single else "x" ~ loop.index0 ~ "i" }}];
$$ endfor
$$ for part in range(width)
    let part{{ part }} = evaluate(
$$ for type in program.inputs
        {{ number_type(type) }}(x{{ loop.index0 }}{{ "[" ~ part ~ "]" if width > 1 and loop.index0 not in repeated }}),
$$ endfor
    );
$$ endfor
$$ for type in program.output_types
$$ set y = "y" ~ loop.index0
$$ if width == 1
    {{ y }}_data[i] = {{ saved("part0." ~ y, type) }};
$$ else
    {{ y }}_data[i] = vec4<{{ stored(type) }}>(
$$ for part in range(width)
        {{ saved("part" ~ part ~ "." ~ y, type) }},
$$ endfor
    );
$$ endif
$$ endfor
}

// A workgroup owns p.each runs of neighbours.
@compute @workgroup_size(wg)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let start = (id.x + id.y * groups.x) * p.each * wg;
    for (var i = start + local; i < min(p.count, start + p.each * wg); i += wg) {
        compute(i);
    }
}
