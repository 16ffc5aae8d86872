{# An elementwise program for one element, as the function `evaluate` and the struct it returns.
   `program` is a lowering.programs.ElementwiseProgram; its numbers are in the uniforms. #}
{$ from "types.wgsl" import converted, number_type $}
{$ set functions = program.functions $}
{$ include "elementwise/formulas.wgsl" $}

{$ macro number(position, type) -$}
{$ set bits = "live(p.number" ~ position ~ ")" if program.dynamic else "p.numbers[" ~ position // 4 ~ "][" ~ position % 4 ~ "]" -$}
{{ bits if type != "f32" else "bitcast<f32>(" ~ bits ~ ")" }}
{$- endmacro $}
{$ macro argument(operand) -$}
{{ number(operand.position, operand.target) if operand.source is none else converted(operand.name, operand.source, operand.target) }}
{$- endmacro $}
{# A result as its dtype holds it: values that are never stored are rounded too. #}
{$ macro kept(value, type) -$}
{{ "rounded_half(" ~ value ~ ")" if type in ("f16", "f16w") else "i32(" ~ value ~ " != 0)" if type == "bool" else value }}
{$- endmacro $}
$$ for step in program.own
fn {{ program.called(step) }}(
$$ for operand in step.operands
    {{ "abcdefghijklmnop"[loop.index0] }}: {{ number_type(operand.target) }},
$$ endfor
) -> {{ step.number }} {
    return {{ step.code }};
}

$$ endfor
struct Results {
$$ for step in program.outputs
    y{{ loop.index0 }}: {{ number_type(program.steps[step].result) }},
$$ endfor
}

fn evaluate(
$$ for type in program.inputs
    x{{ loop.index0 }}: {{ number_type(type) }},
$$ endfor
) -> Results {
$$ for step in program.steps
$$ set arguments = []
$$ for operand in step.operands
$$ set _ = arguments.append(argument(operand))
$$ endfor
    let v{{ loop.index0 }} = {{ kept(program.called(step) ~ "(" ~ arguments | join(", ") ~ ")", step.result) }};
$$ endfor
    return Results({{ "v" ~ program.outputs | join(", v") }});
}
