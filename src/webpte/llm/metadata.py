"""What a program and the files beside it say about a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError
from ..fusion.batching import embedding_pool
from ..fusion.joined import joined
from ..fusion.llm_rewrites import LOGITS, keeps_every_position
from ..fusion.rope_axes import AXES
from ..graph import DType, Graph, TensorSpec
from ..json_files import read_json_object
from ..plan import Plan
from ..runtime import Bundle, Method, Program
from ..runtime.manifest import Language
from ..sources import beside
from ..task_file import LANGUAGE_RERANKING, task_of, task_path
from ..text import plural, shell_word
from .context import LIMIT_METHOD, ContextLimit, limit_from_json, limit_from_numbers
from .defaults import OWN_DEFAULTS, check_defaults, read_end_tokens, read_generation_config
from .engine.encoder import FORWARD, LanguageMethods
from .engine.kv_slots import LAST_TOKEN_ONLY, CacheWindow
from .image_processor import BIDIRECTIONAL_METHOD, SECTIONS_METHOD
from .prompts import default_template


@dataclass(frozen=True)
class ModelMetadata:
    """The tokenizer, the chat template and the end-of-text tokens of a model."""

    tokenizer: Path
    tokenizer_config: Path | None  # names of special tokens
    template: str | None  # of chats
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)  # defaults of the settings of answers
    image_processor: Path | None = None  # preprocessor_config.json


def check_language_model(program: Program, path: Path) -> None:
    """Refuse a program that does not compute logits of tokens, and state what it computes."""
    is_task = task_of(path) not in (None, LANGUAGE_RERANKING)
    model = language_methods(program)
    if not is_task and model.name in program.method_names:
        graph = model.joined(program.graph(model.name), 0)
        if _computes_logits(graph):
            _check_position(graph, path)
            return
    first, *others = program.method_names
    more = f" and {plural(len(others), 'other method')}" if others else ""
    raise InputError(
        argument=str(path),
        expected="a language model, which computes logits of tokens",
        got=f"a program with {program.signature(first)}{more}",
        code="not_a_language_model",
        hint=f"{task_path(path).name} states its task: use webpte.embed, webpte.vision or webpte.speech."
        if is_task
        else f"Use webpte.load({str(path)!r}), or webpte run {shell_word(path)}.",
    )


TOKEN_EMBEDDING, TEXT_DECODER = "token_embedding", "text_decoder"
ENCODERS = ("vision_encoder", "image_encoder")  # the second is the name of older exports


def language_methods(program: Program) -> LanguageMethods:
    """Return the methods of a language model, by the names of ExecuTorch's runners."""
    names = program.method_names
    encoder = next((name for name in ENCODERS if name in names), None)
    if TOKEN_EMBEDDING in names and TEXT_DECODER in names:
        embedding = program.graph(TOKEN_EMBEDDING)
        return LanguageMethods(TEXT_DECODER, lambda decoder, rows: joined(embedding, decoder, rows), encoder)
    sections = numbers(metadata(program, SECTIONS_METHOD, ()))
    axes = None
    if len(sections) == AXES:
        axes = sections[0], sections[1], sections[2]
    bidirectional = bool(metadata(program, BIDIRECTIONAL_METHOD, False))
    return replace(FORWARD, encoder=encoder, sections=axes, bidirectional=bidirectional)


def check_rows_together(path: str, rows: int, most: int) -> None:
    """Raise FormatError unless one call takes the rows of an image, which see each other. It takes `most` tokens."""
    if rows > most:
        raise FormatError(
            argument=f"{path}: tokens of a call",
            expected=f"at least {rows}, the rows of an image, which see each other",
            got=most,
            code="other_export",
        )


def _computes_logits(graph: Graph) -> bool:
    """Return whether the first input has tokens (1, n), and the first output logits (1, V) or (1, n, V)."""
    tokens, logits = (graph.values[ids[0]] if ids else None for ids in (graph.inputs, graph.outputs))
    return (
        isinstance(tokens, TensorSpec)
        and isinstance(logits, TensorSpec)
        and tokens.host_dtype in (DType.INT32, DType.INT64)
        and len(tokens.dims) == 2
        and len(logits.dims) in (2, 3)
        and tokens.dims[0] == logits.dims[0] == 1
    )


def _check_position(graph: Graph, path: Path) -> None:
    """Refuse a program that takes other inputs than tokens and positions."""
    specs = [graph.values[value_id] for value_id in graph.inputs]
    if len(specs) == 2 and isinstance(specs[1], TensorSpec) and len(specs[1].dims) == 1:
        return
    if len(specs) == 1:
        raise InputError(
            f"{path} has no KV cache: it takes tokens and no positions",
            hint="Export it with use_kv_cache.",
            code="no_kv_cache",
        )
    raise InputError(
        argument=str(path),
        expected="two inputs: tokens, and the position of the first or of each",
        got=", ".join(map(str, specs)),
        code="other_inputs",
    )


def read_program_metadata(program: Program, path: Path, tokenizer: Path | None) -> ModelMetadata:
    """Return the metadata of a program: from its methods and the files beside it."""
    tokenizer = tokenizer or tokenizer_beside(path)
    if tokenizer is None:
        raise InputError(
            f"no {' or '.join(TOKENIZERS)} beside {path}",
            argument="tokenizer",
            hint=f"Put {path.stem}.tokenizer.json there, or pass the path of another.",
            code="no_tokenizer",
        )
    generation = beside(path, "generation_config.json")
    ends = read_end_tokens(generation)
    return ModelMetadata(
        tokenizer,
        beside(path, "tokenizer_config.json"),
        _chat_template(path),
        tuple(dict.fromkeys((*numbers(metadata(program, "get_eos_ids", metadata(program, "get_eos_id", ()))), *ends))),
        next(iter(numbers(metadata(program, "get_bos_id", ()))), None),
        read_generation_config(generation),
        beside(path, "preprocessor_config.json"),
    )


def _chat_template(path: Path) -> str | None:
    """Return the template beside a program, or else that of its tokenizer_config.json, as older repositories have."""
    file, config = beside(path, "chat_template.jinja"), beside(path, "tokenizer_config.json")
    if file is not None or config is None:
        return None if file is None else file.read_text("utf-8")
    try:
        template = read_json_object(config).get("chat_template")
    except FormatError:  # the tokenizer's own reader reports it
        return None
    return default_template(template, str(config))


def read_bundle_metadata(bundle: Bundle, tokenizer: Path | None) -> ModelMetadata:
    """Return the metadata of a bundle: from its manifest."""
    language = language_of(bundle)
    config, images = language.tokenizer_config, language.image_processor
    return ModelMetadata(
        tokenizer or Path(bundle.open_file(language.tokenizer).path),
        Path(bundle.open_file(config).path) if config is not None else None,
        language.chat_template,
        language.eos_token_ids,
        language.bos_token_id,
        check_defaults(OWN_DEFAULTS if language.sampling is None else language.sampling, "language.sampling"),
        None if images is None else Path(bundle.open_file(images).path),
    )


def language_of(bundle: Bundle) -> Language:
    if bundle.manifest.language is None:
        raise InputError(
            argument=bundle.path,
            expected="the bundle of a language model",
            got=f"a bundle of kind {bundle.manifest.kind}",
            code="not_a_language_model",
        )
    return bundle.manifest.language


def metadata(program: Program, name: str, default: Any) -> Any:
    return program.method(name)() if name in program.method_names else default


def numbers(value: Any) -> tuple[int, ...]:
    """Return the integers of a method's result, which is one number or several."""
    return tuple(int(number) for number in (value if isinstance(value, tuple) else (value,)))


def vocabulary(method: Method) -> int:
    """Return the number of logits at each position. The tokenizer may have fewer or more tokens."""
    bound = method.outputs[LOGITS].bound
    assert bound is not None  # with_sampler refuses anything else
    return bound[-1]


LENGTH_METHODS = ("get_max_context_len", "get_max_seq_len")  # the second has a step's length if both are there


def cache_rows(plan: Plan) -> int:
    """Return the length of the KV caches, (B, C, H, D) or (B, H, C, D), for a program that does not state it."""
    state = [plan.graph.tensor(t).dims for b in plan.buffers if b.kind == "state" for t in b.tensors]
    rows = [max(dims[1:3]) for dims in state if len(dims) == 4]
    if not rows:
        raise InputError("the program has no KV cache", hint="Export it with one to generate text.", code="no_kv_cache")
    return min(rows)


def context(program: Program, plan: Plan) -> int:
    """Return the number of tokens that a sequence may have."""
    stated = next((metadata(program, name, None) for name in LENGTH_METHODS if name in program.method_names), None)
    return int(stated) if stated is not None else cache_rows(plan)


def context_limit(source: Program | Bundle, tokens: int) -> ContextLimit:
    """Return why a sequence may have this number of tokens, as a program or a bundle states it."""
    if isinstance(source, Bundle):
        return limit_from_json(tokens, language_of(source).context_limit)
    return limit_from_numbers(tokens, numbers(metadata(source, LIMIT_METHOD, ())))


WINDOW_METHOD = "get_state_reach"  # of a program: returns the two numbers of a CacheWindow


def cache_window_of(program: Program, plan: Plan) -> CacheWindow | None:
    """Return how far back a program's state reaches; None if it keeps every position."""
    if WINDOW_METHOD in program.method_names:
        values = numbers(metadata(program, WINDOW_METHOD, ()))
        if len(values) != 2 or min(values) < 0:
            raise FormatError(
                f"{WINDOW_METHOD}: expected the numbers of positions that are needed and held, got {list(values)}"
            )
        return CacheWindow(*values)
    caches = plan.flow.state - {embedding_pool(plan.graph)}
    return None if keeps_every_position(plan.graph, caches) else LAST_TOKEN_ONLY


TOKENIZERS = ("tokenizer.json", "tokenizer.model")  # the second is SentencePiece's or tiktoken's


def tokenizer_beside(program: Path) -> Path | None:
    """Return the tokenizer of a program, in the first of TOKENIZERS that is there."""
    return next((file for name in TOKENIZERS if (file := beside(program, name)) is not None), None)
