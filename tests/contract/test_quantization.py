"""Quantized exports against transformers with their weights, and what quantizing promises about its codes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

import webpte
from tests.support.harness.cases import assert_close
from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_but
from tests.support.models import gguf_talker
from tests.support.models.dequantized import program_values, quantized_weights, round_inputs, transformers_model
from webpte.builder.compensation import InputMoments, compensated
from webpte.builder.exact import exact_codes
from webpte.builder.options import LLMOptions, weight_bytes
from webpte.builder.quantize import Grouped, extremes, grouped
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.cli import main
from webpte.export import ExportWarning, export_llm
from webpte.llm import LLM


def drawn(rows: int, columns: int, seed: int) -> np.ndarray:
    """Weights with outliers, a group of one sign, one of zeros and one that is almost nothing."""
    weight = np.random.default_rng(seed).standard_normal((rows, columns), np.float32) ** 3
    weight[0], weight[1, :8], weight[2, :8] = np.abs(weight[0]), 0.0, 1e-30
    return weight


def by_the_maximum(weight: np.ndarray, group: int, bits: int) -> Grouped:
    low, high = extremes(bits)
    groups = weight.reshape(len(weight), -1, group)
    scales = np.abs(groups).max(-1).clip(1e-12) * np.float32(2 / (high - low))
    codes = np.rint(groups / scales[..., None]).clip(low, high).reshape(weight.shape).astype(np.int8)
    return Grouped(codes, scales)


def squares(weight: np.ndarray, codes: Grouped) -> np.ndarray:
    """Return the squared error of each group, (N, G)."""
    return ((weight - codes.values()) ** 2).reshape(len(weight), -1, codes.group).sum(-1)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [4, 8, 32])
def test_least_squares_scales_not_worse_than_maximum(bits, group):
    for seed in range(5):
        weight = drawn(12, 32, seed)
        fitted, plain = grouped(weight, bits, group), by_the_maximum(weight, group, bits)
        assert np.isfinite(fitted.scales).all() and (fitted.scales != 0).all()
        ours, theirs = squares(weight, fitted), squares(weight, plain)
        assert (ours <= theirs * (1 + 1e-5) + 1e-30).all()
        assert ours.sum() < theirs.sum() * (0.9 if bits == 4 else 1)


def by_many_clips(weight: np.ndarray, group: int, bits: int) -> np.ndarray:
    """Return the least squares of each group, (N, G), with the best of many clips and the scale that fits its codes."""
    groups = weight.reshape(len(weight), -1, group)
    largest, least = np.abs(groups).max(-1), np.full(groups.shape[:2], np.inf)
    for clip in np.linspace(-1.1, 1.1, 80):
        codes = np.rint(groups / (largest * clip / 2 ** (bits - 1))[..., None]).clip(*extremes(bits))
        scale = (codes * groups).sum(-1) / (codes * codes).sum(-1)
        least = np.minimum(least, ((groups - codes * scale[..., None]) ** 2).sum(-1))
    return least


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 8), (8, 512)])
def test_least_squares_few_clips_near_many(bits, group):
    """Of groups that are laid out either way, in parts that threads share."""
    weight = np.random.default_rng(3).standard_normal((300, 512), np.float32)
    ours = squares(weight, grouped(weight, bits, group)).sum()
    assert ours < 1.01 * by_many_clips(weight, group, bits).sum()


def test_least_squares_negative_scale_extends_positive_range():
    weight = np.array([[8.0, 1.0, -1.0, 2.0]], np.float32)
    fitted = grouped(weight, 4, 4)
    assert fitted.scales[0, 0] < 0 and np.array_equal(fitted.values(), weight)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [8, 16])
def test_compensation_lowers_the_error_of_results(bits, group):
    random = np.random.default_rng(1)
    weight = drawn(24, 48, 0)
    inputs = (random.standard_normal((300, 48)) @ random.standard_normal((48, 48))).astype(np.float32)
    inputs[:, 5] = 0.0  # an input that the text never uses
    moments = InputMoments(inputs.T @ inputs)
    rounded, again = (compensated(weight, group, bits, moments) for _ in range(2))
    assert np.array_equal(rounded.codes, again.codes) and np.array_equal(rounded.scales, again.scales)
    assert bits == 8 or np.array_equal(rounded.scales, rounded.scales.astype(np.float16))
    plain = moments.error(weight, grouped(weight, bits, group))
    assert moments.error(weight, rounded).sum() < 0.7 * plain.sum()


def save_checkpoint(folder):
    """A small Llama with its tokenizer, in Hugging Face's form."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96, hidden_size=64, intermediate_size=88, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, initializer_range=0.2, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({chr(32 + i): i for i in range(96)}, unk_token="?"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({}))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    save_checkpoint(folder)
    return folder


RECIPES: dict[str, dict[str, Any]] = {
    "4w": {"quantize": "4w", "group_size": 16},
    "8w": {"quantize": "8w", "embedding": "4,32", "calibrate": False},
    "8da4w": {"quantize": "8da4w", "group_size": 8, "embedding": "none", "lm_head": "4"},
}
# 88 columns fit no group of 16: w2 is in 8 bits then. The embedding and the head are among those in 8 bits.
KINDS = {"4w": {"4w": 12, "8w": 4}, "8w": {"8w": 15, "4w": 1}, "8da4w": {"8da4w": 15}}


@pytest.mark.parametrize("name", slow_but(["8w"], RECIPES))
def test_export_quantized_logits_equal_transformers(checkpoint, tmp_path, name):
    """Also where rows of several sequences are computed at once, which tables of bytes and 8-bit layers allow."""
    options: dict[str, Any] = {"max_context": 256, "max_tokens": 128, **RECIPES[name]}  # calibrated in few calls
    written = export_llm(checkpoint, tmp_path / "m.pte", **options)
    source = read_checkpoint(checkpoint)
    assert Counter(kind.name for _, kind in quantized_weights(source, written).values()) == KINDS[name]
    assert weight_bytes(source, LLMOptions(**options).recipe(source)) < written.stat().st_size
    tokens = [(7 * i + 3) % 96 for i in range(20)]
    model = transformers_model(checkpoint, program_values(source, written))
    round_inputs(model, source, written)
    with torch.no_grad():
        expected = model(torch.tensor([tokens])).logits[0].numpy()
    with LLM.load(written) as llm:
        assert llm.batching_unsupported_reason is None
        talk, position = llm.sequence(), 0
        for count in (13, 1, 1, 5):
            piece = tokens[position : position + count]
            position += count
            want = expected[position - 1]
            assert_close(talk.logits(piece)[0], want, 1e-4 * np.abs(want).max(), 0, f"{name}, {position} tokens")


@pytest.mark.parametrize("group", [32, 8])
def test_values_of_a_quantized_gguf_are_kept_bit_for_bit(group):
    """Q4_0 is a step in f16 times -8 to 7, for groups of 32: 4w holds it, in groups that divide these."""
    import gguf

    weight = np.random.default_rng(0).standard_normal((12, 128)).astype(np.float32) ** 3
    weight[0, :32] = 0.0
    stored = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q4_0)
    values = gguf.quants.dequantize(stored, gguf.GGMLQuantizationType.Q4_0)
    codes = exact_codes(values, 4, group)
    assert codes is not None and codes.group == group
    assert np.array_equal(codes.values(), values)
    asymmetric = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q4_1)
    others = gguf.quants.dequantize(asymmetric, gguf.GGMLQuantizationType.Q4_1)
    assert exact_codes(others, 4, group) is None and exact_codes(weight, 4, group) is None
    coarse = exact_codes(values, 4, 64)  # two steps in a group
    assert coarse is None


def torchao_linear(weight: torch.Tensor, bits: int) -> torch.nn.Linear:
    """By torchao's own quantizer: 4 bits in groups of 32, or 8 bits with a scale a row."""
    from torchao.quantization.granularity import PerAxis, PerGroup
    from torchao.quantization.quant_api import IntxWeightOnlyConfig, quantize_

    layers = torch.nn.Sequential(torch.nn.Linear(weight.shape[1], len(weight), bias=False))
    layers[0].weight.data = weight.clone()
    kind, scales = (torch.int4, PerGroup(32)) if bits == 4 else (torch.int8, PerAxis(0))
    quantize_(layers, IntxWeightOnlyConfig(weight_dtype=kind, granularity=scales))
    return layers[0]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [1.0, 1e-30, 1e37])
def test_codes_and_scales_of_torchao_are_found_in_its_values_bit_for_bit(bits, size):
    weight = torch.randn((48, 128), generator=torch.Generator().manual_seed(0)) ** 3 / 100 * size
    weight[3] = -weight[3].abs()
    stored = torchao_linear(weight, bits).weight
    result = exact_codes(stored.dequantize().numpy(), bits, 32 if bits == 4 else 128)
    assert result is not None
    assert np.array_equal(result.codes, stored.qdata.numpy())
    assert np.array_equal(result.scales, stored.scale.reshape(result.scales.shape).numpy())


@pytest.mark.parametrize("dense", [True, False])
def test_export_keeps_torchao_codes_and_scales(tmp_path, dense):
    """Of its own kind of tensor, and of ordinary weights that it made."""
    linear = torchao_linear(torch.randn((48, 128), generator=torch.Generator().manual_seed(1)), 4)
    codes, scales = linear.weight.qdata, linear.weight.scale
    if dense:
        linear.weight = torch.nn.Parameter(linear.weight.dequantize(), requires_grad=False)
    x = torch.randn((5, 128), generator=torch.Generator().manual_seed(2))
    webpte.export.lower(torch.nn.Sequential(linear), (x,), path=tmp_path / "linear.pte", quantize="4w", group_size=32)
    stored = (tmp_path / "linear.pte").read_bytes()
    assert scales.T.contiguous().numpy().tobytes() in stored
    pairs = (codes + 8).to(torch.uint8).numpy()
    packed = (pairs[:, 0::2] << 4 | pairs[:, 1::2], pairs[:, 1::2] << 4 | pairs[:, 0::2])  # either half may be first
    assert any(each.tobytes() in stored for each in packed)


@pytest.mark.parametrize("value", [1e37, float("inf"), float("nan")])
def test_weights_that_are_too_large_to_quantize_are_refused_by_name(tmp_path, value):
    linear = torch.nn.Linear(128, 48)
    with torch.no_grad():
        linear.weight[5, 7] = value
    with raises(webpte.UnsupportedError, "0.weight", "1e+10", f"{value:g}", code="weight_range") as caught:
        webpte.export.lower(
            torch.nn.Sequential(linear), (torch.zeros(1, 128),), path=tmp_path / "linear.pte", quantize="4w"
        )
    assert caught.value.items == ("0.weight",)
    assert not (tmp_path / "linear.pte").exists()


GGUF: dict[str, Any] = {"max_context": 48, "max_tokens": 16, "quantize": "4w", "calibrate": False, "embedding": "none"}


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr("webpte.builder.quality.evaluation_text", lambda: "Some text. " * 4)


def test_export_requantized_weights_are_reported(tmp_path, recwarn, short):
    again = gguf_talker.write(tmp_path / "again.gguf", kind="Q4_1")
    with pytest.warns(ExportWarning, match=r"15 layers .*Q4_1 .*4w .* 32") as messages:
        export_llm(again, tmp_path / "again.pte", **GGUF, lm_head="4")
    assert {warning.filename for warning in messages} == {__file__}


@pytest.mark.parametrize("group", [32, 8])
def test_export_of_q4_0_keeps_values(tmp_path, recwarn, short, group):
    kept = gguf_talker.write(tmp_path / "kept.gguf", kind="Q4_0")
    path = export_llm(kept, tmp_path / "kept.pte", **GGUF, lm_head="4", group_size=group, quality=True)
    assert not [warning for warning in recwarn if issubclass(warning.category, ExportWarning)]
    report = json.loads((tmp_path / "kept.quality.json").read_text())
    note = f"15 layers with their exact values: Q4_0 in the checkpoint, 4w in groups of {group} in the program"
    assert report["quantized"]["notes"] == [note] and report["kl"]["value"] < 1e-9
    source = read_checkpoint(kept)
    for name, (codes, _) in quantized_weights(source, path).items():
        assert np.array_equal(codes.values(), source.weights.read(f"{name}.weight"))


def test_export_command_reports_layers_and_removes_old_quality(tmp_path, capsys, short):
    arguments = ["export", str(gguf_talker.write(tmp_path / "m.gguf", kind="Q4_1")), "-o", str(tmp_path / "m.pte")]
    arguments += ["--quantize", "4w", "--no-calibrate", "--embedding", "8", "--max-context", "48"]
    arguments += ["--max-prefill", "16"]
    warned = "warning: 14 layers quantized a second time: Q4_1 in the checkpoint, 4w in groups of 32 in the program"
    assert main([*arguments, "--quality"]) == 0
    said = capsys.readouterr()
    figures = json.loads((tmp_path / "m.quality.json").read_text())["quantized"]
    assert figures["kinds"] == {"4w in groups of 32": 14, "8w": 2} and warned in said.err
    text = f"{figures['bits_per_weight']:.2f} bits per weight; layers: 14 × 4w in groups of 32, 2 × 8w"
    assert text in said.out.splitlines() and "warning" not in said.out
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert warned in said.err and "bits per weight" not in said.out
    assert not (tmp_path / "m.quality.json").exists()
