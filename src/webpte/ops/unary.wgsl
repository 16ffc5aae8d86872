{$ include "kernel.wgsl" $}
{$ set expressions = {"relu": "max(x, 0.0)", "sigmoid": "1.0 / (1.0 + exp(-x))"} $}

@group(1) @binding(0) var<storage, read> x_data: array<{{ type }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ type }}>;

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    let x = f32(x_data[i]);
    y[i] = {{ type }}({{ expressions[name] }});
}
