{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{# One input channel to each output channel. An invocation owns 4 neighbours of one line; with `sliding`, where stride and
   dilation along it are 1, the next tap reads but one element that the last has not. #}
{$ include "convolution/convolution_put.wgsl" $}

// The element at `u` of the line that begins at `start`, 0 outside.
fn fetch(start: u32, u: u32) -> f32 {
    let inside = u < p.in_dims[0].z;
    return select(0.0, f32(x[start + select(0u, u, inside)]), inside);
}

$$ call per_thread()
    let in_dims = p.in_dims[0];
    let out_dims = p.out_dims[0];
    let kernel = p.kernel[0];
    let first = (i % p.pixel_groups) * 4u;  // along a line
    let line = i / p.pixel_groups;
    let lines = out_dims.x * out_dims.y;
    let out_z = line % lines / out_dims.y;
    let out_y = line % lines % out_dims.y;
    let block = line / lines;  // over batches and channels
    let channel = block % p.groups;
    let from_x = first * p.stride[0].z - p.padding[0].z;  // before the first element it wraps around
    var sum = vec4<f32>();
    var tap = channel * kernel.x * kernel.y * kernel.z;
    for (var kz = 0u; kz < kernel.x; kz++) {
        let z = out_z * p.stride[0].x + kz * p.dilation[0].x - p.padding[0].x;
        for (var ky = 0u; ky < kernel.y; ky++) {
            let v = out_y * p.stride[0].y + ky * p.dilation[0].y - p.padding[0].y;
            if (z < in_dims.x && v < in_dims.y) {
                let start = ((block * in_dims.x + z) * in_dims.y + v) * in_dims.z;
$$ if sliding
                var window = vec4<f32>(
                    0.0, fetch(start, from_x), fetch(start, from_x + 1u), fetch(start, from_x + 2u));
                for (var kx = 0u; kx < kernel.z; kx++) {
                    window = vec4<f32>(window.yzw, fetch(start, from_x + kx + 3u));
                    sum += f32(w[tap + kx]) * window;
                }
$$ else
                let stride = p.stride[0].z;
                for (var kx = 0u; kx < kernel.z; kx++) {
                    let u = from_x + kx * p.dilation[0].z;
                    sum += f32(w[tap + kx]) * vec4<f32>(
                        fetch(start, u), fetch(start, u + stride), fetch(start, u + 2u * stride),
                        fetch(start, u + 3u * stride));
                }
$$ endif
            }
            tap += kernel.z;
        }
    }
    for (var r = 0u; r < p.tile_pixels && first + r < out_dims.z; r++) {
        put(block / p.groups, channel, line % lines * out_dims.z + first + r, lines * out_dims.z, sum[r]);
    }
$$ endcall
