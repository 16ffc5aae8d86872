{# The operands of the convolution kernels, and the store of a sum. #}
{$ set first = 3 if biased else 2 $}
@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;  // (N, groups * depth, D, H, W)
@group(1) @binding(1) var<storage, read> w: array<{{ type }}>;
$$ if biased
@group(1) @binding(2) var<storage, read> bias: array<{{ type }}>;
$$ endif
@group(1) @binding({{ first + operands }}) var<storage, read_write> y: array<{{ out_type }}>;

{$ include "matmul/epilogue.wgsl" $}
$$ if clamped and program is none
{$ include "floats.wgsl" $}
$$ endif

// Store a sum; `channel` counts over all groups.
fn put(batch: u32, channel: u32, pixel: u32, pixels: u32, sum: f32) {
    var value = sum;
$$ if biased
    value += f32(bias[channel]);
$$ endif
$$ if clamped
    value = select(from_order_key(clamp(order_key(value), p.lowest, p.highest)), value, is_nan(value));
$$ endif
    y[(batch * p.groups * p.channels + channel) * pixels + pixel] = epilogue(value, batch, channel, pixel);
}
