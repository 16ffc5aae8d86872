{$ include "kernel.wgsl" $}
{$ set expressions = {"add": "a + alpha * b", "sub": "a - alpha * b", "mul": "a * b"} $}
{$ set compute = "i32" if type == "i32" else "f32" $}
{$ set suffix = "_int" if type == "i32" else "" $}

@group(1) @binding(0) var<storage, read> a_data: array<{{ type }}>;
$$ if number
@group(1) @binding(1) var<storage, read_write> y: array<{{ type }}>;
$$ else
@group(1) @binding(1) var<storage, read> b_data: array<{{ type }}>;
@group(1) @binding(2) var<storage, read_write> y: array<{{ type }}>;
$$ endif

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
$$ if flat
    let ai = i;
    let bi = i;
$$ else
    var ai = 0u;
    var bi = 0u;
    var rest = i;
    for (var d = p.rank; d > 0u; d--) {
        let k = d - 1u;
        let size = p.dims[k >> 2u][k & 3u];
        let at = rest % size;
        rest /= size;
        ai += at * p.a_strides[k >> 2u][k & 3u];
        bi += at * p.b_strides[k >> 2u][k & 3u];
    }
$$ endif
    let alpha = p.alpha{{ suffix }};
    let a = {{ compute }}(a_data[ai]);
$$ if number
    let b = p.other{{ suffix }};
$$ else
    let b = {{ compute }}(b_data[bi]);
$$ endif
    y[i] = {{ type }}({{ expressions[name] }});
}
