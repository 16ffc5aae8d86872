{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;  // (N, groups * depth, D, H, W)
@group(1) @binding(1) var<storage, read> w: array<{{ type }}>;
$$ if biased
@group(1) @binding(2) var<storage, read> bias: array<{{ type }}>;
@group(1) @binding(3) var<storage, read_write> y: array<{{ type }}>;
$$ else
@group(1) @binding(2) var<storage, read_write> y: array<{{ type }}>;
$$ endif

// The positions along one axis that the outputs `at` read through a tap; past the end of any axis where there is none.
fn source(at: vec4<u32>, tap: u32, axis: u32) -> vec4<u32> {
    let stride = p.stride[0][axis];
    let padding = p.padding[0][axis];
    let reach = tap * p.dilation[0][axis];
$$ if transposed
    let ahead = at + padding;
    let found = (ahead >= vec4<u32>(reach)) & ((ahead - reach) % stride == vec4<u32>());
    return select(vec4<u32>(0xffffffffu), (ahead - reach) / stride, found);
$$ else
    return at * stride + reach - padding;  // before the first element it wraps around
$$ endif
}

// Each invocation owns 4 pixels of {{ channels }} channels of one group. Past the end the last pixel is computed and
// written again; channels there are not written.
@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let in_dims = p.in_dims[0];
    let out_dims = p.out_dims[0];
    let kernel = p.kernel[0];
    let tile = i / p.pixel_tiles;  // over batches, groups and the channel tiles of a group
    let channel = (tile % p.channel_tiles) * {{ channels }}u;
    let block = tile / p.channel_tiles;  // over batches and groups
    let group = block % p.groups;

    let pixels = out_dims.x * out_dims.y * out_dims.z;
    let pixel = min((i % p.pixel_tiles) * 4u + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(pixels - 1u));
    let line = pixel / out_dims.z;
    let out_z = line / out_dims.y;
    let out_y = line % out_dims.y;
    let out_x = pixel % out_dims.z;
    let plane = in_dims.x * in_dims.y * in_dims.z;
    let x_start = block * p.depth * plane;
    let taps = kernel.x * kernel.y * kernel.z;
$$ for c in range(channels)
    let w{{ c }} = (group * p.channels * p.depth + min(channel + {{ c }}u, p.channels - 1u) * p.w_channel) * taps;
    var sum{{ c }} = vec4<f32>();
$$ endfor
    var tap = 0u;
    for (var kz = 0u; kz < kernel.x; kz++) {
        let z = source(out_z, kz, 0u);
        let z_inside = z < vec4<u32>(in_dims.x);
        for (var ky = 0u; ky < kernel.y; ky++) {
            let v = source(out_y, ky, 1u);
            let line_start = (z * in_dims.y + v) * in_dims.z;
            let line_inside = z_inside & (v < vec4<u32>(in_dims.y));
            for (var kx = 0u; kx < kernel.z; kx++) {
                let u = source(out_x, kx, 2u);
                let inside = line_inside & (u < vec4<u32>(in_dims.z));
                if (any(inside)) {
                    var at = x_start + select(vec4<u32>(), line_start + u, inside);
                    var w_at = tap;
                    for (var d = 0u; d < p.depth; d++) {
                        let found = vec4<f32>(f32(x[at.x]), f32(x[at.y]), f32(x[at.z]), f32(x[at.w]));
                        let value = select(vec4<f32>(), found, inside);
$$ for c in range(channels)
                        sum{{ c }} += f32(w[w{{ c }} + w_at]) * value;
$$ endfor
                        at += plane;
                        w_at += p.w_depth * taps;
                    }
                }
                tap++;
            }
        }
    }
$$ for c in range(channels)
    if (channel + {{ c }}u < p.channels) {
        var value = sum{{ c }};
$$ if biased
        value += f32(bias[group * p.channels + channel + {{ c }}u]);
$$ endif
$$ if clamped
        value = min(max(value, vec4<f32>(p.lowest)), vec4<f32>(p.highest));
$$ endif
        let y_at = (block * p.channels + channel + {{ c }}u) * pixels + pixel;
$$ for r in range(4)
        y[y_at[{{ r }}]] = {{ type }}(value[{{ r }}]);
$$ endfor
    }
$$ endfor
}
