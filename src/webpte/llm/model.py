"""A language model with its cache: load once, ask many times."""

from __future__ import annotations

import copy
import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

from ..errors import DeviceLost, FormatError, InputError
from ..progress import OnProgress, ignore
from ..runtime import Method, Program, load
from ..runtime.process import Process
from .caches import with_sampler_and_half_caches
from .cancel import CancelToken
from .chat import Messages, render_chat
from .choice import Choice, Chosen, choice_of, impossible, pack, unpack, wanted
from .errors import ContextFullError
from .generation import Generation
from .metadata import beside, cache_rows, metadata, numbers, vocabulary
from .occupancy import Occupancy
from .sampled import LOGITS, TOKEN, with_sampler
from .settings import LARGEST, Settings, integer, settings_from, tokens_from
from .special_tokens import encode_prompt, read_special_tokens
from .tokenizer import Tokenizer

PathLike = str | os.PathLike[str]
Result = TypeVar("Result")
REWRITES = {"f32": with_sampler, "f16": with_sampler_and_half_caches}
ANY = pack([Choice()])  # where nobody asks which token is chosen
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
    """Generates text, one answer at a time: `fork()` gives a second sequence over the same weights.

    It may be used from any thread. An answer that is begun takes the cache from the one before it.
    """

    def __init__(
        self,
        program: Program,
        method: Method,
        tokenizer: Tokenizer,
        template: str | None = None,
        tokenizer_config: Path | None = None,
    ) -> None:
        self.program = program
        self.method = method
        self.tokenizer = tokenizer
        self.template = template
        self._eos_ids = numbers(metadata(program, "get_eos_ids", ()))
        bos_id = next(iter(numbers(metadata(program, "get_bos_id", ()))), None)
        self.special_tokens = read_special_tokens(tokenizer_config, tokenizer, bos_id, self._eos_ids)
        self.capacity = int(metadata(program, "get_max_context_len", cache_rows(method)))
        self.chunk = method.inputs[0].bound[1] if method.inputs[0].bound else 1
        self.vocabulary = vocabulary(method)
        self.stop_tokens = self._stop_tokens()
        self._occupancy = Occupancy()
        self._lock = threading.RLock()  # held for a step at a time, and taken before the program's
        self._recoveries = method.recoveries  # of the method's, those after which the cache was filled again
        self._recovers = False
        self._owner = True
        self._process = Process("the language model")

    @classmethod
    def load(
        cls,
        path: PathLike,
        tokenizer: PathLike | None = None,
        data: Iterable[PathLike] = (),
        progress: OnProgress = ignore,
        kv_cache: Literal["f32", "f16"] = "f32",
        recover: bool = False,
        **options: Any,
    ) -> LLM:
        """Open a program. Beside it are looked for `tokenizer.json`, unless it is given, `tokenizer_config.json` with
        the names of special tokens, and `chat_template.jinja`.

        `kv_cache="f16"` halves the cache's memory at the cost of some precision. With `recover`, an answer whose device
        is lost goes on with another, instead of raising DeviceLost.
        """
        if kv_cache not in REWRITES:
            raise InputError(f"kv_cache is one of {', '.join(REWRITES)}, not {kv_cache!r}")
        found = Path(tokenizer) if tokenizer is not None else beside(Path(path), "tokenizer.json")
        if found is None:
            raise InputError(f"there is no tokenizer.json beside {os.fspath(path)}; pass tokenizer=")
        template = beside(Path(path), "chat_template.jinja")
        program = load(path, data, progress=progress, **options)
        try:
            text = template.read_text() if template is not None else None
            method = program.method("forward", REWRITES[kv_cache], progress)
            model = cls(program, method, Tokenizer.load(found), text, beside(Path(path), "tokenizer_config.json"))
            model._recovers = recover
            return model
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
        """A stream of pieces. A string is continued as it is, after the begin-of-text token where the tokenizer or its
        configuration says so; messages go through the chat template.

        Settings: max_new_tokens, temperature (0 is greedy), top_k, top_p, seed, stop, logprobs.
        """
        chosen = settings_from(settings)
        if tokens is None:
            tokens = self._encode(prompt)
        elif prompt is not None:
            raise InputError("generate takes a prompt or tokens, not both")
        checked = tokens_from(tokens, self.vocabulary)
        if not checked:
            raise InputError("the prompt has no tokens")
        if len(checked) >= self.capacity:
            raise ContextFullError(f"the prompt has {len(checked)} tokens; the model's context holds {self.capacity}")
        return Generation(self, checked, chosen, cancel or CancelToken())

    def _encode(self, prompt: str | Messages | None) -> list[int]:
        if prompt is None:
            raise InputError("generate needs a prompt, messages or tokens")
        if isinstance(prompt, str):
            return encode_prompt(self.tokenizer, self.special_tokens, prompt)
        return self.tokenizer.encode(self.render(prompt))  # the template puts special tokens where it wants them

    def render(self, messages: Messages) -> str:
        """The prompt that the model's chat template makes of messages."""
        if self.template is None:
            raise InputError("the model has no chat template; put chat_template.jinja beside it or pass a string")
        return render_chat(self.template, messages, self.special_tokens.texts)

    # -- the cache -------------------------------------------------------------------------------------------------

    @property
    def position(self) -> int:
        """Tokens in the cache, up to the last one that was seen."""
        return self._occupancy.position

    @property
    def room(self) -> int:
        """Tokens that still fit."""
        return self.capacity - self.position

    def reset(self) -> None:
        """Forget everything said. The cache's rows are overwritten as they are needed again."""
        with self._locked():
            self._occupancy.take()
            self._occupancy.truncate(0)

    def rewind(self, count: int) -> None:
        """Forget the last `count` tokens."""
        with self._locked():
            if integer("rewind", count, 0, LARGEST) > self.position:
                raise InputError(f"cannot rewind {count} tokens; the cache holds {self.position}")
            self._occupancy.take()
            self._occupancy.truncate(self.position - count)

    def fork(self) -> LLM:
        """A second sequence that starts where this one is, over the same weights."""
        with self._locked():
            other = copy.copy(self)
            other.method = self._on_device(self.method.fork)
            other._recoveries = other.method.recoveries
            other._occupancy = Occupancy(self._occupancy.tokens)
            other._lock = threading.RLock()
            other._owner = False
            return other

    def snapshot(self, path: PathLike) -> None:
        """Write the cache and its tokens to a file."""
        with self._locked():
            note = json.dumps(list(self._occupancy.tokens)).encode()
            self._on_device(lambda: self.method.snapshot(path, note))

    def restore(self, path: PathLike) -> None:
        """Continue from a snapshot of the same model. One that is refused leaves everything as it is."""
        tokens: tuple[int, ...] = ()

        def accept(note: bytes) -> None:
            nonlocal tokens
            tokens = self._noted_tokens(path, note)
            self._occupancy.take()
            self._occupancy.truncate(0)  # until the whole state is written, nothing of it is certain

        with self._locked():
            self._on_device(lambda: self.method.restore(path, accept))
            self._occupancy.add(tokens)

    def recover(self, progress: OnProgress = ignore) -> bool:
        """After DeviceLost: open another device, load everything again, and compute what the cache held once more.

        Forks do the last for themselves when they are used next. False if no device was lost.
        """
        with self._locked():
            recovered = self.program.recover(progress)
            self._refill()
            return recovered

    def _on_device(self, work: Callable[[], Result]) -> Result:
        """Do what needs the cache, on a device that holds it. Work that was lost has changed nothing here."""
        try:
            return self._on_full_cache(work)
        except DeviceLost:
            if not self._recovers:
                raise
        self.recover()
        return self._on_full_cache(work)

    def _on_full_cache(self, work: Callable[[], Result]) -> Result:
        with self.method.exclusive():  # else another thread's recovery may empty the cache before the work
            self._refill()
            return work()

    def _refill(self) -> None:
        """Compute the known tokens again if the method's state began anew since."""
        recoveries = self.method.recoveries
        if recoveries == self._recoveries:
            return
        tokens = self._occupancy.computed
        for start in range(0, len(tokens), self.chunk):
            piece = tokens[start : start + self.chunk]
            self.method.run(self._arguments(piece, start, ANY), outputs=())
        self._recoveries = recoveries

    def _noted_tokens(self, path: PathLike, note: bytes) -> tuple[int, ...]:
        """The tokens that the note of a snapshot lists."""
        try:
            listed = json.loads(note)
            if not isinstance(listed, list):
                raise InputError(f"its note is {type(listed).__name__}")
            tokens = tokens_from(listed, self.vocabulary)
        except (ValueError, RecursionError, InputError) as error:
            raise FormatError(f"{os.fspath(path)} is no snapshot of a language model: {error}") from error
        if len(tokens) > self.capacity:
            raise FormatError(f"{os.fspath(path)} holds {len(tokens)} tokens; the context has {self.capacity}")
        return tokens

    def _locked(self) -> threading.RLock:
        self.check_process()  # in a fork of the process a thread that is not there may hold the lock
        return self._lock

    def check_process(self) -> None:
        """Raise ForkedError in any process but the one that loaded the model."""
        self._process.check()

    def close(self) -> None:
        if not self._process.here:
            return
        with self._lock:
            if self._owner:
                self.program.close()
            else:
                self.method.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- steps, for Generation -------------------------------------------------------------------------------------

    def prefill(
        self, holder: object, prompt: Sequence[int], settings: Settings, cancel: CancelToken
    ) -> tuple[int, Chosen | None]:
        """Give the cache to `holder` and bring it to the end of the prompt, a piece at a time.

        Returns how much was there already, and the first new token, or None if it was cancelled before.
        """
        with self._locked():
            # The last token is always computed again: its logits are what comes next.
            common = self._occupancy.common_prefix(prompt[:-1])
            self._occupancy.take(holder)
            self._occupancy.truncate(common)
        chosen: Chosen | None = None
        for start in range(common, len(prompt), self.chunk):
            if cancel.cancelled:
                return common, None
            piece = prompt[start : start + self.chunk]
            with self._locked():
                self._occupancy.check(holder)
                last = start + len(piece) == len(prompt)
                chosen = self._on_device(lambda: self._step(piece, settings, last))  # noqa: B023 - called at once
        return common, chosen

    def decode(self, holder: object, token: int, settings: Settings, step: int, count: int) -> list[Chosen]:
        """The next tokens, `count` of them if that many fit, in one submit: each is fed to the next step on the device.

        All of them but the last are then in the cache; `keep_back` says how many of those nobody has seen.
        """
        with self._locked():
            self._occupancy.check(holder)
            position = self.position
            count = max(1, min(count, self.room))
            self._check_room(count)
            choices = [choice_of(settings, step)]
            packed = pack(choices)
            steps = [self._arguments((token,), position + i, packed, i) for i in range(count)]
            results = self._on_device(lambda: self.method.run_steps(steps, {TOKEN: 0}, wanted(choices)))
            chosen = [unpack(found)[0] for found in results]
            # Those before an impossible one are good; asked for what follows them, it comes first and is an error.
            good = next((i for i, found in enumerate(chosen) if found.token < 0), count)
            if good == 0:
                raise impossible(chosen[0].token, position)
            self._occupancy.add([token, *(found.token for found in chosen[: good - 1])])
            self._occupancy.keep_back(holder, good - 1)
            return chosen[:good]

    def keep_back(self, holder: object, count: int) -> None:
        """Of what was decoded for `holder`, the last `count` tokens in the cache have not been seen."""
        with self._locked():
            self._occupancy.keep_back(holder, count)

    def logits(self, tokens: Sequence[int]) -> np.ndarray[Any, Any]:
        """Append tokens to the cache and return the logits behind the last one."""
        checked = tokens_from(tokens, self.vocabulary)
        if not checked:
            raise InputError("logits need at least one token")
        with self._locked():
            self._occupancy.take()
            (row,) = self._on_device(lambda: self._run(checked, ANY, (LOGITS,)))
            self._occupancy.add(checked)
            return np.asarray(row)

    def _step(self, tokens: Sequence[int], settings: Settings, read: bool) -> Chosen | None:
        """Compute a piece of a prompt, and with `read` the token behind it."""
        choices = [choice_of(settings, 0)]
        results = self._run(tokens, pack(choices), wanted(choices) if read else ())
        chosen = unpack(results)[0] if read else None
        if chosen is not None and chosen.token < 0:
            raise impossible(chosen.token, self.position + len(tokens) - 1)
        self._occupancy.add(tokens)
        return chosen

    def _run(self, tokens: Sequence[int], packed: tuple[Any, ...], outputs: Sequence[int]) -> tuple[Any, ...]:
        self._check_room(len(tokens))
        return self.method.run(self._arguments(tokens, self.position, packed), outputs=outputs)

    def _check_room(self, count: int) -> None:
        if count > self.room:
            raise ContextFullError(
                f"{count} more tokens do not fit: {self.position} of {self.capacity} are used. "
                "Reset, rewind, or export with a longer context."
            )

    @staticmethod
    def _arguments(tokens: Sequence[int], position: int, packed: tuple[Any, ...], advance: int = 0) -> tuple[Any, ...]:
        return (np.array([tokens], np.int64), np.array([position], np.int64), advance, *packed)

    def _stop_tokens(self) -> frozenset[int]:
        names = (self.tokenizer.token_id(token) for token in END_TOKENS)
        return frozenset(t for t in (*names, *self._eos_ids) if t is not None)
