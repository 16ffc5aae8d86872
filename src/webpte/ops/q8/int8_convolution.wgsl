{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
{$ set several = "vec4<{}>" if not ragged else "{}" $}

var<storage> x: array<{{ "vec4<u32>" if wide else "u32" }}>;
var<storage> w: array<{{ several.format("u32") }}>;  // (words of a channel, output channels)
var<storage> scales: array<{{ several.format("f32") }}>;
var<storage> bias: array<{{ several.format("f32" if dynamic else "i32") }}>;
$$ if dynamic
var<storage> weight_sums: array<{{ several.format("i32") }}>;
var<storage> lows: array<f32>;
var<storage> highs: array<f32>;
var<storage> y: array<{{ several.format("f32") }}>;
$$ else
var<storage> y: array<u32>;
$$ endif

{$ include "convolution/convolution_source.wgsl" $}
$$ if dynamic
{$ include "q8/int8_range.wgsl" $}

// Four codes of the 0 of an image.
fn word_of_zero(image: u32) -> u32 {
    return (bitcast<u32>(i32(zero_of(image))) & 255u) * 0x01010101u;
}

// The numbers of sums of products of an image.
fn values_of(sums: vec4<i32>, weights: vec4<i32>, image: u32, scale: vec4<f32>, offset: vec4<f32>) -> vec4<f32> {
    let numbers = vec4<f32>(sums - i32(zero_of(image)) * weights) * scale_of(image) * scale + offset;
    return clamp(numbers, vec4<f32>(p.low), vec4<f32>(p.high));
}
$$ else
{$ include "q8/int8_codes.wgsl" $}
{$ include "q8/int8_epilogue.wgsl" $}
$$ endif

$$ if not wide
// Return the four codes that start at byte `at`. Weights beyond the last channel are 0, whatever is read there.
fn codes_at(at: u32) -> u32 {
$$ if aligned
    return x[at >> 2u];
$$ else
    let shift = (at & 3u) * 8u;
    let low = x[at >> 2u];
    let high = x[min((at >> 2u) + 1u, p.last_word)];
    return select((low >> shift) | (high << ((32u - shift) & 31u)), low, shift == 0u);
$$ endif
}
$$ endif

// A product of four codes. For Metal, naga declares a variable for each operand of dot4I8Packed, and a name that is an
// operand twice in a block would be declared twice. The parameters are operands once.
fn product(a: u32, b: u32) -> i32 {
    return dot4I8Packed(a, b);
}
{# The elements of the channels of four lanes. #}
{$ macro four(name) -$}
{{ "vec4(" }}{$ for lane in "xyzw" $}{{ name }}[channel.{{ lane }}]{{ ", " if not loop.last else ")" }}{$ endfor $}
{$- endmacro $}
{# Codes that a lane reads: those of its pixel, or of 0 outside the image. #}
{$ macro within(codes, outside, lane) -$}
{{ codes if pointwise else "select(" ~ outside ~ ", " ~ codes ~ ", inside." ~ lane ~ ")" }}
{$- endmacro $}
{# Add the products of the codes at bytes `at` of the input with those from word `k` of every channel. #}
{$ macro accumulate() $}
    for (var d = 0u; d < p.depth_words; d += {{ 4 if wide else 1 }}u) {
$$ for lane in "xyzw"[:rows]
$$ set outside = "outside." ~ lane if dynamic else "p.outside"
$$ if wide
        let a_{{ lane }} = {{ within("x[(at." ~ lane ~ " >> 4u) + (d >> 2u)]", "vec4<u32>(" ~ outside ~ ")", lane) }};
$$ else
        let a_{{ lane }} = {{ within("codes_at(at." ~ lane ~ " + d * 4u)", outside, lane) }};
$$ endif
$$ endfor
$$ if ragged
        let row = (k + d) * p.channels;
        sum_x += vec4<i32>(
$$ for lane in "xyzw"
            product(a_{{ lane }}, w[row + channel.{{ lane }}]),
$$ endfor
        );
$$ else
$$ for part in "xyzw"[:4 if wide else 1]
        let b_{{ part }} = w[(k + d + {{ loop.index0 }}u) * p.channel_tiles + tile];
$$ for lane in "xyzw"[:rows]
        sum_{{ lane }} += vec4<i32>(
$$ for c in "xyzw"
            product(a_{{ lane }}{{ "." ~ part if wide }}, b_{{ part }}.{{ c }}),
$$ endfor
        );
$$ endfor
$$ endfor
$$ endif
    }
{$ endmacro $}

$$ if ragged
// Each invocation owns four neighbours of the flat output, which may belong to several pixels.
$$ else
// Each invocation owns {{ rows }} pixels of four channels; the last pixels clamp reads and skip writes.
$$ endif
$$ call per_thread()
    let lanes = vec4<u32>(0u, 1u, 2u, 3u);
$$ if ragged
    let element = min(i * 4u + lanes, vec4<u32>(p.count - 1u));
    let channel = element % p.channels;
    let pixel = element / p.channels;
    let start = (channel / p.group_channels) * p.depth;
    var sum_x = {{ "vec4<i32>()" if dynamic else four("bias") }};
$$ else
    let tile = i % p.channel_tiles;
    let first = (i / p.channel_tiles) * {{ rows }}u;
    let pixel = min(first + lanes, vec4<u32>(p.pixels - 1u));
    let start = (tile * 4u / p.group_channels) * p.depth;
$$ for lane in "xyzw"[:rows]
    var sum_{{ lane }} = {{ "vec4<i32>()" if dynamic else "bias[tile]" }};
$$ endfor
$$ endif
$$ if dynamic or not pointwise
    let area = p.out_height * p.out_width;
    let number = pixel / area;  // of the image
$$ endif
$$ if dynamic and not pointwise
    let outside = vec4<u32>(
        word_of_zero(number.x), word_of_zero(number.y), word_of_zero(number.z), word_of_zero(number.w)
    );
$$ endif
$$ if pointwise
    let k = 0u;
    let at = pixel * p.in_channels + start;
{{ accumulate() }}
$$ else
    let image = number * p.in_height;
    let out_y = (pixel % area) / p.out_width;
    let out_x = pixel % p.out_width;
    for (var tap = 0u; tap < p.kernel_y * p.kernel_x; tap++) {
        let v = source(out_y, tap / p.kernel_x, p.stride_y, p.padding_y, p.dilation_y);
        let u = source(out_x, tap % p.kernel_x, p.stride_x, p.padding_x, p.dilation_x);
        let inside = (v < vec4<u32>(p.in_height)) & (u < vec4<u32>(p.in_width));
        let at = select(vec4<u32>(), ((image + v) * p.in_width + u) * p.in_channels + start, inside);
        let k = tap * p.depth_words;
{{ accumulate() }}
    }
$$ endif
$$ if ragged and dynamic
$$ for lane in "xyzw"
    if (i * 4u + {{ loop.index0 }}u < p.count) {
        let one = values_of(sum_x, {{ four("weight_sums") }}, number.{{ lane }}, {{ four("scales") }}, {{ four("bias") }});
        y[element.{{ lane }}] = one.{{ lane }};
    }
$$ endfor
$$ elif ragged
    y[i] = stored_word(codes_of(sum_x, {{ four("scales") }}), i, min(p.count - i * 4u, 4u));
$$ else
$$ for lane in "xyzw"[:rows]
    if (first + {{ loop.index0 }}u < p.pixels) {
        let at = pixel.{{ lane }} * p.channel_tiles + tile;
$$ if dynamic
        y[at] = values_of(sum_{{ lane }}, weight_sums[tile], number.{{ lane }}, scales[tile], bias[tile]);
$$ else
        y[at] = stored_word(codes_of(sum_{{ lane }}, scales[tile]), at, 4u);
$$ endif
    }
$$ endfor
$$ endif
$$ endcall
