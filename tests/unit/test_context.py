"""The context of programs: how it is chosen and stored, and the errors about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.fake_runner import FakeLLM
from tests.unit.test_build_program import checkpoint  # noqa: F401 - a fixture
from webpte import container
from webpte.builder import build_program, programs
from webpte.builder.context import DEFAULT_MAX_CONTEXT, choose_sizes
from webpte.checkpoints.architecture import LayerSpec
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.checkpoints.family import Checkpoint
from webpte.errors import ContextFullError, FormatError, InputError
from webpte.llm import LLM
from webpte.llm.context import LIMIT_METHOD, REASONS, ContextLimit, limit_from_json, limit_from_numbers
from webpte.sources import resolve_program

BYTES = 2 * 2 * 16 * 2 * 4  # of a token of the checkpoint: layers, KV heads, head dim, keys and values, f32


@pytest.fixture
def source(checkpoint: Path) -> Checkpoint:  # noqa: F811
    return read_checkpoint(checkpoint)


def trained_for(source: Checkpoint, context: int | None, **changes: Any) -> Checkpoint:
    return replace(source, context=context, architecture=replace(source.architecture, **changes))


@pytest.mark.parametrize(
    ("own", "tokens", "reason"),
    [(128, 128, "model"), (8192, 8192, "model"), (131072, 8192, "default"), (None, 8192, "default"), (1, 2, "default")],
)
def test_context_by_default_is_the_models_own_up_to_the_default_limit(source, own, tokens, reason):
    sizes = choose_sizes(trained_for(source, own))
    assert sizes.context == ContextLimit(tokens, reason, own)
    assert sizes.max_tokens == min(256, tokens)


def test_context_that_is_requested_is_taken_beyond_the_models_own(source):
    sizes = choose_sizes(source, 4096, 100)
    assert sizes.context == ContextLimit(4096, "requested", 128) and sizes.max_tokens == 100


@pytest.mark.parametrize(
    ("memory", "tokens"),
    [(4 * 8192 * BYTES, 8192), (4 * 8192 * BYTES - 1, 4096), (4 * 1024 * BYTES, 1024), (0, 512)],
)
def test_context_default_halves_until_cache_fits_quarter_of_memory(source, memory, tokens):
    limit = choose_sizes(trained_for(source, 8192), memory=memory).context
    assert limit == ContextLimit(tokens, "model" if tokens == 8192 else "memory", 8192)


def test_context_that_is_requested_is_not_limited_by_memory(source):
    assert choose_sizes(source, 4096, memory=0).context.tokens == 4096


def test_context_of_capped_attention_is_that_of_other_models(source):
    assert choose_sizes(trained_for(source, 8192, attention_cap=50.0)).context == ContextLimit(8192, "model", 8192)


def test_cache_bytes_counts_every_position_of_attention_layers_only(source):
    model = source.architecture
    windowed = replace(model, layers=(LayerSpec(window=100), LayerSpec()))
    assert model.cache_bytes(1000) == windowed.cache_bytes(1000) == 1000 * BYTES
    assert replace(model, layers=(LayerSpec(taps=3), LayerSpec())).cache_bytes(1000) == 1000 * BYTES // 2


@pytest.mark.parametrize(("context", "tokens"), [(1, None), (16, 17), (None, 1)])
def test_sizes_out_of_range_are_refused(source, context, tokens):
    with raises(InputError):
        choose_sizes(source, context, tokens)


# ---------------------------------------------------------------- files


def stated(path: Path) -> ContextLimit:
    """Return the limit that a program states."""
    with container.MappedFile(path) as file:
        methods = {method.name: method.values for method in container.parse_program(file).methods}
    values = [value for name in ("get_max_context_len", LIMIT_METHOD) for value in methods[name]]
    tokens, *more = (value.value for value in values if isinstance(value, container.IntValue))
    return limit_from_numbers(tokens, tuple(more))


def test_program_states_its_context_and_the_reason(checkpoint, tmp_path):  # noqa: F811
    assert stated(build_program(checkpoint, tmp_path / "m.pte")) == ContextLimit(128, "model", 128)
    short = build_program(checkpoint, tmp_path / "m.pte", max_context=40, max_tokens=24)
    assert stated(short) == ContextLimit(40, "requested", 128)


def test_cached_program_has_a_key_for_each_requested_context(checkpoint, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    default, short = resolve_program(checkpoint), resolve_program(checkpoint, max_context=40)
    assert default != short and [stated(path).tokens for path in (default, short)] == [128, 40]
    assert resolve_program(checkpoint, max_context=40) == short and len(programs.list_programs()) == 2


def test_cached_program_limited_by_memory_rebuilt_when_memory_is_free(checkpoint, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("webpte.builder.context.MIN_CONTEXT", 16)

    def free(nbytes: int) -> ContextLimit:
        monkeypatch.setattr(programs, "free_memory", lambda: (nbytes, "free memory"))
        return stated(resolve_program(checkpoint))

    weights = 50_000  # less than those of the program
    assert free(weights) == ContextLimit(16, "memory", 128)
    assert free(int(1.9 * weights)) == ContextLimit(16, "memory", 128)  # not worth a look
    assert free(100 * weights) == ContextLimit(128, "model", 128)
    assert free(weights) == ContextLimit(128, "model", 128)  # as it was built


@pytest.mark.parametrize("numbers", [(0,), (9, 0), (-1, 0), (1, -1), (1, 2, 3)])
def test_program_with_an_invalid_limit_is_refused(numbers):
    with raises(FormatError, code="context_limit"):
        limit_from_numbers(128, numbers)


@pytest.mark.parametrize("data", [{}, {"reason": "luck", "model": 1}, {"reason": "model", "model": -1}])
def test_bundle_with_an_invalid_limit_is_refused(data):
    with raises(FormatError, code="context_limit"):
        limit_from_json(128, data)


@pytest.mark.parametrize("reason", REASONS)
def test_limit_survives_programs_and_bundles(reason):
    for model in (None, 8192):
        limit = ContextLimit(128, reason, model)
        assert limit_from_numbers(128, tuple(limit.numbers())) == limit == limit_from_json(128, limit.to_json())
    assert limit_from_numbers(128, ()) == ContextLimit(128, "file") == limit_from_json(128, None)


# ---------------------------------------------------------------- errors


def test_error_names_the_limit_and_the_option_that_raises_it():
    errors = {}
    for reason in REASONS:
        error = errors[reason] = ContextLimit(1024, reason, 131072).error(3031)
        assert isinstance(error, ContextFullError) and error.argument == "prompt" and error.code == "context_full"
        assert "1,024" in str(error.expected) and "3,031" in str(error.got) and "--max-context" in str(error.hint)
    assert len({error.expected for error in errors.values()}) == len(REASONS)
    for reason in ("requested", "default", "memory"):
        assert "131,072" in str(errors[reason].hint)


def test_prompt_longer_than_the_context_raises_the_error_of_its_limit():
    llm = FakeLLM()
    llm.text_model.context_limit = ContextLimit(llm.capacity, "memory", 8192)
    with raises(ContextFullError) as caught:
        llm.generate(tokens=[1] * llm.capacity)
    assert str(caught.value) == str(llm.context_limit.error(llm.capacity))
    with raises(ContextFullError) as caught:
        llm.sequence().logits([1] * (llm.capacity + 1))
    assert llm.context_limit.hint in str(caught.value)


def test_max_context_of_a_program_is_refused(tmp_path):
    with raises(InputError, code="fixed_context"):
        LLM(tmp_path / "m.pte", max_context=4096)
    with raises(InputError):
        LLM("m.gguf", max_context=1)


def test_default_limit_is_the_documented_one():
    assert DEFAULT_MAX_CONTEXT == 8192
