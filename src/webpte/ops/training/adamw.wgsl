{$ include "kernel.wgsl" $}
{$ from "main.wgsl" import per_thread $}

@group(1) @binding(0) var<storage, read> grad: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> param: array<{{ type }}>;
@group(1) @binding(2) var<storage, read_write> mean: array<{{ type }}>;
@group(1) @binding(3) var<storage, read_write> square: array<{{ type }}>;
$$ if returned
@group(1) @binding(4) var<storage, read_write> param_out: array<{{ type }}>;
@group(1) @binding(5) var<storage, read_write> mean_out: array<{{ type }}>;
@group(1) @binding(6) var<storage, read_write> square_out: array<{{ type }}>;
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
