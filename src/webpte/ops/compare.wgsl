{$ include "kernel.wgsl" $}
{$ from "types.wgsl" import converted, number_type, stored $}
{$ set number = number_type(type) $}
{$ set layouts = ["a"] if b == "number" else ["a", "b"] $}
$$ if number == "f32"
{$ include "floats.wgsl" $}
$$ endif

@group(1) @binding(0) var<storage, read> a_data: array<{{ stored(a) }}>;
$$ if b == "number"
@group(1) @binding(1) var<storage, read_write> y: array<u32>;
$$ else
@group(1) @binding(1) var<storage, read> b_data: array<{{ stored(b) }}>;
@group(1) @binding(2) var<storage, read_write> y: array<u32>;
$$ endif

// How a stands to b, as one bit: 1 less, 2 equal, 4 greater, 8 neither, which is what NaN is to everything.
fn relation(a: {{ number }}, b: {{ number }}) -> u32 {
$$ if number == "f32"
    if (is_nan(a) || is_nan(b)) {
        return 8u;
    }
    // By bits, so that infinities and subnormals count; -0 equals 0.
    let left = select(order_key(a), 0, (bitcast<u32>(a) << 1u) == 0u);
    let right = select(order_key(b), 0, (bitcast<u32>(b) << 1u) == 0u);
$$ else
    let left = a;
    let right = b;
$$ endif
    return select(select(4u, 2u, left == right), 1u, left < right);
}

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
{$ include "walk.wgsl" $}
    let a = {{ converted("a_data[ai]", a, type) }};
$$ if b == "number"
    let b = bitcast<{{ number }}>(live(p.other));
$$ else
    let b = {{ converted("b_data[bi]", b, type) }};
$$ endif
    y[i] = u32((relation(a, b) & p.accepted) != 0u);
}
