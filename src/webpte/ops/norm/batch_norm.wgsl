{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> x: array<{{ type }}>;
var<storage> means: array<{{ statistics_type }}>;
var<storage> variances: array<{{ statistics_type }}>;
$$ if scaled
var<storage> weight: array<{{ weight_type }}>;
$$ endif
$$ if shifted
var<storage> bias: array<{{ weight_type }}>;
$$ endif
var<storage> y: array<{{ type }}>;

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
