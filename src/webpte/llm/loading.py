"""The parts that a language model is loaded from: metadata, stop tokens, and the runner of its method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from ..deferred import read_adapters
from ..errors import InputError, UnsupportedError
from ..fusion.batching import AS_STORED, CacheDtypes
from ..fusion.joined import with_single_pool
from ..fusion.llm_rewrites import with_sampler, with_sampler_and_half_caches
from ..graph import DType, Graph
from ..progress import OnProgress
from ..runtime import Bundle, Program
from ..runtime.manifest import VISION_ENCODER
from ..typing import PathLike
from .adapters import MODULES, NO_ADAPTERS, Adapters
from .engine.adapter_runner import AdapterRunner
from .engine.bundled_runner import BundledRunner
from .engine.encoder import EncoderPart, LanguageMethods
from .engine.runner import BatchedRunner, ModelRunner
from .engine.single_runner import SingleRunner
from .image_prompts import ImageEncoder, ImagePrompts
from .metadata import (
    ModelMetadata,
    cache_window_of,
    check_language_model,
    check_rows_together,
    context,
    language_methods,
    language_of,
    read_bundle_metadata,
    read_program_metadata,
)
from .options import KvCache
from .tokenizer import Tokenizer

HALF_FLOATS: CacheDtypes = {DType.FLOAT32: DType.FLOAT16}
CACHE_DTYPES: Mapping[KvCache, CacheDtypes] = {
    "f32": AS_STORED,
    "f16": {**HALF_FLOATS, DType.INT8: DType.FLOAT16},
    "int8": {DType.FLOAT32: DType.INT8},
}
REWRITES = {
    "auto": with_sampler,
    "f32": with_sampler,
    "f16": with_sampler_and_half_caches,
}  # of a program that cannot be batched
# End of a turn or a text, in the vocabularies of common model families.
END_TOKENS = (
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|end_of_text|>",
    "</s>",
    "<eos>",
    "<end_of_turn>",
    "<|end|>",
)
MESSAGE_ENDS = {"<|end|>": "<|return|>"}  # a token that ends a message only, if the vocabulary has the other


def stop_tokens(tokenizer: Tokenizer, eos_ids: Iterable[int]) -> frozenset[int]:
    """Return the tokens that end an answer: those of the program, and those of common model families."""
    named = (
        tokenizer.token_id(token)
        for token in END_TOKENS
        if token not in MESSAGE_ENDS or tokenizer.token_id(MESSAGE_ENDS[token]) is None
    )
    return frozenset(token for token in (*named, *eos_ids) if token is not None)


def load_metadata(program: Program | Bundle, path: Path, tokenizer: PathLike | None) -> ModelMetadata:
    """Return what the files beside a program, or in a bundle, say about a language model."""
    tokenizer_path = Path(tokenizer) if tokenizer is not None else None
    if isinstance(program, Bundle):
        return read_bundle_metadata(program, tokenizer_path)
    check_language_model(program, path)
    return read_program_metadata(program, path, tokenizer_path)


def cache_slots(prefix_cache: int, runner: ModelRunner) -> int:
    """Return the slots that fit into the bytes of the prefix cache."""
    return prefix_cache // max(1, sum(runner.sizes(runner.capacity))) if prefix_cache else 0


def default_caches(device: str, features: Collection[str]) -> CacheDtypes:
    """Return which caches "auto" stores in another dtype on a device: those of f32 in f16 on GPUs that have it."""
    return HALF_FLOATS if device == "gpu" and "shader-f16" in features else AS_STORED


def load_images(
    program: Program | Bundle, metadata: ModelMetadata, runner: ModelRunner, tokenizer: Tokenizer
) -> ImagePrompts | None:
    """Return how images become a part of prompts; None for a program without an encoder, or without its processor."""
    if not runner.embedding_blocks or metadata.image_processor is None:
        return None
    if isinstance(program, Bundle):
        graph, bidirectional = program.plan(VISION_ENCODER).graph, language_of(program).bidirectional
    else:
        model = language_methods(program)
        if not model.plain and runner.batching_unsupported_reason is not None:
            return None  # one sequence at a time has positions of one axis, and sees earlier ones
        bidirectional = model.bidirectional
        assert model.encoder is not None
        graph = program.graph(model.encoder)
    if bidirectional:
        check_rows_together(program.path, runner.embedding_rows, runner.max_batch_tokens)
    inputs = tuple(tuple(graph.tensor(value_id).dims) for value_id in graph.inputs)
    encoder = ImageEncoder(str(metadata.image_processor), inputs, runner.embedding_rows, bidirectional)
    return ImagePrompts(encoder, tokenizer)


def load_adapters(program: Program | Bundle, path: str, folders: Mapping[str, PathLike]) -> Adapters:
    """Read adapters for a program of the builder."""
    if not folders:
        return NO_ADAPTERS
    if isinstance(program, Bundle):
        raise UnsupportedError(
            f"{path} is a bundle, which was planned without adapters", code="bundle_adapters",
            hint="Load the program that it was written from.",
        )  # fmt: skip
    modules = program.file.named_data.get(MODULES)
    if modules is None:
        raise UnsupportedError(
            f"{path} does not say which modules its layers are, so adapters do not fit it",
            code="no_adapter_modules",
            hint="Export the checkpoint again with webpte export, or load the checkpoint itself.",
        )
    return Adapters(read_adapters(folders, bytes(modules.view()), path))


def load_runner(
    program: Program | Bundle, kv_cache: KvCache, max_slots: int, progress: OnProgress, adapters: Adapters
) -> ModelRunner:
    """Return a runner of many sequences, or of one if the program's structure does not allow more."""
    if isinstance(program, Bundle):
        if kv_cache not in ("auto", "f32"):
            raise InputError(argument="kv_cache", expected="'f32', as the bundle was planned", got=repr(kv_cache))
        return BundledRunner(program, language_of(program), max_slots, progress)
    caps, model = program.caps, language_methods(program)
    caches = default_caches(caps.kind, caps.features) if kv_cache == "auto" else CACHE_DTYPES[kv_cache]
    try:
        if adapters.names:
            return AdapterRunner(program, max_slots, caches, progress, model, adapters=adapters)
        return BatchedRunner(program, max_slots, caches, progress, model)
    except UnsupportedError as error:
        if adapters.names:
            raise UnsupportedError(
                f"adapters require a program that computes several sequences at once. {error}", code="adapters"
            ) from error
        if kv_cache not in REWRITES:
            raise UnsupportedError(
                f"kv_cache: expected one of {', '.join(map(repr, REWRITES))}, got {kv_cache!r}. {error}",
                code="kv_cache",
            ) from error
        return _single_runner(program, model, REWRITES[kv_cache], str(error), progress)


def _single_runner(
    program: Program, model: LanguageMethods, append: Callable[[Graph], Graph], reason: str, progress: OnProgress
) -> SingleRunner:
    encoder = EncoderPart()
    encoder.load_encoder(program, model, progress)

    def rewrite(graph: Graph) -> Graph:
        return append(with_single_pool(model.joined(graph, encoder.pool_rows), encoder.pool_rows))

    method = program.method(model.name, rewrite, progress, lazy=True)
    window = cache_window_of(program, method.plan)
    return SingleRunner(method, context(program, method.plan), window, reason, encoder)
