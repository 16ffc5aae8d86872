"""A language model with its cache: load once, ask many times."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..errors import FormatError, InputError
from ..progress import OnProgress, ignore
from ..runtime import Method, Program, load
from .caches import with_sampler_and_half_caches
from .cancel import CancelToken
from .chat import Messages, render_chat
from .errors import ContextFullError
from .generation import Generation, Settings
from .sampled import LOG_PROBABILITY, LOGITS, TOKEN, with_sampler
from .tokenizer import Tokenizer

PathLike = str | os.PathLike[str]
Chosen = tuple[int, float]
REWRITES = {"f32": with_sampler, "f16": with_sampler_and_half_caches}
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


class LLM:
    """Generates text. Not for concurrent use: `fork()` gives a second sequence over the same weights."""

    def __init__(self, program: Program, method: Method, tokenizer: Tokenizer, template: str | None) -> None:
        self.program = program
        self.method = method
        self.tokenizer = tokenizer
        self.template = template
        self.capacity = int(_metadata(program, "get_max_context_len", _cache_rows(method)))
        self.chunk = method.inputs[0].bound[1] if method.inputs[0].bound else 1
        self.stop_tokens = self._stop_tokens()
        self._cached: list[int] = []  # tokens whose keys and values are in the cache
        self._owner = True

    @classmethod
    def load(
        cls,
        path: PathLike,
        tokenizer: PathLike | None = None,
        data: Iterable[PathLike] = (),
        progress: OnProgress = ignore,
        kv_cache: Literal["f32", "f16"] = "f32",
        **options: Any,
    ) -> LLM:
        """Open a program. `tokenizer.json` and `chat_template.jinja` are looked for beside it unless given.

        `kv_cache="f16"` halves the cache's memory at the cost of some precision.
        """
        if kv_cache not in REWRITES:
            raise InputError(f"kv_cache is one of {', '.join(REWRITES)}, not {kv_cache!r}")
        found = Path(tokenizer) if tokenizer is not None else _beside(Path(path), "tokenizer.json")
        if found is None:
            raise InputError(f"there is no tokenizer.json beside {os.fspath(path)}; pass tokenizer=")
        template = _beside(Path(path), "chat_template.jinja")
        program = load(path, data, progress=progress, **options)
        try:
            text = template.read_text() if template is not None else None
            return cls(program, program.method("forward", REWRITES[kv_cache], progress), Tokenizer.load(found), text)
        except BaseException:
            program.close()
            raise

    # -- asking ----------------------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: str | Messages | None = None,
        *,
        tokens: Sequence[int] | None = None,
        cancel: CancelToken | None = None,
        **settings: Any,
    ) -> Generation:
        """A stream of pieces. A string is continued as it is; messages go through the chat template.

        Settings: max_new_tokens, temperature (0 is greedy), top_k, top_p, seed, stop, logprobs.
        """
        if tokens is None:
            if prompt is None:
                raise InputError("generate needs a prompt, messages or tokens")
            tokens = self.tokenizer.encode(prompt if isinstance(prompt, str) else self.render(prompt))
        if not tokens:
            raise InputError("the prompt has no tokens")
        if len(tokens) >= self.capacity:
            raise ContextFullError(f"the prompt has {len(tokens)} tokens; the model's context holds {self.capacity}")
        try:
            chosen = Settings(**settings)
        except TypeError as error:
            raise InputError(f"generate: {error}") from None
        return Generation(self, tuple(tokens), chosen, cancel or CancelToken())

    def render(self, messages: Messages) -> str:
        """The prompt that the model's chat template makes of messages."""
        if self.template is None:
            raise InputError("the model has no chat template; put chat_template.jinja beside it or pass a string")
        return render_chat(self.template, messages)

    # -- the cache -------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Tokens in the cache."""
        return len(self._cached)

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.capacity - len(self._cached)

    def reset(self) -> None:
        """Forget everything said. The cache's rows are overwritten as they are needed again."""
        self._cached.clear()

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens."""
        if not 0 <= count <= len(self._cached):
            raise InputError(f"cannot rewind {count} tokens; the cache holds {len(self._cached)}")
        del self._cached[len(self._cached) - count :]

    def fork(self) -> LLM:
        """A second sequence that starts where this one is, over the same weights."""
        other = object.__new__(LLM)
        other.__dict__.update(self.__dict__)
        other.method = self.method.fork()
        other._cached = list(self._cached)
        other._owner = False
        return other

    def snapshot(self, path: PathLike) -> None:
        """Write the cache and its tokens to a file."""
        self.method.snapshot(path, json.dumps(self._cached).encode())

    def restore(self, path: PathLike) -> None:
        """Continue from a snapshot of the same model."""
        note = self.method.restore(path)
        try:
            self._cached = [int(token) for token in json.loads(note)]
        except ValueError as error:
            raise FormatError(f"{os.fspath(path)} is no snapshot of a language model") from error

    def close(self) -> None:
        if self._owner:
            self.program.close()
        else:
            self.method.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- steps, for Generation -------------------------------------------------------------------------------------

    def prefill(self, prompt: Sequence[int], settings: Settings, cancel: CancelToken) -> tuple[int, Chosen | None]:
        """Bring the cache to the end of the prompt. Returns how much was there already, and the first new token."""
        common = 0
        # The last token is always computed again: its logits are what comes next.
        for known, wanted in zip(self._cached, prompt[:-1], strict=False):
            if known != wanted:
                break
            common += 1
        del self._cached[common:]
        chosen: Chosen | None = None
        for start in range(common, len(prompt), self.chunk):
            if cancel.cancelled:
                return common, None
            piece = prompt[start : start + self.chunk]
            last = start + len(piece) == len(prompt)
            chosen = self._step(piece, settings, 0, read=last)
        return common, chosen

    def decode(self, token: int, settings: Settings, step: int, count: int) -> list[Chosen]:
        """The next tokens, `count` of them if that many fit, in one submit: each is fed to the next step on the device.

        All of them but the last are then in the cache; the caller rewinds what it does not want.
        """
        count = max(1, min(count, self.room))
        self._check_room(count)
        wanted = (TOKEN, LOG_PROBABILITY) if settings.logprobs else (TOKEN,)
        steps = [self._arguments((token,), settings, step + i, len(self._cached) + i) for i in range(count)]
        results = self.method.run_steps(steps, {TOKEN: 0}, wanted)
        chosen = [_chosen(found) for found in results]
        self._cached += [token, *(next_token for next_token, _ in chosen[:-1])]
        return chosen

    def logits(self, tokens: Sequence[int]) -> np.ndarray[Any, Any]:
        """Append tokens to the cache and return the logits behind the last one."""
        (row,) = self._run(tokens, Settings(), 0, (LOGITS,))
        return np.asarray(row)

    def _step(self, tokens: Sequence[int], settings: Settings, step: int, read: bool) -> Chosen | None:
        wanted = () if not read else (TOKEN, LOG_PROBABILITY) if settings.logprobs else (TOKEN,)
        results = self._run(tokens, settings, step, wanted)
        if not read:
            return None
        return _chosen(results)

    def _run(self, tokens: Sequence[int], settings: Settings, step: int, wanted: Sequence[int]) -> tuple[Any, ...]:
        self._check_room(len(tokens))
        results = self.method.run(self._arguments(tokens, settings, step, len(self._cached)), outputs=wanted)
        self._cached.extend(tokens)
        return results

    def _check_room(self, count: int) -> None:
        if count > self.room:
            raise ContextFullError(
                f"{count} more tokens do not fit: {len(self._cached)} of {self.capacity} are used. "
                "Reset, rewind, or export with a longer context."
            )

    @staticmethod
    def _arguments(tokens: Sequence[int], settings: Settings, step: int, position: int) -> tuple[Any, ...]:
        chosen = (settings.temperature, settings.top_k, settings.top_p, settings.seed, step)
        return (np.array([tokens], np.int64), np.array([position], np.int64), *chosen)

    def _stop_tokens(self) -> frozenset[int]:
        names = (self.tokenizer.token_id(token) for token in END_TOKENS)
        listed = _metadata(self.program, "get_eos_ids", ())
        listed = listed if isinstance(listed, tuple) else (listed,)
        return frozenset(int(t) for t in (*names, *listed) if t is not None)


def _chosen(results: Sequence[Any]) -> Chosen:
    return int(results[0][0]), float(results[1][0]) if len(results) > 1 else 0.0


def _metadata(program: Program, name: str, default: Any) -> Any:
    return program.method(name)() if name in program.method_names else default


def _cache_rows(method: Method) -> int:
    """The length of the KV caches, where the program does not say it: they are (B, C, H, D)."""
    graph = method.plan.graph
    rows = [graph.tensor(t).dims[1] for b in method.plan.buffers if b.kind == "state" for t in b.tensors]
    if not rows:
        raise InputError("the program has no KV cache; export it with one to generate text")
    return min(rows)


def _beside(program: Path, name: str) -> Path | None:
    """`model.tokenizer.json`, or `tokenizer.json`, in the folder of `model.pte`."""
    for candidate in (program.with_name(f"{program.stem}.{name}"), program.with_name(name)):
        if candidate.exists():
            return candidate
    return None
