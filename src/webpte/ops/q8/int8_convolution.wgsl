{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
{$ set several = "vec4<{}>" if not ragged else "{}" $}

@group(1) @binding(0) var<storage, read> x: array<{{ "vec4<u32>" if wide else "u32" }}>;
@group(1) @binding(1) var<storage, read> w: array<{{ several.format("u32") }}>;  // (words of a channel, output channels)
@group(1) @binding(2) var<storage, read> scales: array<{{ several.format("f32") }}>;
@group(1) @binding(3) var<storage, read> bias: array<{{ several.format("i32") }}>;
@group(1) @binding(4) var<storage, read_write> y: array<u32>;

{$ include "convolution/convolution_source.wgsl" $}
{$ include "q8/int8_codes.wgsl" $}

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
{# Codes that a lane reads: those of its pixel, or of 0 outside the image. #}
{$ macro within(codes, outside, lane) -$}
{{ codes if pointwise else "select(" ~ outside ~ ", " ~ codes ~ ", inside." ~ lane ~ ")" }}
{$- endmacro $}
{# Add the products of the codes at bytes `at` of the input with those from word `k` of every channel. #}
{$ macro accumulate() $}
    for (var d = 0u; d < p.depth_words; d += {{ 4 if wide else 1 }}u) {
$$ for lane in "xyzw"[:rows]
$$ if wide
        let a_{{ lane }} = {{ within("x[(at." ~ lane ~ " >> 4u) + (d >> 2u)]", "vec4<u32>(p.outside)", lane) }};
$$ else
        let a_{{ lane }} = {{ within("codes_at(at." ~ lane ~ " + d * 4u)", "p.outside", lane) }};
$$ endif
$$ endfor
$$ if ragged
        let row = (k + d) * p.channels;
        sum_x += vec4<i32>(
$$ for lane in "xyzw"
            dot4I8Packed(a_{{ lane }}, w[row + channel.{{ lane }}]),
$$ endfor
        );
$$ else
$$ for part in "xyzw"[:4 if wide else 1]
        let b_{{ part }} = w[(k + d + {{ loop.index0 }}u) * p.channel_tiles + tile];
$$ for lane in "xyzw"[:rows]
        sum_{{ lane }} += vec4<i32>(
$$ for c in "xyzw"
            dot4I8Packed(a_{{ lane }}{{ "." ~ part if wide }}, b_{{ part }}.{{ c }}),
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
    var sum_x = vec4<i32>(bias[channel.x], bias[channel.y], bias[channel.z], bias[channel.w]);
$$ else
    let tile = i % p.channel_tiles;
    let first = (i / p.channel_tiles) * {{ rows }}u;
    let pixel = min(first + lanes, vec4<u32>(p.pixels - 1u));
    let start = (tile * 4u / p.group_channels) * p.depth;
$$ for lane in "xyzw"[:rows]
    var sum_{{ lane }} = bias[tile];
$$ endfor
$$ endif
$$ if pointwise
    let k = 0u;
    let at = pixel * p.in_channels + start;
{{ accumulate() }}
$$ else
    let area = p.out_height * p.out_width;
    let image = (pixel / area) * p.in_height;
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
$$ if ragged
    let scale = vec4<f32>(scales[channel.x], scales[channel.y], scales[channel.z], scales[channel.w]);
    y[i] = word_of(codes_of(sum_x, scale), min(p.count - i * 4u, 4u));
$$ else
$$ for lane in "xyzw"[:rows]
    if (first + {{ loop.index0 }}u < p.pixels) {
        y[pixel.{{ lane }} * p.channel_tiles + tile] = word_of(codes_of(sum_{{ lane }}, scales[tile]), 4u);
    }
$$ endfor
$$ endif
$$ endcall
