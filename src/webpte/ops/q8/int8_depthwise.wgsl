{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}

var<storage> x: array<u32>;
var<storage> w: array<u32>;  // (taps, words of channels)
var<storage> scales: array<vec4<f32>>;
var<storage> bias: array<vec4<i32>>;
var<storage> y: array<u32>;

{$ include "convolution/convolution_source.wgsl" $}
{$ include "q8/int8_codes.wgsl" $}
{$ include "q8/int8_epilogue.wgsl" $}

// Each invocation owns four pixels of four channels; the last pixels clamp reads and skip writes.
$$ call per_thread()
    let tile = i % p.channel_tiles;
    let first = (i / p.channel_tiles) * 4u;
    let pixel = min(first + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(p.pixels - 1u));
    let area = p.out_height * p.out_width;
    let image = (pixel / area) * p.in_height;
    let out_y = (pixel % area) / p.out_width;
    let out_x = pixel % p.out_width;
$$ for lane in "xyzw"
    var sum_{{ lane }} = bias[tile];
$$ endfor
    for (var tap = 0u; tap < p.kernel_y * p.kernel_x; tap++) {
        let v = source(out_y, tap / p.kernel_x, p.stride_y, p.padding_y, p.dilation_y);
        let u = source(out_x, tap % p.kernel_x, p.stride_x, p.padding_x, p.dilation_x);
        let inside = (v < vec4<u32>(p.in_height)) & (u < vec4<u32>(p.in_width));
        let at = select(vec4<u32>(), ((image + v) * p.in_width + u) * p.channel_tiles + tile, inside);
        let b = signed_bytes(w[tap * p.channel_tiles + tile]);
$$ for lane in "xyzw"
        sum_{{ lane }} += signed_bytes(select(p.outside, x[at.{{ lane }}], inside.{{ lane }})) * b;
$$ endfor
    }
$$ for lane in "xyzw"
    if (first + {{ loop.index0 }}u < p.pixels) {
        let at = pixel.{{ lane }} * p.channel_tiles + tile;
        y[at] = stored_word(codes_of(sum_{{ lane }}, scales[tile]), at, 4u);
    }
$$ endfor
$$ endcall
