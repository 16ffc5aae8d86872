{# The program of results before they are stored: `epilogue(x0, ..., batch, row, column)` has the type of the output.
   `program` takes the results of `products` as its first inputs; its other operands are x1_data and on, with strides
   along the three axes. Without a program the result is stored as it is. #}
{$ from "types.wgsl" import number_type, saved, stored $}
{$ set products = products | default(1) $}
$$ if program is not none
{$ include "elementwise/program.wgsl" $}

$$ for operand in program.inputs[products:]
var<storage> x{{ products + loop.index0 }}_data: array<{{ stored(operand) }}>;
$$ endfor

$$ endif
fn epilogue({$ for x in range(products) $}x{{ x }}: f32, {$ endfor $}batch: u32, row: u32, column: u32) -> {{ out_type }} {
$$ if program is not none
    let result = evaluate(
$$ for operand in program.inputs[:products]
        {{ "rounded_half(x%d)" % loop.index0 if operand in ("f16", "f16w") else "x%d" % loop.index0 }},
$$ endfor
$$ for operand in program.inputs[products:]
$$ set x = products + loop.index0
$$ set strides = "p.x" ~ x ~ "_strides[0]"
        {{ number_type(operand) }}(x{{ x }}_data[
            batch * {{ strides }}.x + row * {{ strides }}.y + column * {{ strides }}.z]),
$$ endfor
    );
    return {{ saved("result.y0", program.output_types[0]) }};
$$ else
    return {{ out_type }}(x0);
$$ endif
}
