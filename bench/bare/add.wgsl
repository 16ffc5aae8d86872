@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

// Each invocation adds {{ each }} vectors that lie side by side{{ "" if together else ", a grid apart" }}.
@compute @workgroup_size({{ workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
$$ for i in range(each)
$$ if together
    let i{{ i }} = id.x * {{ each }}u + {{ i }}u;
$$ else
    let i{{ i }} = id.x + {{ i * threads }}u;
$$ endif
    y[i{{ i }}] = a[i{{ i }}] + b[i{{ i }}];
$$ endfor
}
