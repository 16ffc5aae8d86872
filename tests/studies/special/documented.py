"""The list of docs/files/special-values.csv: where special values may differ from eager PyTorch, with the reasons.

An entry that no longer differs fails the sweep, as does a difference that stands in none.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

LARGE = ("largest", "-largest", "mixed with largest")
INFINITE = ("inf", "-inf", "mixed", "mixed with largest")
UNKNOWN = ("nan", "mixed", "mixed with largest")


@dataclass(frozen=True)
class Documented:
    """Allowed differences: kinds of differences of these ops, for these planted values."""

    title: str
    reason: str
    ops: tuple[str, ...]
    values: tuple[str, ...] = ()  # none: whatever was planted
    kinds: tuple[str, ...] = ()  # none: any
    rare: bool = False  # only the whole sweep has a case that shows it

    def covers(self, op: str, value: str, kind: str) -> bool:
        return op in self.ops and value in (self.values or (value,)) and kind in (self.kinds or (kind,))


DOCUMENTED = (
    Documented(
        "A sum or a square overflows on the way",
        "The largest finite values leave the range of f32 in a partial sum, a product or a square. Which one does,"
        " depends on the order of summation and on fused multiply-adds, in eager as here.",
        (
            "adamw_step.default",
            "aten._adaptive_avg_pool2d.default",
            "aten._native_batch_norm_legit_no_training.default",
            "aten._weight_int8pack_mm.default",
            "aten.add.Tensor",
            "aten.addmm.default",
            "aten.bmm.default",
            "aten.convolution.default",
            "aten.cumsum.default",
            "aten.grid_sampler_2d.default",
            "aten.linear.default",
            "aten.mean.dim",
            "aten.mm.default",
            "aten.native_group_norm.default",
            "aten.native_layer_norm.default",
            "aten.rsub.Tensor",
            "aten.sub.Tensor",
            "aten.sum.dim_IntList",
            "aten.upsample_bilinear2d.vec",
            "aten.var.correction",
            "aten.var.dim",
            "custom_sdpa.default",
            "et_vk.adamw_step.default",
            "et_vk.apply_rotary_emb.default",
            "et_vk.apply_rotary_emb_hf.default",
            "et_vk.apply_rotary_emb_interleaved.default",
            "et_vk.conv_with_clamp.default",
            "et_vk.fused_ce.default",
            "et_vk.linear_dW.default",
            "et_vk.linear_q4gsw.default",
            "et_vk.linear_q4gsw_backward.default",
            "et_vk.linear_qcs4w.default",
            "et_vk.rms_norm.default",
            "et_vk.sdpa.default",
            "quantized_decomposed.quantize_per_tensor.default",
            "sdpa_with_kv_cache.default",
            "webpte.adapter_down",
            "webpte.adapter_up",
            "webpte.convolution",
            "webpte.elementwise",
            "webpte.experts",
            "webpte.linear",
            "webpte.linear_q4",
            "webpte.matmul",
            "webpte.permuted_quantize",
            "webpte.rms_norm_residual",
            "webpte.rotary_attention",
            "webpte.sample",
            "webpte.slot_attention",
            "webpte.slot_convolution",
            "webpte.slot_delta_rule",
            "webpte.slot_rotary",
        ),
        LARGE,
    ),
    Documented(
        "Affine 4-bit weights",
        "Inputs are multiplied by the codes of a group before its scale and zero point are applied, and the sum of"
        " the inputs by the zero point or the offset. Infinite and very large inputs overflow there, or meet a zero,"
        " where eager multiplies them by the dequantized weight.",
        ("et_vk.linear_weight_int4.default", "webpte.linear_q4"),
        kinds=("NaN made", "infinity"),
    ),
    Documented(
        "Infinite weights of a norm",
        "Eager folds mean, scale and weight into one factor and one addend, so infinite weights and biases meet there"
        " as inf - inf, and a zero may have the other sign. The mean it returns of a row with an infinity is NaN; here"
        " it is that infinity.",
        (
            "aten._native_batch_norm_legit_no_training.default",
            "aten.native_group_norm.default",
            "aten.native_layer_norm.default",
        ),
        kinds=("NaN lost", "sign of zero"),
    ),
    Documented(
        "Which zero",
        "Of 0 and -0 these take the greater or lesser; eager takes the first or the second, depending on the position."
        " An interpolated zero has the sign of what it is made of. A driver may turn a conversion to i32 and back into"
        " trunc, which keeps -0. A sum of nothing is 0, and so is what -0 is added to.",
        (
            "aten.addmm.default",
            "aten.cumsum.default",
            "aten.grid_sampler_2d.default",
            "aten.hardtanh.default",
            "aten.linear.default",
            "aten.maximum.default",
            "aten.minimum.default",
            "aten.upsample_bilinear2d.vec",
            "webpte.adapter_up",
            "webpte.elementwise",
            "webpte.linear_q4",
            "webpte.slot_convolution",
            "webpte.slot_delta_rule",
        ),
        kinds=("sign of zero",),
    ),
    Documented(
        "Interpolation beside NaN and infinity",
        "Where a place falls on an element, its neighbor has the weight zero, and zero times infinity is NaN. Whether"
        " it is multiplied depends on how the weight was rounded, in eager as here.",
        ("aten.upsample_bilinear2d.vec",),
        (*INFINITE, "nan"),
        ("NaN lost", "NaN made"),
        rare=True,
    ),
    Documented(
        "Infinite arguments of gelu",
        "NaN, as in eager's vectorized kernel. Elements that its vectors leave over are computed another way there.",
        ("aten.gelu.default",),
        INFINITE,
        ("NaN made",),
        rare=True,
    ),
    Documented(
        "Remainder by a number",
        "Exact here; eager's vectorized kernels give NaN where the quotient is not exact in f32.",
        ("aten.fmod.Scalar", "aten.remainder.Scalar"),
        LARGE,
        ("NaN lost",),
    ),
    Documented(
        "Floats out of the range of an integer",
        "Undefined in eager, which on x86 gives -2147483648; here they become the nearest end of the range.",
        (
            "aten._to_copy.default",
            "aten.copy.default",
            "dim_order_ops._to_dim_order_copy.default",
            "webpte.elementwise",
        ),
        (*INFINITE, "nan", "largest", "-largest"),
        ("value",),
    ),
    Documented(
        "Attention to hidden keys and infinite scores",
        "A row all of whose keys are hidden by minus infinity is zero, as in scaled_dot_product_attention, not NaN as"
        " in a softmax; a key with a score of minus infinity is hidden, and not looked at even if it is NaN."
        " Scores are taken relative to the highest so far, which may be infinite: inf - inf.",
        (
            "custom_sdpa.default",
            "et_vk.sdpa.default",
            "sdpa_with_kv_cache.default",
            "webpte.rotary_attention",
            "webpte.slot_attention",
        ),
        (*INFINITE, "nan"),
        ("NaN lost", "NaN made", "infinity", "value"),
    ),
    Documented(
        "Padding of a convolution",
        "Padding is left out of the sum; multiplied with a weight that is infinite or NaN it would be NaN.",
        ("webpte.convolution",),
        (*INFINITE, "nan"),
        ("NaN lost",),
    ),
    Documented(
        "Infinite values of the delta rule",
        "A query reads the state before a row changes it, and its product with the key times the change is added. An"
        " infinite change stays infinite there; in the changed state, infinities of both signs would add up to NaN.",
        ("webpte.slot_delta_rule",),
        INFINITE,
        ("NaN lost",),
    ),
    Documented(
        "Quantized NaN and infinity",
        "Neither has a code: eager converts NaN to an integer, which is undefined; here it becomes the lowest code. A"
        " range with NaN in it is that of the other elements; one with an infinity has no scale.",
        (
            "et_vk.conv2d_q8ta_q8csw.default",
            "et_vk.linear_dq8ca_q4gsw.default",
            "et_vk.linear_q8ta_q8csw.default",
            "quantized_decomposed.choose_qparams.tensor",
            "quantized_decomposed.choose_qparams_per_token_asymmetric.default",
            "quantized_decomposed.quantize_per_channel.default",
            "quantized_decomposed.quantize_per_tensor.default",
            "quantized_decomposed.quantize_per_tensor.tensor",
            "quantized_decomposed.quantize_per_token.default",
            "torchao.choose_qparams_affine.default",
            "torchao.quantize_affine.default",
            "webpte.int8_dynamic_convolution",
            "webpte.int8_image_codes",
            "webpte.linear_q4",
            "webpte.permuted_quantize",
        ),
        (*INFINITE, "nan"),
        ("NaN lost", "value"),
    ),
)


def documented(op: str, value: str, kind: str) -> list[Documented]:
    return [entry for entry in DOCUMENTED if entry.covers(op, value, kind)]


def undocumented_and_unused(result: Iterable[tuple[str, str, str]]) -> tuple[set[tuple[str, str, str]], set[str]]:
    """Return the differences by op, value and kind that are not listed, and the entries that none needs."""
    unused = {f"{entry.title}: {op}" for entry in DOCUMENTED for op in entry.ops}
    surprising = set()
    for op, value, kind in result:
        entries = documented(op, value, kind)
        unused -= {f"{entry.title}: {op}" for entry in entries}
        if not entries:
            surprising.add((op, value, kind))
    return surprising, unused


def csv_table() -> str:
    """Return the list as docs/files/special-values.csv has it: a row for each op and difference."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("op", "what may differ", "planted values", "why"))
    rows = ((op, entry.title, "; ".join(entry.values), entry.reason) for entry in DOCUMENTED for op in entry.ops)
    writer.writerows(sorted(rows))
    return text.getvalue()
