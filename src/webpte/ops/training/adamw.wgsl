{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

var<storage> grad: array<{{ type }}>;
var<storage> param: array<{{ type }}>;
var<storage> mean: array<{{ type }}>;
var<storage> square: array<{{ type }}>;
$$ if returned
var<storage> param_out: array<{{ type }}>;
var<storage> mean_out: array<{{ type }}>;
var<storage> square_out: array<{{ type }}>;
$$ endif

$$ call per_thread()
    let g = f32(grad[i]);
    let m = f32(mean[i]) * p.beta1 + g * p.rest1;
    let v = f32(square[i]) * p.beta2 + g * g * p.rest2;
    let step = (m / p.correction1) / (sqrt(v / p.correction2) + p.eps);
    let value = {{ type }}(f32(param[i]) * p.decay - p.lr * step);
    param[i] = value;
    mean[i] = {{ type }}(m);
    square[i] = {{ type }}(v);
$$ if returned
    param_out[i] = value;
    mean_out[i] = {{ type }}(m);
    square_out[i] = {{ type }}(v);
$$ endif
$$ endcall
