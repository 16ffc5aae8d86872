{# The functions of elementwise programs: `functions` lists those that a program uses, each as (name, number), where
   number is f32 or i32, the type it computes in. (exp, f32) becomes exp_f32. This is the only place with formulas.
   A row has the parameters, the expression in f32 and the one in i32; T is the number type. #}
{$ set one = "x: T" $}
{$ set two = "a: T, b: T" $}
{$ set formulas = {
    "copy": [one, "x", "x"],
    "add": [two, "a + b", "a + b"],
    "add_scaled": [two ~ ", alpha: T", "a + alpha * b", "a + alpha * b"],
    "sub": [two, "a - b", "a - b"],
    "sub_scaled": [two ~ ", alpha: T", "a - alpha * b", "a - alpha * b"],
    "mul": [two, "a * b", "a * b"],
    "div": [two, "a / b", "a / b"],
    "div_floor": [two, "floored_quotient_f32(a, b)", "floored_quotient_i32(a, b)"],
    "div_trunc": [two, "truncated_quotient_f32(a, b)", "truncated_quotient_i32(a, b)"],
    "remainder": [two, "floored_remainder_f32(a, b)", "floored_remainder_i32(a, b)"],
    "fmod": [two, "truncated_remainder_f32(a, b)", "truncated_remainder_i32(a, b)"],
    "pow": [two, "power_f32(a, b)", "power_i32(a, b)"],
    "minimum": [two, "select(select(a, b, order_key(b) < order_key(a) || is_nan(b)), a, is_nan(a))", "min(a, b)"],
    "maximum": [two, "select(select(a, b, order_key(b) > order_key(a) || is_nan(b)), a, is_nan(a))", "max(a, b)"],
    "and": [two, none, "a & b"],
    "or": [two, none, "a | b"],
    "xor": [two, none, "a ^ b"],
    "compare": [two ~ ", accepted: i32", "i32((relation_f32(a, b) & accepted) != 0)",
                "i32((relation_i32(a, b) & accepted) != 0)"],
    "where": ["condition: i32, a: T, b: T", "select(b, a, condition != 0)", "select(b, a, condition != 0)"],
    "not": [one, none, "1 - x"],
    "invert": [one, none, "~x"],
    "abs": [one, "abs(x)", "abs(x)"],
    "neg": [one, "-x", "-x"],
    "sign": [one, "sign(x)", "sign(x)"],
    "round": [one, "round(x)", "x"],
    "ceil": [one, "ceil(x)", "x"],
    "floor": [one, "floor(x)", "x"],
    "trunc": [one, "trunc(x)", "x"],
    "round_bf16": [one, "select(bitcast<f32>((bitcast<u32>(x) + 0x7fffu + ((bitcast<u32>(x) >> 16u) & 1u)) & " ~
                        "0xffff0000u), x, is_nan(x))", none],
    "relu": [one, "select(x, 0.0, order_key(x) < -1)", "max(x, 0)"],
    "clamp": [one ~ ", low: i32, high: i32", "from_order_key(min(max(order_key(x), low), high))",
              "min(max(x, low), high)"],
    "exp": [one, "exp(clamp(x, -110.0, 110.0))", none],
    "log": [one, "logarithm(x)", none],
    "log10": [one, "logarithm(x) * 0.4342944819", none],
    "sqrt": [one, "sqrt(x)", none],
    "rsqrt": [one, "inverseSqrt(x)", none],
    "reciprocal": [one, "1.0 / x", none],
    "sin": [one, "sine(x, 0)", none],
    "cos": [one, "sine(x, 1)", none],
    "tanh": [one, "hyperbolic_tangent(x)", none],
    "erf": [one, "error_function(x)", none],
    "sigmoid": [one, "logistic(x)", none],
    "silu": [one, "x * logistic(x)", none],
    "hardswish": [one, "x * clamp(x + 3.0, 0.0, 6.0) / 6.0", none],
    "gelu": [one, "select(x * (1.0 + error_function(0.70710678 * x)) * 0.5, nan_like(x), is_infinite(x))", none],
    "gelu_tanh": [one, "0.5 * x * (1.0 + hyperbolic_tangent(0.7978845608 * (x + 0.044715 * x * x * x)))", none],
    "leaky_relu": [one ~ ", slope: f32", "select(x * slope, x, x > 0.0)", none],
    "elu": [one ~ ", alpha: f32, scale: f32, input_scale: f32",
            "scale * select(alpha * exp_minus_one(max(x * input_scale, -110.0)), x, x > 0.0)", none],
    "hardshrink": [one ~ ", threshold: f32", "select(x, 0.0, abs(x) <= threshold)", none],
} $}
{# Which helpers they call. #}
{$ set helpers = {
    "elementwise/trigonometry.wgsl": ["sin", "cos"],
    "elementwise/errorfunction.wgsl": ["gelu", "erf"],
    "elementwise/exponential.wgsl": ["elu"],
    "elementwise/hyperbolic.wgsl": ["tanh", "gelu_tanh"],
    "elementwise/logistic.wgsl": ["sigmoid", "silu"],
    "elementwise/logarithm.wgsl": ["log", "log10"],
} $}
{$ set numbered_helpers = {
    "elementwise/division.wgsl": ["div_floor", "div_trunc", "remainder", "fmod"],
    "elementwise/power.wgsl": ["pow"],
    "elementwise/relation.wgsl": ["compare"],
} $}
{$ include "floats.wgsl" $}
$$ for helper, users in helpers.items()
$$ if functions | map("first") | select("in", users) | first is defined

{$ include helper $}
$$ endif
$$ endfor
$$ for helper, users in numbered_helpers.items()
$$ for number in ("f32", "i32")
$$ if functions | selectattr(1, "equalto", number) | map("first") | select("in", users) | first is defined

{$ include helper $}
$$ endif
$$ endfor
$$ endfor
$$ for name, number in functions
$$ set parameters, in_floats, in_integers = formulas[name]

fn {{ name }}_{{ number }}({{ parameters | replace("T", number) }}) -> {{ "i32" if name == "compare" else number }} {
$$ if number == "f32" and parameters.startswith(one) and name != "copy"
    if (is_nan(x)) {
        return {{ "0.0" if name == "sign" else "x" }};
    }
$$ endif
    return {{ in_floats if number == "f32" else in_integers }};
}
$$ endfor
