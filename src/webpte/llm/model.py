"""A language model: load once, ask many times, many at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Tokens
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Unpack

from ..errors import InputError, UnsupportedError
from ..graph import DType
from ..progress import CancelToken, OnProgress, ignore, stoppable
from ..runtime import Bundle, Method, Program, load
from ..runtime.checks import callback, described, flag, one_of, path_of
from ..runtime.program import Tune
from ..text import table
from .bundled_runner import BundledRunner
from .caches import with_sampler_and_half_caches
from .chat import Messages, Tools, render_chat
from .engine import Engine
from .errors import ContextFullError
from .generation import Generation
from .guides import Guides
from .many import Many, Prompt
from .metadata import About, about_bundle, about_program, context, language_of, vocabulary
from .preparing import prepare
from .reach import reach_of
from .rows import Runner
from .sampled import with_sampler
from .sequence import Sequence
from .settings import LARGEST, GenerateSettings, Settings, integer, settings_from, shows_settings, tokens_from
from .single_runner import SingleRunner
from .slot_runner import SlotRunner
from .special_tokens import encode_prompt, read_special_tokens
from .speculation import Speculation
from .steering import Steering
from .tokenizer import Tokenizer
from .tools import ToolFormat

PathLike = str | os.PathLike[str]
MAX_SEQUENCES, MOST_SEQUENCES = 16, 4096
MAX_WAITING = 1024
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
    """Weights, a tokenizer and an engine that computes many answers at once. It may be used from any thread."""

    path = ""  # where it was loaded from
    _guides: Guides | None = None

    def __init__(
        self,
        program: Program,
        runner: Runner,
        about: About,
        tokenizer: Tokenizer,
        *,
        max_sequences: int = MAX_SEQUENCES,
        max_waiting: int = MAX_WAITING,
        prefix_cache: int = 0,
        recover: bool = False,
    ) -> None:
        self.program = program
        self.about = about
        self.tokenizer = tokenizer
        self.template = about.template
        self.special_tokens = read_special_tokens(about.tokenizer_config, self.tokenizer, about.bos_id, about.eos_ids)
        self.engine = Engine(
            runner,
            most_slots=max_sequences,
            more_slots=prefix_cache // max(1, sum(runner.sizes(runner.capacity))) if prefix_cache else 0,
            most_waiting=max_waiting,
            recover=self.recover if recover else None,
        )
        self.capacity = runner.capacity
        self.chunk = runner.most_rows
        self.vocabulary = vocabulary(runner.method)
        self.stop_tokens = self._stop_tokens()
        self.worker = ThreadPoolExecutor(1, "webpte answers")  # of all that are read by `async for`

    @classmethod
    def load(
        cls,
        path: PathLike,
        tokenizer: PathLike | None = None,
        data: Iterable[PathLike] = (),
        *,
        kv_cache: Literal["f32", "f16"] = "f32",
        recover: bool = False,
        max_sequences: int = MAX_SEQUENCES,
        max_waiting: int = MAX_WAITING,
        prefix_cache: int = 0,
        cancel: CancelToken | None = None,
        fallback: Literal["cpu"] | None = None,
        limits: Mapping[str, int] | None = None,
        passes: list[str] | tuple[str, ...] | None = None,
        tune: Tune = "cached",
        memory: int | None = None,
        progress: OnProgress = ignore,
    ) -> LLM:
        """Open a program, or a bundle of one. Beside a program are looked for `tokenizer.json`, unless it is given,
        `tokenizer_config.json` with the names of special tokens, and `chat_template.jinja`; a bundle has them.

        `kv_cache="f16"` halves the cache's memory at the cost of some precision. With `recover`, an answer whose device
        is lost goes on with another, instead of raising DeviceLost. Up to `max_sequences` are computed at once, as
        memory allows; `max_waiting` more may wait for their turn. What prompts begin with alike is computed once while
        a cache still holds it: in that of any answer, also of one that is over, and in `prefix_cache` bytes of further
        ones, of which those go first that were longest of no use. The rest is as in `webpte.load`.
        """
        path_of(path, "path")
        if tokenizer is not None:
            path_of(tokenizer, "tokenizer")
        one_of(kv_cache, "kv_cache", tuple(REWRITES))
        flag(recover, "recover")
        callback(progress, "progress", "events")
        progress = stoppable(progress, cancel)
        most = integer("max_sequences", max_sequences, 1, MOST_SEQUENCES)
        waiting = integer("max_waiting", max_waiting, 1, LARGEST)
        prefixes = integer("prefix_cache", prefix_cache, 0, 1 << 50)
        program = load(
            path, data, fallback=fallback, limits=limits, passes=passes, tune=tune, memory=memory, progress=progress
        )
        try:
            about = _about(program, Path(path), tokenizer)  # files first: planning and uploading take their time
            words = Tokenizer.load(about.tokenizer)
            llm = cls(
                program,
                _runner(program, kv_cache, MOST_SEQUENCES if prefixes else most, progress),
                about,
                words,
                max_sequences=most,
                max_waiting=waiting,
                prefix_cache=prefixes,
                recover=recover,
            )
            llm.path = os.fspath(path)
            return llm
        except BaseException:
            program.close()
            raise

    # -- asking ----------------------------------------------------------------------------------------------------

    @shows_settings
    def generate(
        self,
        prompt: str | Messages | None = None,
        *,
        tokens: Tokens[int] | None = None,
        tools: Tools | None = None,
        cancel: CancelToken | None = None,
        **settings: Unpack[GenerateSettings],
    ) -> Generation:
        """An answer, computed while it is read. A string is continued as it is, after the begin-of-text token where the
        tokenizer or its configuration says so; messages go through the chat template, which is given `tools`, too:
        a list of objects with `type` and `function`.

        `max_new_tokens` and `stop` say when it ends; `temperature` (0 takes the likeliest token), `top_k`, `top_p`,
        `min_p`, the penalties, `logit_bias` (a mapping of tokens to numbers) and `seed` how tokens are chosen;
        `logprobs` and `top_logprobs` what pieces tell of that. The answer follows one of `json_schema`, `regex`,
        `grammar` and `choices`. All of it is checked now.
        """
        return self.answer_in(Sequence(self, kept=False), prompt, tokens, cancel, settings, tools)

    def resume(
        self, tokens: Tokens[int], given: Tokens[int], settings: Mapping[str, Any], cancel: CancelToken | None = None
    ) -> Generation:
        """The rest of an answer that was begun elsewhere, as in a process that has ended: to the prompt `tokens`, with
        these `settings`, of which the tokens `given` were read.

        Its pieces are those that would have followed there, whatever the settings: `text`, `tokens` and `usage` tell of
        the whole answer. Tokens that end an answer, or that its constraint does not allow, are refused.
        """
        answer = self.answer_in(Sequence(self, kept=False), None, tokens, cancel, settings, given=given)
        if given:
            answer.start()  # what cannot have been given is refused now
        return answer

    def answer_in(
        self,
        sequence: Sequence,
        prompt: str | Messages | None,
        tokens: Tokens[int] | None,
        cancel: CancelToken | None,
        settings: Mapping[str, Any],
        tools: Tools | None = None,
        given: Tokens[int] = (),
    ) -> Generation:
        """What `generate` and `resume` do, in a sequence."""
        chosen = settings_from(settings, self.vocabulary)
        _check_cancel(cancel)
        if chosen.constraint is not None:
            self.guides.guide(chosen.constraint)  # what cannot be followed is refused now
        if tools is not None and (prompt is None or isinstance(prompt, str)):
            raise InputError("tools are for messages, whose chat template names them to the model")
        if tokens is None:
            tokens = self._encode(prompt, tools)
        elif prompt is not None:
            raise InputError("generate takes a prompt or tokens, not both")
        checked = tokens_from(tokens, self.vocabulary)
        if not checked:
            raise InputError(
                "the prompt has no tokens; a text of a character, or one token, is the least", code="empty_prompt"
            )
        if len(checked) >= self.capacity:
            raise ContextFullError(f"the prompt has {len(checked)} tokens; the model's context holds {self.capacity}")
        said = tokens_from(given, self.vocabulary)
        return Generation(sequence, checked, chosen, cancel, said)

    def _encode(self, prompt: str | Messages | None, tools: Tools | None = None) -> list[int]:
        if prompt is None:
            raise InputError("generate needs a prompt: a text, or messages; or tokens=")
        if isinstance(prompt, str):
            return encode_prompt(self.tokenizer, self.special_tokens, prompt)
        _check_messages(prompt)
        return self.tokenizer.encode(self.render(prompt, tools))  # the template puts special tokens where it wants them

    def render(self, messages: Messages, tools: Tools | None = None) -> str:
        """The prompt that the model's chat template makes of messages, and of tools that it may call."""
        if self.template is None:
            raise InputError("the model has no chat template; put chat_template.jinja beside it or pass a string")
        return render_chat(self.template, messages, self.special_tokens.texts, tools=tools)

    @property
    def tool_format(self) -> ToolFormat | None:
        """How the model writes calls of tools; None if it was not made for them, or its files do not tell."""
        return self.special_tokens.tool_format

    @shows_settings
    def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        in_order: bool = True,
        progress: OnProgress = ignore,
        cancel: CancelToken | None = None,
        **settings: Unpack[GenerateSettings],
    ) -> Iterator[Generation]:
        """Finished answers, in the order of the prompts or as they come: as many are computed at once as there may be.

        A prompt is a text, messages, or a mapping with `prompt` or `tokens` and settings of its own. An answer that
        fails has an `error`, and the others go on. Prompts are taken one by one as there is room for them.
        Once cancelled, no more are taken, and answers under way end with what they have.
        """
        settings_from(settings, self.vocabulary)
        flag(in_order, "in_order")
        _check_cancel(cancel)
        callback(progress, "progress", "events")
        if isinstance(prompts, (str, bytes, Mapping)) or not isinstance(prompts, Iterable):
            raise InputError(f"prompts are a list, or another iterable, of prompts, not {described(prompts)}")
        return (answer for _, answer in Many(self, prompts, settings, in_order, progress, cancel).run())

    def sequence(self) -> Sequence:
        """A conversation of its own, to be continued, rewound, forked or written down."""
        return Sequence(self)

    def prepare(self, progress: OnProgress = ignore, cancel: CancelToken | None = None) -> None:
        """Do now what the first answers would have to wait for: all slots are made, as memory allows, and kernels are
        compiled for any number of answers at once. What answers that are over have left in the cache is let go of.
        """
        prepare(self, stoppable(progress, cancel))

    def forget(self) -> None:
        """Let go of what answers that are over have left in the cache, where prompts that begin alike would find it."""
        self.check_process()
        with self.engine.turn:
            self.engine.table.forget()

    # -- for answers -----------------------------------------------------------------------------------------------

    @property
    def guides(self) -> Guides:
        """What follows constraints. Reading the vocabulary takes a moment, so it is done when it is first needed."""
        found = self._guides
        if found is None or found.ends != self.stop_tokens:
            found = self._guides = Guides(self.tokenizer, self.vocabulary, self.stop_tokens)
        return found

    def steering(self, settings: Settings, prompt: Tokens[int]) -> Steering:
        """What an answer has to follow, and what is expected of it."""
        guide = self.guides.guide(settings.constraint) if settings.constraint is not None else None
        if settings.speculate is False or not self.engine.runner.most_drafts:
            return Steering(guide)
        return Steering(guide, Speculation(self.engine.costs, prompt, always=settings.speculate is True))

    # -- the device ------------------------------------------------------------------------------------------------

    @property
    def method(self) -> Method:
        """What runs on the device."""
        return self.engine.runner.method

    @property
    def refusal(self) -> str | None:
        """Why the program computes one sequence at a time; None if it computes many."""
        return self.engine.runner.refusal

    @property
    def fingerprint(self) -> str:
        """What snapshots of this model are known by."""
        return self.method.fingerprint()

    def recover(self, progress: OnProgress = ignore, cancel: CancelToken | None = None) -> bool:
        """After DeviceLost: open another device and load everything again. False if no device was lost.

        Sequences know their tokens, and compute them once more when they are used next.
        """
        self.check_process()
        with self.engine.turn:
            return self.program.recover(progress, cancel)

    def check_process(self) -> None:
        """Raise ForkedError in any process but the one that loaded the model."""
        self.engine.check_process()

    @property
    def in_its_process(self) -> bool:
        return self.engine.process.here

    def close(self) -> None:
        if self.in_its_process:
            self.worker.shutdown(wait=False)
            with self.engine.turn:
                self.program.close()

    def __repr__(self) -> str:
        found = ", ".join(f"{name}: {text}" if name != "program" else text for name, text in self._rows().items())
        return f"LLM({found})"

    def _repr_html_(self) -> str:
        return table("LLM", self._rows())

    def _rows(self) -> dict[str, str]:
        return {
            "program": repr(self.path),
            "context": f"{self.capacity:,} tokens",
            "vocabulary": f"{self.vocabulary:,} tokens",
            "at once": f"up to {self.engine.most_at_once:,} answers",
            "chat template": "yes" if self.template is not None else "no",
        }

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _stop_tokens(self) -> frozenset[int]:
        names = (self.tokenizer.token_id(token) for token in END_TOKENS)
        return frozenset(t for t in (*names, *self.about.eos_ids) if t is not None)


def _check_messages(prompt: object) -> None:
    if not isinstance(prompt, Tokens) or isinstance(prompt, (bytes, bytearray)):
        raise InputError(f"prompt is a text, or a list of messages with role and content, not {described(prompt)}")


def _check_cancel(cancel: object) -> None:
    if cancel is not None and not isinstance(cancel, CancelToken):
        raise InputError(f"cancel is a webpte.CancelToken or None, not {described(cancel)}")


def _about(program: Program, path: Path, tokenizer: PathLike | None) -> About:
    given = Path(tokenizer) if tokenizer is not None else None
    return about_bundle(program, given) if isinstance(program, Bundle) else about_program(program, path, given)


def _runner(program: Program, kv_cache: str, most_slots: int, progress: OnProgress) -> Runner:
    """Of many sequences, or of one where the program's structure allows no more."""
    if isinstance(program, Bundle):
        if kv_cache != "f32":
            raise InputError(f"a bundle's caches are as they were planned, f32; kv_cache={kv_cache!r} is for programs")
        return BundledRunner(program, language_of(program), most_slots, progress)
    halves = DType.FLOAT16 if kv_cache == "f16" else None
    try:
        return SlotRunner(program, most_slots, halves, progress)
    except UnsupportedError as error:
        method = program.method("forward", REWRITES[kv_cache], progress)
        return SingleRunner(method, context(program, method.plan), reach_of(program, method.plan), refusal=str(error))
