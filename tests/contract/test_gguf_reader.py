"""Lengths, counts, types, offsets and strings of a GGUF file are checked before they are used."""

from __future__ import annotations

import struct

import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.models import gguf_talker
from webpte.checkpoints.checkpoint import read_checkpoint, write_tokenizer_files
from webpte.checkpoints.gguf_reader import read_header
from webpte.llm.defaults import read_generation_config


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return gguf_talker.write(tmp_path_factory.mktemp("gguf") / "talker.gguf").read_bytes()


def written(tmp_path, data):
    path = tmp_path / "changed.gguf"
    path.write_bytes(data)
    return path


def test_gguf_header_equals_gguf_package(tmp_path, honest):
    import gguf

    path = written(tmp_path, honest)
    ours, theirs = read_header(path), gguf.GGUFReader(path)
    values = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert ours.values == values
    places = {t.name: (tuple(t.shape.tolist()[::-1]), t.data_offset, t.n_bytes) for t in theirs.tensors}
    assert {n: (t.shape, t.span.offset, t.span.size) for n, t in ours.tensors.items()} == places


def test_gguf_header_truncated_is_refused(tmp_path, honest):
    end = honest.rindex(b".weight") + 40
    for size in (4, 5, 8, 16, 24, 30, *range(40, end, 97)):
        with raises(webpte.FormatError, size, "incomplete"):
            read_header(written(tmp_path, honest[:size]))


def test_gguf_weights_truncated_are_an_incomplete_download(tmp_path, honest):
    with raises(webpte.FormatError, len(honest) - 40, "incomplete", code="out_of_bounds"):
        read_header(written(tmp_path, honest[:-40]))


@pytest.mark.parametrize(
    ("old", "new", "kind", "code"),
    [
        (b"GGUF", b"GGJT", webpte.FormatError, None),
        (b"GGUF\x03\0\0\0", b"GGUF\0\0\0\x03", webpte.UnsupportedError, ""),
        (b"GGUF\x03\0\0\0", b"GGUF\x09\0\0\0", webpte.UnsupportedError, ""),
        (b"talker", b"tal\xffer", webpte.FormatError, "invalid_utf8"),
        (b"general.name", b"general.type", webpte.FormatError, "gguf"),
        (b"blk.0.ffn_up.weight", b"blk.1.ffn_up.weight", webpte.FormatError, "duplicate_tensor"),
    ],
)
def test_gguf_header_wrong_field_raises_typed_error(tmp_path, honest, old, new, kind, code):
    assert old in honest
    with raises(kind, code=code):
        read_checkpoint(written(tmp_path, honest.replace(old, new, 1)))


def with_info(honest, dims=None, kind=None, offset=None):
    """Return the file with other dims, another type or offset of a matrix."""
    name = b"blk.0.ffn_up.weight"
    at = honest.index(name) + len(name) + 4
    stored = list(struct.unpack_from("<QQIQ", honest, at))
    stored[:2] = dims or stored[:2]
    stored[2:] = [stored[2] if kind is None else kind, stored[3] if offset is None else offset]
    return honest[:at] + struct.pack("<QQIQ", *stored) + honest[at + 28 :]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"dims": [1 << 63, 1 << 63]}, "out_of_bounds"),
        ({"dims": [0, 5]}, "tensor_shape"),
        ({"kind": 999}, "tensor_type"),
        ({"kind": 2, "dims": [33, 5]}, "tensor_shape"),
        ({"offset": 1 << 62}, "out_of_bounds"),
        ({"offset": 7}, "out_of_bounds"),
        ({"offset": 0}, "overlap"),
    ],
)
def test_gguf_tensor_outside_file_or_overlapping_is_refused(tmp_path, honest, change, code):
    assert with_info(honest) == honest
    with raises(webpte.FormatError, "changed.gguf", code=code):
        read_checkpoint(written(tmp_path, with_info(honest, **change)))


@pytest.mark.parametrize(
    "changes",
    [
        {"llama.block_count": 1 << 31},
        {"llama.block_count": 999},
        {"llama.embedding_length": 1 << 30},
        {"tokenizer.ggml.tokens": [1, 2, 3]},
        {"tokenizer.ggml.merges": ["h e", "he"]},
        {"tokenizer.ggml.merges": ["x nothing"]},
        {"tokenizer.ggml.merges": [1]},
        {"tokenizer.ggml.eos_token_id": "~"},
        {"tokenizer.chat_template": 3},
        {"general.alignment": 7},
        {"llama.rope.freq_base": float("inf")},
    ],
)
def test_keys_of_another_type_or_size_are_refused(tmp_path, changes):
    with raises(webpte.FormatError, next(iter(changes)).rpartition(".")[2] if "block" not in str(changes) else ""):
        read_checkpoint(gguf_talker.write(tmp_path / "changed.gguf", changes))


def test_sampling_keys_are_the_defaults_of_the_program(tmp_path, caplog):
    """Keys without an equal setting are named when the program is loaded."""
    sampling = {"temp": 0.6, "top_k": 20, "top_p": 0.95, "penalty_repeat": 1.1, "mirostat": 2}
    keys = {f"general.sampling.{name}": value for name, value in sampling.items()}
    source = read_checkpoint(gguf_talker.write(tmp_path / "sampling.gguf", keys))
    path = tmp_path / "model.pte"
    write_tokenizer_files(source, path)
    defaults = read_generation_config(tmp_path / "model.generation_config.json")
    assert defaults == {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.1}
    assert "general.sampling.mirostat = 2" in caplog.text
    greedy = read_checkpoint(gguf_talker.write(tmp_path / "greedy.gguf", {"general.sampling.temp": 0.0}))
    assert "do_sample" not in greedy.generation_config
