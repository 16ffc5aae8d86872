{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ include "bytes.wgsl" $}
{$ include "q8/q8ta_operands.wgsl" $}

{$ include "convolution/convolution_source.wgsl" $}

$$ if ragged
// Each invocation owns four neighbours of the flat output, which may belong to several channels.
$$ else
// Each invocation owns 4 pixels of {{ tile }} channels of one group; the last channels clamp reads and skip writes.
$$ endif
$$ call per_thread()
    let lanes = vec4<u32>(0u, 1u, 2u, 3u);
    let plane = p.in_height * p.in_width;
    let pixels = p.out_height * p.out_width;
$$ if ragged
    let at = min(i * 4u + lanes, vec4<u32>(p.count - 1u));
    let pixel = at % pixels;
    let channel0 = (at / pixels) % (p.groups * p.channels);
    let block = at / pixels / p.channels;  // over batches and groups
    let w0 = channel0 * p.w_channel;
    var sum0 = vec4<i32>();
$$ else
    let pixel_tiles = pixels / 4u;
    let pixel = (i % pixel_tiles) * 4u + lanes;
    let tile = i / pixel_tiles;  // over batches, groups and the channel tiles of a group
    let first = (tile % p.channel_tiles) * {{ tile }}u;  // channel of the group
    let block = tile / p.channel_tiles;  // over batches and groups
    let group = block % p.groups;
$$ for c in range(tile)
    let channel{{ c }} = group * p.channels + min(first + {{ c }}u, p.channels - 1u);
    let w{{ c }} = channel{{ c }} * p.w_channel;
    var sum{{ c }} = vec4<i32>();
$$ endfor
$$ endif
    let x_start = block * (p.depth * plane);
$$ if aligned
    var word = (x_start + pixel.x) / 4u;
    for (var d = 0u; d < p.depth; d++) {
        let value = signed_bytes(x[word]) - p.x_zero;
$$ for c in range(tile)
        sum{{ c }} += w_byte(w{{ c }} + d * p.w_depth) * value;
$$ endfor
        word += plane / 4u;
    }
$$ else
    let out_y = pixel / p.out_width;
    let out_x = pixel % p.out_width;
    for (var tap = 0u; tap < p.kernel_y * p.kernel_x; tap++) {
        let v = source(out_y, tap / p.kernel_x, p.stride_y, p.padding_y, p.dilation_y);
        let u = source(out_x, tap % p.kernel_x, p.stride_x, p.padding_x, p.dilation_x);
        let inside = (v < vec4<u32>(p.in_height)) & (u < vec4<u32>(p.in_width));
        if (any(inside)) {
            var x_at = x_start + select(vec4<u32>(), v * p.in_width + u, inside);
            var w_at = tap * p.w_tap;
            for (var d = 0u; d < p.depth; d++) {
                let found = vec4<i32>(x_byte(x_at.x), x_byte(x_at.y), x_byte(x_at.z), x_byte(x_at.w));
                let value = select(vec4<i32>(), found - p.x_zero, inside);
$$ if ragged
                let at_w = w0 + w_at;
                sum0 += vec4<i32>(w_byte(at_w.x), w_byte(at_w.y), w_byte(at_w.z), w_byte(at_w.w)) * value;
$$ else
$$ for c in range(tile)
                sum{{ c }} += w_byte(w{{ c }} + w_at) * value;
$$ endfor
$$ endif
                x_at += plane;
                w_at += p.w_depth;
            }
        }
    }
$$ endif
$$ if ragged
    put(i * 4u, values_of(sum0, channel0), min(p.count - i * 4u, 4u));
$$ else
$$ for c in range(tile)
    if (first + {{ c }}u < p.channels) {
        let image = (block / p.groups) * (p.groups * p.channels);
        put((image + channel{{ c }}) * pixels + pixel.x, values_of(sum{{ c }}, vec4<u32>(channel{{ c }})), 4u);
    }
$$ endfor
$$ endif
$$ endcall
