{# The program of codes before they are stored, as in matmul/epilogue.wgsl: its operands have the layout of the output. #}
$$ if program is not none
{$ include "elementwise/program.wgsl" $}

$$ for operand in program.inputs[1:]
var<storage> x{{ loop.index }}_data: array<u32>;
$$ endfor
$$ endif

// Return word `at` of the output for the codes of a layer, of which `count` are inside the tensor.
fn stored_word(codes: vec4<i32>, at: u32, count: u32) -> u32 {
$$ if program is not none
$$ for operand in program.inputs[1:]
    let x{{ loop.index }} = signed_bytes(x{{ loop.index }}_data[at]);
$$ endfor
    let results = vec4<i32>(
$$ for lane in "xyzw"
        evaluate(codes.{{ lane }}{$ for operand in program.inputs[1:] $}, x{{ loop.index }}.{{ lane }}{$ endfor $}).y0,
$$ endfor
    );
    return word_of(results, count);
$$ else
    return word_of(codes, count);
$$ endif
}
