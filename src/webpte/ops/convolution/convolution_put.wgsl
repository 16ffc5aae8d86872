{# The operands of the convolution kernels, and the store of a sum. #}
var<storage> x: array<{{ type }}>;  // (N, groups * depth, D, H, W)
var<storage> w: array<{{ type }}>;
$$ if biased
var<storage> bias: array<{{ type }}>;
$$ endif
var<storage> y: array<{{ out_type }}>;

{$ include "matmul/epilogue.wgsl" $}

// Store a sum; `channel` counts over all groups.
fn put(batch: u32, channel: u32, pixel: u32, pixels: u32, sum: f32) {
    var value = sum;
$$ if biased
    value += f32(bias[channel]);
$$ endif
    y[(batch * p.groups * p.channels + channel) * pixels + pixel] = epilogue(value, batch, channel, pixel);
}
