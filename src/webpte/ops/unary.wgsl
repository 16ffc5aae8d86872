{$ include "kernel.wgsl" $}
{$ from "types.wgsl" import converted, number_type, saved, stored $}
{$ set number = number_type(out) $}
{$ set for_floats = {
    "abs": "abs(x)",
    "neg": "-x",
    "sign": "sign(x)",
    "round": "round(x)",
    "ceil": "ceil(x)",
    "floor": "floor(x)",
    "trunc": "trunc(x)",
    "exp": "exp(clamp(x, -110.0, 110.0))",
    "log": "log(x)",
    "log10": "log(x) * 0.4342944819",
    "sqrt": "sqrt(x)",
    "rsqrt": "inverseSqrt(x)",
    "reciprocal": "1.0 / x",
    "sin": "sine(x, 0)",
    "cos": "sine(x, 1)",
    "tanh": "hyperbolic_tangent(x)",
    "erf": "error_function(x)",
    "sigmoid": "logistic(x)",
    "silu": "x * logistic(x)",
    "hardswish": "x * clamp(x + 3.0, 0.0, 6.0) / 6.0",
    "gelu": "0.5 * x * (1.0 + error_function(0.70710678 * x))",
    "gelu_tanh": "0.5 * x * (1.0 + hyperbolic_tangent(0.7978845608 * (x + 0.044715 * x * x * x)))",
    "clamp": "from_order_key(min(max(order_key(x), p.low), p.high))",
    "leaky_relu": "select(x * p.value, x, x > 0.0)",
    "hardshrink": "select(x, 0.0, abs(x) <= p.value)",
} $}
{$ set for_integers = {
    "abs": "abs(x)",
    "neg": "-x",
    "sign": "sign(x)",
    "round": "x",
    "ceil": "x",
    "floor": "x",
    "trunc": "x",
    "clamp": "min(max(x, p.low), p.high)",
    "not": "1 - x" if out == "bool" else "~x",
} $}
$$ if number == "f32"
{$ include "floats.wgsl" $}
$$ endif
$$ if name in ("sin", "cos")
{$ include "trigonometry.wgsl" $}
$$ elif name in ("gelu", "erf")
{$ include "errorfunction.wgsl" $}
$$ elif name in ("tanh", "gelu_tanh")
{$ include "hyperbolic.wgsl" $}
$$ elif name in ("sigmoid", "silu")
fn logistic(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(min(-x, 88.0)));
}
$$ endif

@group(1) @binding(0) var<storage, read> x_data: array<{{ stored(x) }}>;
@group(1) @binding(1) var<storage, read_write> y: array<{{ stored(out) }}>;

fn transform(x: {{ number }}) -> {{ number }} {
$$ if number == "f32"
    if (is_nan(x)) {
        return {{ "0.0" if name == "sign" else "x" }};
    }
    return {{ for_floats[name] }};
$$ else
    return {{ for_integers[name] }};
$$ endif
}

@compute @workgroup_size(wg)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = thread_index(id, groups);
    if (i >= p.threads) {
        return;
    }
    y[i] = {{ saved("transform(" ~ converted("x_data[i]", x, out) ~ ")", out) }};
}
