{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{# Register tiles of 4 pixels by `channels`. `lanes` invocations of a subgroup share the weights they read; with `shared`,
   those of a workgroup do. #}
{$ set held = [channels, lanes] | min if lanes else channels $}
{$ include "convolution/convolution_put.wgsl" $}

$$ if shared
var<workgroup> w_tile: array<f32, {{ channels * shared }}>;  // ({{ channels }}, {{ shared }}): channels, then depth

$$ endif
{$ include "convolution/convolution_source.wgsl" $}

{# Add the products of one input channel, at `at`, with the weights k0, k1, ... #}
{$ macro accumulate() $}
                    let found = vec4<f32>(f32(x[at.x]), f32(x[at.y]), f32(x[at.z]), f32(x[at.w]));
                    let value = select(vec4<f32>(), found, inside);
$$ for c in range(channels)
                    sum{{ c }} += k{{ c }} * value;
$$ endfor
                    at += plane;
{$ endmacro $}
// The invocations of a workgroup own neighbouring pixels of the same channels of one group. Past the end the last pixel and
// the last channel are computed again, and not written.
$$ call per_workgroup(lanes)
    let in_dims = p.in_dims[0];
    let out_dims = p.out_dims[0];
    let kernel = p.kernel[0];
    let tile = workgroup / p.pixel_groups;  // over batches, groups and the channel tiles of a group
    let channel = (tile % p.channel_tiles) * {{ channels }}u;
    let block = tile / p.channel_tiles;  // over batches and groups
    let group = block % p.groups;

    let pixels = out_dims.x * out_dims.y * out_dims.z;
    let first = ((workgroup % p.pixel_groups) * wg + local) * 4u;
    let pixel = min(first + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(pixels - 1u));
    let line = pixel / out_dims.z;
    let out_z = line / out_dims.y;
    let out_y = line % out_dims.y;
    let out_x = pixel % out_dims.z;
    let plane = in_dims.x * in_dims.y * in_dims.z;
    let x_start = block * p.depth * plane;
    let taps = kernel.x * kernel.y * kernel.z;
    let w_start = group * p.channels * p.depth;
$$ if not shared
$$ for l in range(channels // held if lanes else channels)
    let own{{ l }} = {{ "%du + lane %% %du" % (l * held, held) if lanes else "%du" % l }};
    let w{{ l }} = (w_start + min(channel + own{{ l }}, p.channels - 1u) * p.w_channel) * taps;
$$ endfor
$$ endif
$$ for c in range(channels)
    var sum{{ c }} = vec4<f32>();
$$ endfor
    var tap = 0u;
    for (var kz = 0u; kz < kernel.x; kz++) {
        let z = source(out_z, kz, p.stride[0].x, p.padding[0].x, p.dilation[0].x);
        let z_inside = z < vec4<u32>(in_dims.x);
        for (var ky = 0u; ky < kernel.y; ky++) {
            let v = source(out_y, ky, p.stride[0].y, p.padding[0].y, p.dilation[0].y);
            let line_start = (z * in_dims.y + v) * in_dims.z;
            let line_inside = z_inside & (v < vec4<u32>(in_dims.y));
            for (var kx = 0u; kx < kernel.z; kx++) {
                let u = source(out_x, kx, p.stride[0].z, p.padding[0].z, p.dilation[0].z);
                let inside = line_inside & (u < vec4<u32>(in_dims.z));
                var at = x_start + select(vec4<u32>(), line_start + u, inside);
$$ if not shared and not lanes
                if (any(inside)) {  // invocations that share weights stay together
$$ endif
$$ if shared
                for (var d = 0u; d < p.depth; d += {{ shared }}u) {
                    for (var i = local; i < {{ channels * shared }}u; i += wg) {
                        let c = min(channel + i / {{ shared }}u, p.channels - 1u);
                        let k = min(d + i % {{ shared }}u, p.depth - 1u);
                        w_tile[i] = f32(w[(w_start + c * p.w_channel + k * p.w_depth) * taps + tap]);
                    }
                    workgroupBarrier();
                    for (var k = 0u; k < min({{ shared }}u, p.depth - d); k++) {
$$ for c in range(channels)
                        let k{{ c }} = w_tile[{{ c * shared }}u + k];
$$ endfor
{{ accumulate() }}
                    }
                    workgroupBarrier();
                }
$$ else
                var w_at = tap;
                for (var d = 0u; d < p.depth; d++) {
$$ for l in range(channels // held if lanes else channels)
                    let {{ "held" if lanes else "k" }}{{ l }} = f32(w[w{{ l }} + w_at]);
$$ endfor
$$ for c in range(channels if lanes else 0)
                    let k{{ c }} = subgroupBroadcast(held{{ c // held }}, {{ c % held }}u);
$$ endfor
{{ accumulate() }}
                    w_at += p.w_depth * taps;
                }
$$ endif
$$ if not shared and not lanes
                }
$$ endif
                tap++;
            }
        }
    }
    var results: array<vec4<f32>, {{ channels }}>;
$$ for c in range(channels)
    results[{{ c }}] = sum{{ c }};
$$ endfor
    // The bounds are uniforms: the compiler would unroll literal ones, and write the stores out once for each result.
    for (var c = 0u; c < min(p.tile, p.channels - channel); c++) {
        for (var r = 0u; r < p.tile_pixels && first + r < pixels; r++) {
            put(block / p.groups, group * p.channels + channel + c, first + r, pixels, results[c][r]);
        }
    }
$$ endcall
