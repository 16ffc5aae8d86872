$$ if in_place
@group(0) @binding(0) var<storage, read_write> x: array<{{ type }}>;
@group(0) @binding(1) var<storage, read> other: array<{{ type }}>;
$$ else
@group(0) @binding(0) var<storage, read> x: array<{{ type }}>;
@group(0) @binding(1) var<storage, read> other: array<{{ type }}>;
@group(0) @binding(2) var<storage, read_write> y: array<{{ type }}>;
$$ endif

@compute @workgroup_size({{ workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    {{ "x" if in_place else "y" }}[id.x] = x[id.x] {{ operator }} other[id.x];
}
