"""What a program, and the files beside it, say of a language model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FormatError, InputError
from ..fusion.kv_caches import keeps_every_position
from ..fusion.sampler import LOGITS
from ..plan import Plan
from ..runtime import Bundle, Method, Program
from ..runtime.manifest import Language
from .engine.kv_slots import LAST_TOKEN_ONLY, CacheWindow


@dataclass(frozen=True)
class ModelMetadata:
    """What turns text into a model's tokens and back."""

    tokenizer: Path
    tokenizer_config: Path | None  # names of special tokens
    template: str | None  # of chats
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None


def read_program_metadata(program: Program, path: Path, tokenizer: Path | None) -> ModelMetadata:
    """From methods of a program and files beside it."""
    found = tokenizer or beside(path, "tokenizer.json")
    if found is None:
        raise InputError(f"there is no tokenizer.json beside {path}; pass tokenizer=")
    template = beside(path, "chat_template.jinja")
    return ModelMetadata(
        found,
        beside(path, "tokenizer_config.json"),
        template.read_text("utf-8") if template is not None else None,
        numbers(metadata(program, "get_eos_ids", ())),
        next(iter(numbers(metadata(program, "get_bos_id", ()))), None),
    )


def read_bundle_metadata(bundle: Bundle, tokenizer: Path | None) -> ModelMetadata:
    """From its manifest."""
    language = language_of(bundle)
    config = language.tokenizer_config
    return ModelMetadata(
        tokenizer or Path(bundle.path(language.tokenizer)),
        Path(bundle.path(config)) if config is not None else None,
        language.template,
        language.eos,
        language.bos,
    )


def language_of(bundle: Bundle) -> Language:
    if bundle.manifest.language is None:
        raise InputError(
            f"{bundle.manifest.folder} is a bundle of kind {bundle.manifest.kind}, not a language model",
            code="not_a_language_model",
        )
    return bundle.manifest.language


def metadata(program: Program, name: str, default: Any) -> Any:
    return program.method(name)() if name in program.method_names else default


def numbers(found: Any) -> tuple[int, ...]:
    """What a method returns that gives one number, or several."""
    return tuple(int(number) for number in (found if isinstance(found, tuple) else (found,)))


def vocabulary(method: Method) -> int:
    """How many tokens the model knows: a logit for each. The tokenizer's count may be another."""
    bound = method.outputs[LOGITS].bound
    assert bound is not None  # with_sampler refuses anything else
    return bound[-1]


def cache_rows(plan: Plan) -> int:
    """The length of the KV caches, where the program does not say it: they are (B, C, H, D)."""
    rows = [plan.graph.tensor(t).dims[1] for b in plan.buffers if b.kind == "state" for t in b.tensors]
    if not rows:
        raise InputError("the program has no KV cache; export it with one to generate text")
    return min(rows)


def context(program: Program, plan: Plan) -> int:
    """Tokens that a sequence may have."""
    told = metadata(program, "get_max_context_len", None)
    return int(told) if told is not None else cache_rows(plan)


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
    return None if keeps_every_position(plan.graph, plan.flow.state) else LAST_TOKEN_ONLY


def beside(program: Path, name: str) -> Path | None:
    """`model.tokenizer.json`, or `tokenizer.json`, in the folder of `model.pte`."""
    for candidate in (program.with_name(f"{program.stem}.{name}"), program.with_name(name)):
        if candidate.exists():
            return candidate
    return None
