"""Arithmetic on floats, element by element, and comparisons."""

from __future__ import annotations

import torch

from ..maker import Maker, family

ACTIVATIONS = (
    "F.relu({0})", "F.relu6({0})", "F.gelu({0})", "F.gelu({0}, approximate='tanh')", "F.silu({0})", "F.mish({0})",
    "F.leaky_relu({0}, 0.1)", "F.elu({0})", "F.celu({0}, 0.7)", "F.selu({0})", "F.softplus({0})", "F.hardswish({0})",
    "F.hardsigmoid({0})", "F.hardtanh({0}, -0.6, 0.9)", "F.logsigmoid({0})", "F.softsign({0})", "F.tanhshrink({0})",
    "torch.sigmoid({0})", "torch.tanh({0})",
)  # fmt: skip
UNARY = (
    "torch.abs({0})", "-{0}", "torch.exp({0}.clamp(max=3))", "torch.sqrt({0}.abs() + 0.1)", "torch.square({0})",
    "torch.rsqrt({0}.abs() + 0.5)", "torch.log({0}.abs() + 0.5)", "torch.sin({0})", "torch.cos({0})",
    "torch.reciprocal({0}.abs() + 0.5)", "torch.floor({0})", "torch.ceil({0})", "torch.round({0})", "torch.trunc({0})",
    "torch.sign({0})", "torch.erf({0})", "torch.log1p({0}.abs())", "torch.expm1({0}.clamp(max=2))", "torch.atan({0})",
    "torch.sinh({0}.clamp(-3, 3))", "torch.asinh({0})", "torch.frac({0})", "torch.exp2({0}.clamp(max=4))",
    "torch.log2({0}.abs() + 0.3)", "torch.log10({0}.abs() + 0.3)", "torch.pow({0}.abs() + 0.1, 1.5)", "{0} ** 2",
    "{0} ** 3", "{0}.clamp(-0.7, 1.1)", "{0}.clamp(min=-0.3)", "torch.nan_to_num({0})", "torch.clone({0})",
    "torch.zeros_like({0})", "torch.ones_like({0})", "torch.full_like({0}, 0.25)", "torch.logit(torch.sigmoid({0}))",
)  # fmt: skip
BINARY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / ({1}.abs() + 0.5)", "torch.maximum({0}, {1})",
    "torch.minimum({0}, {1})", "torch.add({0}, {1}, alpha=0.5)", "torch.sub({0}, {1}, alpha=2)",
    "torch.atan2({0}, {1}.abs() + 0.5)", "torch.pow({0}.abs() + 0.2, {1}.clamp(-2, 2))", "torch.rsub({0}, {1})",
    "torch.fmod({0}, {1}.abs() + 1)", "torch.lerp({0}, {1}, 0.3)", "torch.addcmul({0}, {1}, {1}, value=0.5)",
    "F.mse_loss({0}, {1}, reduction='none')", "torch.div({0}, {1}.abs() + 0.7, rounding_mode='floor')",
    "torch.where({0} > {1}, {0}, {1})", "torch.hypot({0}, {1})",
)  # fmt: skip
SCALAR = (
    "{0} + 1.5", "{0} - 0.25", "2 - {0}", "{0} * 3", "{0} * -0.5", "{0} / 3", "1 / ({0}.abs() + 0.6)", "{0} % 1.5",
    "{0} // 0.75", "{0} + True",
)  # fmt: skip
COMPARISONS = (">", ">=", "<", "<=", "==", "!=")
LOGIC = ("{0} & {1}", "{0} | {1}", "{0} ^ {1}", "torch.logical_and({0}, {1})", "torch.logical_or({0}, {1})")


@family(5)
def activation(m: Maker) -> None:
    m.add(m.choose(ACTIVATIONS), m.pick_float())


@family(5)
def unary(m: Maker) -> None:
    m.add(m.choose(UNARY), m.pick_float())


@family(3)
def scalar(m: Maker) -> None:
    m.add(m.choose(SCALAR), m.pick_float())


@family(8)
def binary(m: Maker) -> None:
    first = m.pick_float()
    if first is None:
        return
    second = m.pick_like(first) if m.chance(0.5) else m.pick_float()
    m.add(m.choose(BINARY), *((first, second) if m.chance(0.5) else (second, first)))


@family(2)
def with_parameter(m: Maker) -> None:
    """A parameter of the last dim, or one number."""
    x = m.pick_float()
    if x is None:
        return
    size = x.static(-1) if x.rank else None
    parameter = m.layer(f"nn.Parameter(torch.randn({size if size and m.chance(0.8) else 1}))")
    m.add(m.choose(("{0} * {1}", "{0} + {1}", "{1} - {0}", "torch.maximum({0}, {1})")), x, parameter)


@family(3)
def compare(m: Maker) -> None:
    first = m.pick(lambda v: v.dtype != torch.bool)
    if first is None:
        return
    sign = m.choose(COMPARISONS)
    if m.chance(0.5):
        m.add(f"{{0}} {sign} {m.choose((0, 1, 0.3, -0.5)) if first.is_float else m.choose((0, 1, 3))}", first)
    else:
        m.add(
            f"{{0}} {sign} {{1}}",
            first,
            m.pick_like(first) if m.chance(0.6) else m.pick(lambda v: v.dtype != torch.bool),
        )


@family(2)
def logic(m: Maker) -> None:
    first = m.pick(lambda v: v.dtype == torch.bool)
    if first is not None and m.chance(0.3):
        m.add(m.choose(("~{0}", "torch.logical_not({0})", "{0}.float()", "{0}.to(torch.int32)", "{0}.long()")), first)
    else:
        m.add(m.choose(LOGIC), first, m.pick(lambda v: v.dtype == torch.bool))


@family(2)
def choice(m: Maker) -> None:
    condition, x = m.pick(lambda v: v.dtype == torch.bool), m.pick_float()
    if x is None:
        return
    if condition is None or m.chance(0.3):
        m.add("torch.where({0} > {1}, {0}, {2})", x, m.pick_like(x), m.pick_like(x))
    elif m.chance(0.5):
        m.add("torch.where({0}, {1}, {2})", condition, x, m.pick_like(x))
    elif m.chance(0.5):
        m.add(f"{{1}}.masked_fill({{0}}, {m.choose((0.0, -1.0, 2))})", condition, x)
    else:
        m.add(f"torch.where({{0}}, {{1}}, {m.choose((0.0, 1.0, -2.5))})", condition, x)


@family(2)
def cast(m: Maker) -> None:
    """To another type; bf16 and i16 come back at once, because NumPy has no bf16 to compare."""
    x = m.pick_float()
    back = "torch.float16" if m.float_dtype == "float16" else "torch.float32"
    ways = (
        "{0}.to(torch.float16)", "{0}.to(torch.float32)", "{0}.to(torch.float64)", "{0}.to(torch.int32)",
        "{0}.to(torch.int64)", "{0}.bool()", f"({{0}}.to(torch.bfloat16) * 2).to({back})",
        f"{{0}}.to(torch.int16).to({back})", "{0}.clamp(0, 9).to(torch.uint8)", f"{{0}}.double().to({back})",
        "{0}.half().float()", "{0}.clamp(-9, 9).to(torch.int8)",
    )  # fmt: skip
    m.add(m.choose(ways), x)
