"""Embeddings in a prompt: those of an encoder that returns the rows of tokens give the bits of the tokens."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.models.tiny_checkpoint import write_checkpoint
from webpte.builder.llm import trace_program
from webpte.builder.ops import OpTrace
from webpte.builder.options import LLMOptions
from webpte.builder.recipe import ProgramWeights
from webpte.checkpoints.checkpoint import read_checkpoint, write_tokenizer_files
from webpte.container import DType, write_program
from webpte.device import Gpu
from webpte.llm import LLM
from webpte.llm.engine.embeddings import EncoderInput

ROWS, WIDTH = 4, 64
TEXT = [int(token) for token in np.random.default_rng(5).integers(3, 96, 41)]


class Model:
    """A tiny model whose encoder returns its input, and the embeddings of its tokens."""

    def __init__(self, folder: Path) -> None:
        write_checkpoint(folder)
        source = read_checkpoint(folder)
        options = LLMOptions(quantize=None, max_context=96, max_tokens=24)
        sizes = options.sizes(source, memory=None)
        program = trace_program(source, options.recipe(source), ProgramWeights(source), sizes)
        trace = OpTrace()
        rows = trace.input("rows", DType.FLOAT32, (1, ROWS, WIDTH))
        encoder = trace.method("vision_encoder", [trace.scaled(rows, 1.0)], {})
        self.path = folder / "tiny.pte"
        named = {**program.named_data, **encoder.named_data}
        with self.path.open("wb") as file:
            write_program(file, replace(program, methods=(*program.methods, encoder.plan), named_data=named))
        write_tokenizer_files(source, self.path)
        self.table = source.weights.read("tok_embeddings.weight")  # (V, N)

    def embedded(self, tokens: list[int]) -> EncoderInput:
        rows = self.table[tokens][None]
        return EncoderInput(hashlib.sha256(rows.tobytes()).digest()[:16], ROWS, lambda: (rows,))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Model(tmp_path_factory.mktemp("embedded"))


def logits(llm, prompt):
    talk = llm.sequence()
    talk.generate(tokens=prompt, max_new_tokens=1, stop=[]).result()
    return talk.logits([7, 8], every=True)


def test_embeddings_of_tokens_give_the_bits_of_the_tokens(model):
    """Also if calls of 23 tokens cut through them, after growing, and in any block."""
    mixed = [*TEXT[:9], model.embedded(TEXT[9:13]), *TEXT[13:21], *(model.embedded(TEXT[n : n + 4]) for n in (21, 25))]
    mixed += TEXT[29:]
    with LLM.load(model.path) as llm:
        expected = logits(llm, TEXT)
        llm.reset_prefix_cache()
        assert logits(llm, mixed).tobytes() == expected.tobytes()
        answers = llm.generate_many([{"tokens": prompt} for prompt in [TEXT, mixed] * 2], max_new_tokens=8, stop=[])
        assert len({tuple(answer.tokens) for answer in answers}) == 1
        assert llm.engine.runner.num_slots > 2


def test_embeddings_stay_on_the_device(model, monkeypatch):
    """A prompt reads back what a prompt of tokens does: the sampled token."""
    read: list[int] = []
    original = Gpu.read

    def counted(self, staging, nbytes, *rest):
        read.append(nbytes)
        return original(self, staging, nbytes, *rest)

    monkeypatch.setattr(Gpu, "read", counted)
    with LLM.load(model.path) as llm:
        sizes = []
        for prompt in (TEXT[:16], [*TEXT[16:20], model.embedded(TEXT[20:24]), *TEXT[24:32]]):
            read.clear()
            llm.generate(tokens=prompt, max_new_tokens=1, stop=[]).result()
            sizes.append([*read])
        assert sizes[0] == sizes[1]
