"""Programs in the convention of ExecuTorch's multimodal runner: token_embedding, text_decoder and vision_encoder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

import webpte
from tests.support.harness.conversations import image, text
from tests.support.harness.errors import raises
from tests.support.models.tiny_vlm import CONTEXT, write_vlm
from webpte.builder import build_program
from webpte.builder.decoder import DecoderTrace
from webpte.builder.layers import LayerTrace
from webpte.builder.llm import program_of, trace_program
from webpte.builder.options import LLMOptions
from webpte.builder.recipe import ProgramWeights
from webpte.builder.trace import TracedInt, TracedMethod
from webpte.checkpoints.checkpoint import read_checkpoint
from webpte.container import DType, write_program
from webpte.errors import UnsupportedError
from webpte.fusion.joined import joined
from webpte.llm import LLM

pytest.importorskip("torch")
pytest.importorskip("transformers")
MAX_TOKENS = 24
MESSAGES = [{"role": "user", "content": [image(1), text("and"), image(2), text("which?")]}]


class SeparateTrace(DecoderTrace):
    """A decoder of embeddings and a position, in either order."""

    def methods(self, position_first: bool) -> TracedMethod:
        g = self.g
        dims = (1, TracedInt(self.max_tokens - 1), self.model.dim)
        first = g.input("input_pos", DType.INT64, (1,)) if position_first else None
        x = g.input("embeddings", DType.FLOAT32, dims)
        first = first or g.input("input_pos", DType.INT64, (1,))
        positions = self.positions(x, first)
        for number in range(self.model.n_layers):
            x = self.block(x, number, positions)
        logits = self.head(g.select(x, 1, -1))
        return g.method("text_decoder", [logits], {"require_dynamic_shapes": b"\1"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    write_vlm(folder)
    return build_program(folder, folder / "vlm.pte", quantize=None, max_context=CONTEXT, max_tokens=MAX_TOKENS)


@pytest.fixture(scope="module", params=[False, True])
def separate(whole, tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("separate")
    source = read_checkpoint(whole.parent)
    options = LLMOptions(quantize=None, calibrate=False, max_context=CONTEXT, max_tokens=MAX_TOKENS)
    weights, sizes = ProgramWeights(source), options.sizes(source)
    program = trace_program(source, options.recipe(source), weights, sizes)
    lookup, decoder = (LayerTrace(source.weights.sources, {}, weights) for _ in range(2))
    tokens = lookup.input("tokens", DType.INT64, (1, TracedInt(MAX_TOKENS - 1)))
    embedding = lookup.method("token_embedding", [lookup.embedding(tokens)], {"require_dynamic_shapes": b"\1"})
    trace = SeparateTrace(decoder, source.architecture, CONTEXT, MAX_TOKENS)
    parts = program_of([embedding, trace.methods(request.param)])
    methods = (*parts.methods, *(method for method in program.methods if method.name != "forward"))
    named = MappingProxyType({**program.named_data, **parts.named_data})
    with open(folder / "vlm.pte", "wb") as file:
        write_program(file, replace(program, methods=methods, named_data=named))
    for companion in whole.parent.glob("vlm.*"):
        if companion.suffix != ".pte":
            (folder / companion.name).write_bytes(companion.read_bytes())
    return folder / "vlm.pte"


def answer(path, messages):
    with LLM.load(path) as llm:
        result = llm.generate(messages, max_new_tokens=12, temperature=0)
        result.result()
        return result.tokens, llm.batching_unsupported_reason, result.prompt


def test_separate_methods_answer_as_the_whole_program(whole, separate):
    expected, _, prompt = answer(whole, MESSAGES)
    tokens, reason, segments = answer(separate, MESSAGES)
    assert tokens == expected and reason is None and segments == prompt


FOREIGN = (
    Path(__file__).parents[1] / "studies" / "exporters" / "multimodal"
)  # by tests.studies.exporters.optimum_multimodal


@pytest.mark.parametrize("program", sorted(FOREIGN.glob("*.pte")), ids=lambda path: path.stem)
def test_optimum_tokens_equal_its_own_runner(program):
    """Of a Gemma 3 that optimum-executorch exported, once more after a prompt without images."""
    expected = json.loads(program.with_suffix(".json").read_text())["tokens"]
    messages = [{"role": "user", "content": [image(1), text("what?")]}]
    with LLM.load(program) as llm:
        llm.stop_tokens = frozenset()
        for prompt in (messages, [{"role": "user", "content": "what?"}], messages):
            result = llm.generate(prompt, max_new_tokens=len(expected), temperature=0)
            result.result()
            assert (result.tokens == expected) == (prompt is messages)


def test_methods_with_other_embeddings_are_refused(whole, separate):
    with webpte.load(separate) as program, webpte.load(whole) as other:
        narrow = other.graph("vision_encoder")
        embedding, decoder = program.graph("token_embedding"), program.graph("text_decoder")
    with raises(UnsupportedError, "vision_encoder", code="other_embedding"):
        joined(narrow, decoder)
    with raises(UnsupportedError, "token_embedding", code="other_embedding"):
        joined(embedding, embedding)
    graph = joined(embedding, decoder)
    assert [graph.tensor(value_id).dims for value_id in graph.inputs] == [(1, MAX_TOKENS - 1), (1,)]
    assert len(graph.steps) == len(embedding.steps) + len(decoder.steps)
