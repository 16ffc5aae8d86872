{$ include "kernel.wgsl" $}
{$ from "types.wgsl" import converted, number_type, saved, stored $}
{$ set number = number_type(out) $}
{$ set suffix = "" if number == "f32" else "_int" $}
{$ set layouts = ["a"] if b == "number" else ["a", "b"] $}
{$ set expressions = {
    "add": "a + p.alpha" ~ suffix ~ " * b",
    "sub": "a - p.alpha" ~ suffix ~ " * b",
    "mul": "a * b",
    "div": "a / b",
    "div_floor": "floored_quotient(a, b)",
    "div_trunc": "truncated_quotient(a, b)",
    "remainder": "floored_remainder(a, b)",
    "fmod": "truncated_remainder(a, b)",
    "pow": "power(a, b)",
    "minimum": "minimum(a, b)",
    "maximum": "maximum(a, b)",
    "and": "a & b",
    "or": "a | b",
    "xor": "a ^ b",
} $}
$$ if number == "f32"
{$ include "floats.wgsl" $}
$$ endif
$$ if name in ("div_floor", "div_trunc", "remainder", "fmod")
{$ include "division.wgsl" $}
$$ elif name == "pow"
{$ include "power.wgsl" $}
$$ elif name in ("minimum", "maximum") and number == "f32"
// NaN wins, and infinities count, which min and max do not promise.
fn {{ name }}(a: f32, b: f32) -> f32 {
    if (is_nan(a)) {
        return a;
    }
    return select(a, b, is_nan(b) || order_key(b) {{ "<" if name == "minimum" else ">" }} order_key(a));
}
$$ elif name in ("minimum", "maximum")
fn {{ name }}(a: i32, b: i32) -> i32 {
    return {{ name[:3] }}(a, b);
}
$$ endif

@group(1) @binding(0) var<storage, read> a_data: array<{{ stored(a) }}>;
$$ if b == "number"
@group(1) @binding(1) var<storage, read_write> y: array<{{ stored(out) }}>;
$$ else
@group(1) @binding(1) var<storage, read> b_data: array<{{ stored(b) }}>;
@group(1) @binding(2) var<storage, read_write> y: array<{{ stored(out) }}>;
$$ endif

fn combine(a: {{ number }}, b: {{ number }}) -> {{ number }} {
    return {{ expressions[name] }};
}

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
{$ include "walk.wgsl" $}
    let a = {{ converted("a_data[ai]", a, out) }};
$$ if b == "number"
    let b = bitcast<{{ number }}>(live(p.other));
$$ else
    let b = {{ converted("b_data[bi]", b, out) }};
$$ endif
    y[i] = {{ saved("combine(b, a)" if swapped else "combine(a, b)", out) }};
}
