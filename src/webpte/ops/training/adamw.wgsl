{$ include "kernel.wgsl" $}

@group(1) @binding(0) var<storage, read> grad: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> param: array<{{ type }}>;
@group(1) @binding(2) var<storage, read_write> mean: array<{{ type }}>;
@group(1) @binding(3) var<storage, read_write> square: array<{{ type }}>;
$$ if returned
@group(1) @binding(4) var<storage, read_write> param_out: array<{{ type }}>;
@group(1) @binding(5) var<storage, read_write> mean_out: array<{{ type }}>;
@group(1) @binding(6) var<storage, read_write> square_out: array<{{ type }}>;
$$ endif

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
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
}
