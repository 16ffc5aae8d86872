"""Language models, encoders and vision programs in a bundle: the calls of a page, and their entry in the manifest."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, UnsupportedError
from ..fusion.batching import TOKENS, embedding_pool, with_sampled_slots
from ..fusion.bidirectional_rows import with_bidirectional_rows
from ..fusion.llm_rewrites import (
    FEATURE_ADJUSTMENTS,
    FEATURE_TOP_LOGPROBS,
    MAX_LOGIT_ADJUSTMENTS,
    SAMPLING_WORDS,
    mask_words,
    padded_words,
    with_stored_output,
)
from ..fusion.recurrences import state_reach
from ..fusion.rope_axes import AXES, RopeSections, with_rope_axes
from ..graph import DType, Graph, TensorSpec
from ..graph.names import BIDIRECTIONAL_MAPPING
from ..llm.engine.encoder import pool_blocks
from ..llm.image_processor import read_image_processor
from ..llm.metadata import (
    ModelMetadata,
    check_rows_together,
    context,
    context_limit,
    language_methods,
    read_program_metadata,
)
from ..llm.tokenizer_formats import as_tokenizer_json
from ..plan import Planner
from ..progress import OnProgress
from ..runtime import Program
from ..runtime.manifest import VISION_ENCODER
from ..sources import beside
from ..wgsl import Caps
from .methods import Call, MethodWriter, Shapes, for_any_data, planned, zeros
from .page_support import check_template, check_tokenizer
from .site import Site

PROMPT_ROWS = (8, 16, 32, 64, 128)
LONG_POSITION = 1 << 20  # attention on a GPU has another schedule for steps with a token far from the beginning
MAX_EDITED_TOKENS = 1024  # tokens of a sequence that have penalties or biases in a page


def decode_rows(sequences: int) -> list[int]:
    """Return the numbers of sequences that are computed in one step: 1, 2, 4, ... and all of them."""
    return sorted({*(1 << n for n in range(sequences.bit_length())), sequences})


def slot_counts(sequences: int) -> list[int]:
    """Return the numbers of sequences that have caches: one by default."""
    return sorted({1, sequences})


def prefill_rows(most: int, together: int = 0) -> list[int]:
    """Return the numbers of rows of steps that compute prompts, one of which is at least `together`."""
    sizes = [rows for rows in PROMPT_ROWS if rows <= most] or [most]
    return sizes if sizes[-1] >= together else [*sizes, together]


def sampling_words(rows: int, vocabulary: int) -> int:
    """Return the words of `choices` for rows with masks or edits. The number is fixed: there is one schedule."""
    edits = min(MAX_EDITED_TOKENS, MAX_LOGIT_ADJUSTMENTS, vocabulary)
    return rows * len(SAMPLING_WORDS) + padded_words(rows * (4 * edits + mask_words(vocabulary)))


def calls(sequences: int, most_rows: int, vocabulary: int, axes: int = 0, together: int = 0) -> Iterator[Call]:
    """Yield all calls of a page: chunks of prompts, and steps that sample a token for each row.

    `axes` is the number of positions of each row, if the method takes them. `together` is the number of an image's rows
    that see each other, if any do.
    """
    columns = BIDIRECTIONAL_MAPPING if together else 2
    for rows in prefill_rows(most_rows, together):
        yield _call(rows, 0, picked=1, words=len(SAMPLING_WORDS), features=0, axes=axes, columns=columns)
    for rows in decode_rows(sequences):
        plain, full = rows * len(SAMPLING_WORDS), sampling_words(rows, vocabulary)
        for words, features in (
            (plain, 0),
            (full, FEATURE_ADJUSTMENTS),
            (full, FEATURE_ADJUSTMENTS | FEATURE_TOP_LOGPROBS),
        ):
            for position in (0, LONG_POSITION):
                yield _call(rows, rows, rows, words, features, position, axes, columns)


def _call(
    rows: int, singles: int, picked: int, words: int, features: int, position: int = 0, axes: int = 0, columns: int = 2
) -> Call:
    tokens, places = np.zeros((1, rows), np.int64), np.zeros((rows, columns), np.int32)
    places[:, 1] = position
    by_axis = [np.zeros((rows, axes), np.int32)] if axes else []
    return tokens, places, singles, np.zeros(picked, np.int32), 0, np.zeros(words, np.int32), 0, features, *by_axis


def language_parts(
    site: Site,
    program: Program,
    tokenizer: Path,
    sequences: int,
    progress: OnProgress,
    matrix_units: bool,
) -> dict[str, Any]:
    """Plan and write a language model. Return its parts of the manifest."""
    metadata = read_program_metadata(program, Path(program.path), tokenizer)
    if metadata.template is not None:
        check_template(metadata.template)
    images = _images(site, program, metadata)
    methods = MethodWriter(
        site, progress, len(slot_counts(sequences)) + (images is not None), matrix_units=matrix_units
    )
    embeddings, axes, together = 0, 0, 0
    if images is not None:
        images.add(methods, program)
        embeddings = pool_blocks(images.rows) * images.rows
        axes = 0 if images.sections is None else AXES
        together = images.rows if images.bidirectional else 0
    fingerprint = program.fingerprint("forward")
    most_rows, vocabulary = _sizes(program)
    for slots in slot_counts(sequences):
        rewrite = functools.partial(_rewritten, slots=slots, embedding_rows=embeddings, images=images)
        planner = methods.add(
            "forward",
            fingerprint,
            lambda caps, slots=slots, rewrite=rewrite: planned(  # type: ignore[misc]
                program, "forward", caps, calls(slots, most_rows, vocabulary, axes, together), rewrite
            ),
            slots,
        )
    if images is not None:
        images.check(program, planner.plan.graph)
    reach = state_reach(planner.plan.graph)
    capacity = context(program, planner.plan)
    language = {
        **tokenizer_files(site, metadata.tokenizer, metadata.tokenizer_config),
        "chat_template": metadata.template,
        "eos_token_ids": list(metadata.eos_ids),
        "bos_token_id": metadata.bos_id,
        "sampling": dict(metadata.sampling),
        "context_length": capacity,
        "context_limit": context_limit(program, capacity).to_json(),
        "state_reach": None if reach is None else list(reach),
        "vocab_size": vocabulary,
        "max_num_seqs": sequences,
        "prefill_rows": prefill_rows(most_rows, together),
        "decode_rows": decode_rows(sequences),
        "sampling_words": {str(rows): sampling_words(rows, vocabulary) for rows in decode_rows(sequences)},
        "images": None if images is None else images.entry,
    }
    return {"language": language, "methods": methods.written()}


def _rewritten(graph: Graph, slots: int, embedding_rows: int, images: _Images | None) -> Graph:
    slotted = with_sampled_slots(graph, slots, embedding_rows=embedding_rows)
    if images is not None and images.bidirectional:
        slotted = with_bidirectional_rows(slotted)
    return slotted if images is None or images.sections is None else with_rope_axes(slotted, images.sections)


class _Images(NamedTuple):
    """The image encoder of a language model."""

    method: str
    rows: int  # of an output at most
    sections: RopeSections | None  # of a decoder that rotates these by three axes
    bidirectional: bool  # in the decoder, those of an output see each other
    shapes: Sequence[Shapes]
    entry: dict[str, Any]  # of the manifest

    def add(self, methods: MethodWriter, program: Program) -> None:
        calls = [zeros(program.graph(self.method), shapes) for shapes in self.shapes]

        def plan_for(caps: Caps) -> Planner:
            return for_any_data(planned(program, self.method, caps, calls, with_stored_output))

        methods.add(VISION_ENCODER, program.fingerprint(self.method), plan_for)

    def check(self, program: Program, decoder: Graph) -> None:
        """Raise UnsupportedError unless a page can copy the outputs to the decoder's embeddings."""
        graph, pool = program.graph(self.method), embedding_pool(decoder)
        assert pool is not None
        output, embeddings = graph.tensor(graph.outputs[0]), decoder.tensor(pool)
        if (output.dtype, output.dims[-1]) != (embeddings.dtype, embeddings.dims[-1]):
            raise UnsupportedError(
                f"{self.method}: expected embeddings {embeddings}, got {output}", code="embedding_layout"
            )


def _images(site: Site, program: Program, metadata: ModelMetadata) -> _Images | None:
    """Return the image encoder; None if the program has none, or none with its processor beside it."""
    model, config = language_methods(program), metadata.image_processor
    method = model.encoder
    if method is None or config is None:
        return None
    graph = program.graph(method)
    inputs = [graph.tensor(value_id).dims for value_id in graph.inputs]
    rows = graph.tensor(graph.outputs[0]).dims[-2]
    if model.bidirectional:
        check_rows_together(program.path, rows, _sizes(program)[0])
    processor = read_image_processor(config).for_encoder(str(config), inputs)
    if not processor.page_kind:
        raise UnsupportedError(
            f"{config}: pages cannot prepare images for {type(processor).__name__}",
            code="image_processor",
            hint="Without this file, the bundle takes no images.",
        )
    entry = {
        "config": site.add(config.read_bytes(), "json"),
        "processor": processor.declaration(),
        "max_rows": rows,
        "rope_axes": model.sections is not None,
        "bidirectional": model.bidirectional,
    }
    return _Images(method, rows, model.sections, model.bidirectional, processor.encoder_shapes(inputs), entry)


def _sizes(program: Program) -> tuple[int, int]:
    """Return the maximum rows of a step, and the size of the vocabulary."""
    graph = program.graph("forward")
    return graph.tensor(graph.inputs[TOKENS]).dims[1], graph.tensor(graph.outputs[0]).dims[-1]


def tokenizer_files(site: Site, tokenizer: Path, config: Path | None) -> dict[str, Any]:
    """Return the manifest entries of the tokenizer's files."""
    data = as_tokenizer_json(str(tokenizer), tokenizer.read_bytes())
    check_tokenizer(data)
    return {
        "tokenizer": site.add(data, "json"),
        "tokenizer_config": None if config is None else site.add(config.read_bytes(), "json"),
    }


MIN_LENGTH_TOKENS = 16  # tokens
INTEGERS = (DType.INT32, DType.INT64)


class Encoder(NamedTuple):
    """What a program of this kind has."""

    inputs: int  # tokens, their mask, and maybe types
    max_tokens: int
    pooled: bool  # a vector for the text, not for each token


def find_encoder(program: Program) -> Encoder | None:
    """Return the encoder, if `forward` takes tokens (1, n) and a mask of that shape and returns vectors."""
    if "forward" not in program.method_names:
        return None
    graph = program.graph("forward")
    specs = [graph.values[i] for i in graph.inputs]
    rows = [spec for spec in specs if isinstance(spec, TensorSpec) and len(spec.dims) == 2]
    if len(rows) != len(specs) or len(rows) not in (2, 3) or len({spec.dims for spec in rows}) != 1:
        return None
    dims = _vector_dims(graph)
    if rows[0].host_dtype not in INTEGERS or dims is None:
        return None
    return Encoder(len(rows), rows[0].dims[1], len(dims) == 2)


def _vector_dims(graph: Graph) -> tuple[int, ...] | None:
    first = graph.values[graph.outputs[0]] if graph.outputs else None
    if not isinstance(first, TensorSpec) or first.host_dtype not in (DType.FLOAT32, DType.FLOAT16):
        return None
    return first.dims if len(first.dims) in (2, 3) and first.dims[-1] > 1 else None  # rerankers have one number


def encoder_shapes(program: Program, encoder: Encoder) -> list[Shapes]:
    """Return lengths 16, 32, 64, ... and the maximum; the maximum alone if the program accepts no others."""
    lengths = [encoder.max_tokens]
    if program.plan("forward", Caps()).dynamic_dims[program.graph("forward").inputs[0]][1]:
        lengths += [
            MIN_LENGTH_TOKENS << n
            for n in range(encoder.max_tokens.bit_length())
            if MIN_LENGTH_TOKENS << n < encoder.max_tokens
        ]
    return [[(1, length)] * encoder.inputs for length in sorted(lengths)]


def encoder_part(
    site: Site, program: Program, encoder: Encoder, tokenizer: Path, shapes: list[Shapes]
) -> dict[str, Any]:
    """Return the manifest entry of an encoder. Its inputs are in the usual order: tokens, mask, types."""
    config = beside(Path(program.path), "tokenizer_config.json")
    return {
        **tokenizer_files(site, tokenizer, config),
        "input_ids": 0,
        "attention_mask": 1,
        "token_type_ids": 2 if encoder.inputs == 3 else None,
        "lengths": sorted({dims[0][1] for dims in shapes}),
        "output": 0,
        "pooled": encoder.pooled,
    }


CHANNELS = 3
MAX_LABELS_BYTES = 1 << 20  # bytes


class ImageOptions(NamedTuple):
    """How an image becomes numbers, (red, green, blue) from 0 to 1 less the mean and divided by the deviation; and
    what its classes are called, a line each."""

    labels: Path | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    @property
    def names_set(self) -> list[str]:
        return [name for name, value in self._asdict().items() if value is not None]


def is_image(program: Program) -> bool:
    """Return whether `forward` takes one image: f32 (1, 3, height, width)."""
    if "forward" not in program.method_names:
        return False
    graph = program.graph("forward")
    specs = [graph.values[i] for i in graph.inputs]
    first = specs[0] if len(specs) == 1 else None
    return (
        isinstance(first, TensorSpec)
        and first.host_dtype is DType.FLOAT32
        and len(first.dims) == 4
        and first.dims[1] == CHANNELS
    )


def image_part(site: Site, program: Program, options: ImageOptions, shapes: Sequence[Shapes]) -> dict[str, Any]:
    """Return the manifest entry of an image model. A page makes images of the first shape."""
    height, width = shapes[0][0][2:]
    mean, std = _three("mean", options.mean or (0, 0, 0)), _three("std", options.std or (1, 1, 1))
    if not all(std):
        raise InputError(argument="std", expected="no zeros", got=list(std), code="zero_divisor")
    labels = None if options.labels is None else site.add(_labels(program, options.labels).encode(), "text")
    return {"height": height, "width": width, "mean": mean, "std": std, "labels": labels}


def _three(name: str, value: Sequence[float]) -> list[float]:
    if len(value) != CHANNELS:
        raise InputError(
            argument=name, expected=f"{CHANNELS} numbers, for red, green and blue", got=list(value), code="wrong_length"
        )
    return [float(number) for number in value]


def _labels(program: Program, path: Path) -> str:
    """Return the labels file's text. Raise InputError unless it has a line for each class."""
    try:
        if path.stat().st_size > MAX_LABELS_BYTES:
            raise InputError(
                f"labels: {path} has {path.stat().st_size} bytes, which exceeds the limit of {MAX_LABELS_BYTES}",
                code="too_large",
            )
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"labels: cannot read {path}: {error}", code="unreadable") from error
    lines = text.removesuffix("\n").split("\n")
    graph = program.graph("forward")
    output = graph.tensor(graph.outputs[0]).dims
    if len(lines) != output[-1]:
        raise InputError(
            f"labels: expected {output[-1]} lines in {path}, the classes of output 0 {list(output)}, got {len(lines)}",
            code="label_count",
        )
    return "\n".join(lines) + "\n"
