{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ set number = "f32" if type in ("f16", "f16w") else type $}

var<storage> x: array<{{ type }}>;
var<storage> values: array<{{ type }}>;
$$ if indexed
var<storage> indices: array<i32>;
$$ endif

{$ include "floats.wgsl" $}
{$ include "extreme.wgsl" $}

// The first position of a window at or after `padding`, in steps of the dilation.
fn first_inside(position: u32, padding: u32, dilation: u32) -> u32 {
    if (position >= padding) {
        return position;
    }
    return position + (padding - position + dilation - 1u) / dilation * dilation;
}

// Positions are counted from the start of the padding, so that they are never negative.
$$ call per_thread()
    let plane = i / (p.out_width * p.out_height);
    let top = ((i / p.out_width) % p.out_height) * p.stride_y;
    let left = (i % p.out_width) * p.stride_x;
    let first_row = first_inside(top, p.padding_y, p.dilation_y);
    let end_row = min(top + p.kernel_y * p.dilation_y, p.padding_y + p.height);
    let first_column = first_inside(left, p.padding_x, p.dilation_x);
    let end_column = min(left + p.kernel_x * p.dilation_x, p.padding_x + p.width);
    let start = plane * p.height * p.width;
    var at = (first_row - p.padding_y) * p.width + first_column - p.padding_x;
    var best = {{ number }}(x[start + at]);
    for (var row = first_row; row < end_row; row += p.dilation_y) {
        for (var column = first_column; column < end_column; column += p.dilation_x) {
            let here = (row - p.padding_y) * p.width + column - p.padding_x;
            let v = {{ number }}(x[start + here]);
            if (beats(v, best){{ " || is_nan(v)" if indexed and number == "f32" }}) {  // the last NaN is the one that counts
                best = v;
                at = here;
            }
        }
    }
    values[i] = {{ type }}(best);
$$ if indexed
    indices[i] = i32(at);
$$ endif
$$ endcall
