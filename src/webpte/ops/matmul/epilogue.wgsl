{# The program of a result before it is stored: `epilogue(value, batch, row, column)` has the type of the output.
   `program` takes the value as x0; its other operands are x1_data and on, with strides along the three axes.
   Without a program the value is stored as it is. #}
{$ from "types.wgsl" import number_type, saved, stored $}
$$ if program is not none
{$ include "elementwise/program.wgsl" $}

$$ for operand in program.inputs[1:]
var<storage> x{{ loop.index }}_data: array<{{ stored(operand) }}>;
$$ endfor

fn epilogue(value: f32, batch: u32, row: u32, column: u32) -> {{ out_type }} {
    let result = evaluate(
        {{ "rounded_half(value)" if program.inputs[0] in ("f16", "f16w") else "value" }},
$$ for operand in program.inputs[1:]
$$ set strides = "p.x" ~ loop.index ~ "_strides[0]"
        {{ number_type(operand) }}(x{{ loop.index }}_data[
            batch * {{ strides }}.x + row * {{ strides }}.y + column * {{ strides }}.z]),
$$ endfor
    );
    return {{ saved("result.y0", program.output_types[0]) }};
}
$$ else
fn epilogue(value: f32, batch: u32, row: u32, column: u32) -> {{ out_type }} {
    return {{ out_type }}(value);
}
$$ endif
