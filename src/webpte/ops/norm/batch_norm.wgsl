{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}
{$ set output = 3 + scaled + shifted $}

@group(1) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(1) @binding(1) var<storage, read> means: array<{{ statistics_type }}>;
@group(1) @binding(2) var<storage, read> variances: array<{{ statistics_type }}>;
$$ if scaled
@group(1) @binding(3) var<storage, read> weight: array<{{ weight_type }}>;
$$ endif
$$ if shifted
@group(1) @binding({{ output - 1 }}) var<storage, read> bias: array<{{ weight_type }}>;
$$ endif
@group(1) @binding({{ output }}) var<storage, read_write> y: array<{{ type }}>;

$$ call per_thread()
    let channel = (i / p.inner) % p.channels;
    var v = (f32(x[i]) - f32(means[channel])) * inverseSqrt(f32(variances[channel]) + p.eps);
$$ if scaled
    v *= f32(weight[channel]);
$$ endif
$$ if shifted
    v += f32(bias[channel]);
$$ endif
    y[i] = {{ type }}(v);
$$ endcall
