{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_workgroup $}
{# For GPUs: an invocation owns 4 neighbours of one line by `channels`, 4 or 8, and a workgroup shares the weights of `shared`
   input channels. Few values are live in the loops, so that the tile is what takes the registers. `axes`: 2 if the first of
   three has size 1. #}
{$ set quads = channels // 4 $}
{$ include "convolution/convolution_put.wgsl" $}

var<workgroup> w_tile: array<array<vec4<f32>, {{ quads }}>, {{ shared }}>;  // channels of each input channel

{$ include "convolution/convolution_source.wgsl" $}

// The invocations of a workgroup own neighbouring pixels of the same channels of one group. Past the end the last line and
// the last channel are computed again, and not written.
$$ call per_workgroup()
    let tile = workgroup / p.pixel_groups;  // over batches, groups and the channel tiles of a group
    let channel = (tile % p.channel_tiles) * {{ channels }}u;
    let block = tile / p.channel_tiles;  // over batches and groups
    let line_quads = (p.out_dims[0].z + 3u) / 4u;
    let own = (workgroup % p.pixel_groups) * wg + local;
    let lines = p.out_dims[0].x * p.out_dims[0].y;
    let out_line = min(own / line_quads, lines - 1u);
    let first = own % line_quads * 4u;
    let plane = p.in_dims[0].x * p.in_dims[0].y * p.in_dims[0].z;
    let taps = p.kernel[0].x * p.kernel[0].y * p.kernel[0].z;
    let batch = block / p.groups;
    let first_channel = (block - batch * p.groups) * p.channels;  // of the group
$$ for c in range(channels)
    var sum{{ c }} = vec4<f32>();
$$ endfor
    var kx = 0u;  // one loop over all taps: nested ones would need more registers
    var ky = 0u;
$$ if axes == 3
    var kz = 0u;
$$ endif
    for (var tap = 0u; tap < taps; tap++) {
$$ if axes == 3
        let z = source(vec4<u32>(out_line / p.out_dims[0].y), kz, p.stride[0].x, p.padding[0].x, p.dilation[0].x).x;
$$ endif
        let v = source(vec4<u32>(out_line{{ " % p.out_dims[0].y" if axes == 3 }}), ky, p.stride[0].y, p.padding[0].y, p.dilation[0].y).x;
        let u = source(first + vec4<u32>(0u, 1u, 2u, 3u), kx, p.stride[0].z, p.padding[0].z, p.dilation[0].z);
        let line_inside = v < p.in_dims[0].y{{ " && z < p.in_dims[0].x" if axes == 3 }};
        let inside = (u < vec4<u32>(p.in_dims[0].z)) & vec4<bool>(line_inside);
        let line = block * p.depth * plane + {{ "(z * p.in_dims[0].y + v)" if axes == 3 else "v" }} * p.in_dims[0].z;
$$ if transposed
        var at = line + select(vec4<u32>(), u, inside);
$$ else
        var at = line + u.x;  // anywhere if it is not inside: then it counts as 0
        let step = p.stride[0].z;
$$ endif
        for (var d = 0u; d < p.depth; d += {{ shared }}u) {
            for (var i = local; i < {{ quads * shared }}u; i += wg) {
                let k = min(d + i / {{ quads }}u, p.depth - 1u);
                let c = channel + i % {{ quads }}u * 4u;
                var value = vec4<f32>();
$$ for n in range(4)
                value[{{ n }}] = f32(w[(first_channel * p.depth + min(c + {{ n }}u, p.channels - 1u) * p.w_channel + k * p.w_depth) * taps + tap]);
$$ endfor
                w_tile[i / {{ quads }}u][i % {{ quads }}u] = value;
            }
            workgroupBarrier();
            for (var k = 0u; k < min({{ shared }}u, p.depth - d); k++) {
$$ if transposed
                let found = vec4<f32>(f32(x[at.x]), f32(x[at.y]), f32(x[at.z]), f32(x[at.w]));
$$ else
                let found = vec4<f32>(f32(x[at]), f32(x[at + step]), f32(x[at + 2u * step]), f32(x[at + 3u * step]));
$$ endif
                let value = select(vec4<f32>(), found, inside);
$$ for q in range(quads)
                let weights{{ q }} = w_tile[k][{{ q }}];
$$ for n in range(4)
                sum{{ 4 * q + n }} += weights{{ q }}[{{ n }}] * value;
$$ endfor
$$ endfor
                at += plane;
            }
            workgroupBarrier();
        }
        kx++;
        if (kx == p.kernel[0].z) {
            kx = 0u;
            ky++;
        }
$$ if axes == 3
        if (ky == p.kernel[0].y) {
            ky = 0u;
            kz++;
        }
$$ endif
    }
    let count = select(0u, min(p.out_dims[0].z - first, p.tile_pixels), own < lines * line_quads);
    let pixel = out_line * p.out_dims[0].z + first;
    let pixels = lines * p.out_dims[0].z;
    var results: array<vec4<f32>, {{ channels }}>;
$$ for c in range(channels)
    results[{{ c }}] = sum{{ c }};
$$ endfor
    // The bounds are uniforms: the compiler would unroll literal ones, and write the stores out once for each result.
    for (var c = 0u; c < min(p.tile, p.channels - channel); c++) {
        for (var r = 0u; r < count; r++) {
            put(batch, first_channel + channel + c, pixel + r, pixels, results[c][r]);
        }
    }
$$ endcall
