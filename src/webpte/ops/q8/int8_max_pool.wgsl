{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}

var<storage> x: array<u32>;
var<storage> y: array<u32>;

$$ if not words
fn code_at(at: u32) -> i32 {
    return extractBits(bitcast<i32>(x[at >> 2u]), (at & 3u) * 8u, 8u);
}

$$ endif
// Return the largest code of a window, in {{ "four channels" if words else "one channel" }}. Every window has a pixel.
{$ set codes = "vec4<i32>" if words else "i32" $}
fn largest(image: u32, out_y: u32, out_x: u32, channel: u32, stride: u32) -> {{ codes }} {
    var best = {{ codes }}(-128);
    for (var tap = 0u; tap < p.kernel_y * p.kernel_x; tap++) {
        let v = out_y * p.stride_y + (tap / p.kernel_x) * p.dilation_y - p.padding_y;  // before the first it wraps around
        let u = out_x * p.stride_x + (tap % p.kernel_x) * p.dilation_x - p.padding_x;
        if (v < p.in_height && u < p.in_width) {
            let at = ((image * p.in_height + v) * p.in_width + u) * stride + channel;
            best = max(best, {{ "signed_bytes(x[at])" if words else "code_at(at)" }});
        }
    }
    return clamp(best, {{ codes }}(p.low), {{ codes }}(p.high));
}

// Each invocation owns four neighbours of the flat output.
$$ call per_thread("t")
$$ if words
    let tiles = p.channels / 4u;
    let pixel = t / tiles;
    let column = pixel % p.out_width;
    let row = (pixel / p.out_width) % p.out_height;
    y[t] = word_of(largest(pixel / p.out_width / p.out_height, row, column, t % tiles, tiles), 4u);
$$ else
    var codes = vec4<i32>();
    let count = min(p.count - t * 4u, 4u);
    for (var k = 0u; k < count; k++) {
        let element = t * 4u + k;
        let pixel = element / p.channels;
        let column = pixel % p.out_width;
        let row = (pixel / p.out_width) % p.out_height;
        codes[k] = largest(pixel / p.out_width / p.out_height, row, column, element % p.channels, p.channels);
    }
    y[t] = word_of(codes, count);
$$ endif
$$ endcall
