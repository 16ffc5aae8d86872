"""A language model: load it once, generate many texts, many at once."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Tokens
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

from ..errors import InputError
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..runtime import load_source
from ..runtime.checks import OneProcess, check_bool, check_callable, check_path, described
from ..runtime.program import Tune
from ..sources import resolve_program
from ..text import table
from ..typing import PathLike
from .adapters import adapter_number, check_adapters
from .batch_generator import BatchGenerator, Prompt
from .chat import Chat
from .context import ContextLimit
from .defaults import describe_defaults
from .engine.core import EngineCore, EngineStats
from .engine.embeddings import Segment, check_encoder_inputs, is_token
from .engine.output import OutputProcessor, OutputSink
from .engine.reasoning import ReasoningSplitter
from .engine.request import SamplingRequest, SequenceState
from .engine.speculation import DecodeState, Speculation
from .generation import Generation, check_cancel, create_generation
from .loading import cache_slots, load_adapters, load_images, load_metadata, load_runner, stop_tokens
from .metadata import (
    context_limit,
    vocabulary,
)
from .options import MAX_SEQUENCES_LIMIT, EngineOptions, KvCache
from .prompts import Messages, Tools, read_special_tokens
from .sequence import Sequence
from .settings import (
    LARGEST,
    GenerateSettings,
    SamplingParams,
    integer,
    shows_settings,
    tokens_from,
)
from .text_model import TextModel
from .tokenizer import Tokenizer
from .tool_shapes import ToolFormat


class LLMLoadOptions(TypedDict, total=False):
    """The keywords of `LLM`, for type checkers."""

    max_context: int | None
    kv_cache: KvCache
    recover: bool
    max_sequences: int
    max_queue_size: int
    prefix_cache: int
    cancel: CancelToken | None
    fallback: Literal["cpu"] | None
    limits: Mapping[str, int] | None
    passes: list[str] | tuple[str, ...] | None
    tune: Tune
    memory: int | None
    exact: bool
    adapters: Mapping[str, PathLike] | None
    progress: OnProgress


class LLM(OneProcess):
    """A language model: weights, a tokenizer and an engine that computes many answers at once. It is thread-safe."""

    def __init__(
        self,
        path: PathLike,
        tokenizer: PathLike | None = None,
        data: Iterable[PathLike] = (),
        *,
        max_context: int | None = None,
        kv_cache: KvCache = EngineOptions.kv_cache,
        recover: bool = EngineOptions.recover,
        max_sequences: int = EngineOptions.max_sequences,
        max_queue_size: int = EngineOptions.max_queue_size,
        prefix_cache: int = EngineOptions.prefix_cache,
        cancel: CancelToken | None = None,
        fallback: Literal["cpu"] | None = None,
        limits: Mapping[str, int] | None = None,
        passes: list[str] | tuple[str, ...] | None = None,
        tune: Tune = "cached",
        memory: int | None = None,
        exact: bool = False,
        adapters: Mapping[str, PathLike] | None = None,
        progress: OnProgress = ignore,
    ) -> None:
        """Load a language model from a program, a bundle or a checkpoint.

        A checkpoint is a .gguf file, a folder with config.json and safetensors, `hf:org/name`, or a short name such as
        "smollm2". It is built into a program on first use; `webpte models` lists these programs. Its context has
        `max_context` tokens: by default those of the model's own, at most 8,192 and as free memory allows.

        Beside a program, five files are looked for: `tokenizer.json` or `tokenizer.model` (unless `tokenizer` names
        one), `tokenizer_config.json` with the names of special tokens, `chat_template.jinja`,
        `generation_config.json` with sampling defaults, and `preprocessor_config.json` if the program has an image
        encoder. A bundle contains the others.

        `kv_cache="f16"` halves the cache's memory, "int8" about halves it again; both cost some precision. "auto" is
        f16 on a GPU that has it, and f32 elsewhere and in programs whose sequences cannot be batched. With
        `recover`, answers resume on another device if theirs is lost; otherwise they raise DeviceLost. Up to
        `max_sequences` answers are computed at once, as memory allows, and `max_queue_size` more may wait. A common
        prefix of prompts is computed once while a cache slot holds it; `prefix_cache` adds that many bytes of slots for
        this, and least recently used ones are evicted first. `adapters` names folders with LoRA adapters in PEFT's
        layout, among which each answer may choose. The other arguments are those of `webpte.load`.
        """
        check_path(path, "path")
        if tokenizer is not None:
            check_path(tokenizer, "tokenizer")
        check_callable(progress, "progress", "events")
        progress = cancellable(progress, cancel)
        options = EngineOptions(kv_cache, recover, max_sequences, max_queue_size, prefix_cache)
        folders = check_adapters({} if adapters is None else adapters)
        limit = None if max_context is None else integer("max_context", max_context, 2, LARGEST)
        path = resolve_program(path, progress, limit)
        program = load_source(
            path,
            data,
            fallback=fallback,
            limits=limits,
            passes=passes,
            tune=tune,
            memory=memory,
            exact=exact,
            progress=progress,
        )
        try:
            metadata = load_metadata(
                program, Path(path), tokenizer
            )  # files first: planning and uploading take their time
            tokens = Tokenizer.load(metadata.tokenizer)
            slots = MAX_SEQUENCES_LIMIT if options.prefix_cache else options.max_sequences
            loaded = load_adapters(program, os.fspath(path), folders)
            runner = load_runner(program, options.kv_cache, slots, progress, loaded)
            images = load_images(program, metadata, runner, tokens)
        except BaseException:
            program.close()
            raise
        self.path = os.fspath(path)  #: of the program or bundle
        self._program = program
        self.metadata = metadata  #: the files beside the program
        self.capacity = runner.capacity  #: tokens of the context
        self.text_model = TextModel(
            tokens,
            read_special_tokens(metadata.tokenizer_config, tokens, metadata.bos_id, metadata.eos_ids),
            metadata.template,
            stop_tokens(tokens, metadata.eos_ids),
            vocabulary=vocabulary(runner.method),
            context_limit=context_limit(program, runner.capacity),
            sampling_defaults=metadata.sampling,
            images=images,
            adapters=loaded.names,
        )  #: tokenizer, chat template and checks of prompts
        self.engine = EngineCore(
            runner,
            max_num_seqs=options.max_sequences,
            num_cache_slots=cache_slots(options.prefix_cache, runner),
            max_queue_size=options.max_queue_size,
            recover=_weakly(self) if options.recover else None,
        )  #: scheduler, cache slots and model runner

    # -- text ------------------------------------------------------------------------------------------------------

    @property
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer: its `encode` and `decode` convert between text and tokens."""
        return self.text_model.tokenizer

    @property
    def template(self) -> str | None:
        """Return the chat template, in Jinja; None if the model has none."""
        return self.text_model.template

    @property
    def vocabulary(self) -> int:
        """Return the number of tokens that the model can generate."""
        return self.text_model.vocabulary

    @property
    def context_limit(self) -> ContextLimit:
        """Return why the context is not longer."""
        return self.text_model.context_limit

    @property
    def adapters(self) -> tuple[str, ...]:
        """Return the names of the adapters that an answer may have."""
        return tuple(self.text_model.adapters)

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Return the tokens that end an answer. They may be replaced."""
        return self.text_model.stop_tokens

    @stop_tokens.setter
    def stop_tokens(self, tokens: frozenset[int]) -> None:
        self.text_model.stop_tokens = tokens

    @property
    def sampling_defaults(self) -> Mapping[str, Any]:
        """Return the settings of answers that set none: those of `generation_config.json`, or else ours. They may be
        replaced."""
        return self.text_model.sampling_defaults

    @sampling_defaults.setter
    def sampling_defaults(self, settings: Mapping[str, Any]) -> None:
        self.text_model.sampling_defaults = settings

    @classmethod
    def load(
        cls,
        path: PathLike,
        tokenizer: PathLike | None = None,
        data: Iterable[PathLike] = (),
        **options: Unpack[LLMLoadOptions],
    ) -> LLM:
        """Load a language model: the same as `LLM(path, ...)`."""
        return cls(path, tokenizer, data, **options)

    # -- asking ----------------------------------------------------------------------------------------------------

    @shows_settings
    def generate(
        self,
        prompt: str | Messages | None = None,
        *,
        tokens: Tokens[Segment] | None = None,
        tools: Tools | None = None,
        parse_special: bool = False,
        cancel: CancelToken | None = None,
        **settings: Unpack[GenerateSettings],
    ) -> Generation:
        """Return an answer, which the engine computes once it is read. `str(answer)` waits for its text.

        A string is a user's message. If the model has no chat template, the string is continued as it is: see
        `complete`. Messages are rendered by the chat template, together with `tools`: a list of objects with `type` and
        `function`. Special tokens spelled in the prompt, such as `<|im_end|>`, are ordinary text, unless
        `parse_special` is true. If the model sees, a message's content may be a list of parts: texts, and images such
        as `{"type": "image", "path": "cat.jpg"}`, or with `image` (bytes, a PIL image or an array of pixels) or `url`
        (a data address) instead of `path`.

        `max_new_tokens` and `stop` end the answer. `temperature` (0 is greedy), `top_k`, `top_p`, `min_p`, the
        penalties, `logit_bias` (a mapping of tokens to numbers) and `seed` control sampling; without them, the model's
        `sampling_defaults` apply. `logprobs` and `top_logprobs` add log probabilities to the pieces. One of
        `json_schema`, `regex`, `grammar` and `choices` constrains the text. All arguments are checked before this
        returns.

        If the model thinks before it answers, `answer.reasoning` is its thought, and `stop` and constraints hold for
        the answer after it. `think` and `reasoning_effort` are passed to chat templates that read them.
        `thinking_budget` is the maximum length of a thought in tokens.
        """
        return create_generation(
            self, settings, prompt=prompt, tokens=tokens, tools=tools, parse_special=parse_special, cancel=cancel
        )

    @shows_settings
    def complete(
        self,
        text: str,
        *,
        parse_special: bool = False,
        cancel: CancelToken | None = None,
        **settings: Unpack[GenerateSettings],
    ) -> Generation:
        """Continue a text as it is, after the begin-of-text token if the tokenizer or its configuration adds one."""
        return create_generation(self, settings, text=text, parse_special=parse_special, cancel=cancel)

    @shows_settings
    def chat(self, system: str | None = None, **settings: Unpack[GenerateSettings]) -> Chat:
        """Return a conversation: `chat.ask("...")` answers a question after those before it."""
        self.text_model.check_template()
        self.text_model.sampling_params(settings)
        return Chat(self, system, settings)

    def resume(
        self,
        tokens: Tokens[int],
        generated: Tokens[int],
        settings: Mapping[str, Any],
        cancel: CancelToken | None = None,
    ) -> Generation:
        """Continue an answer that another process has begun: to the prompt `tokens`, with these `settings`, after the
        tokens `generated`.

        The pieces are those that would have followed there, whatever the settings. `text`, `tokens` and `usage` are
        those of the whole answer. Tokens that end an answer, or that its constraint does not allow, are an InputError.
        """
        return create_generation(self, settings, tokens=tokens, generated=generated, cancel=cancel)

    # -- requests, for servers -------------------------------------------------------------------------------------

    def request(
        self,
        tokens: Tokens[Segment],
        params: SamplingParams,
        generated: Tokens[int] = (),
        *,
        state: SequenceState | None = None,
        domain: str = "",
        cancel: CancelToken | None = None,
        sink: OutputSink | None = None,
    ) -> SamplingRequest:
        """Return a request for `submit`: see `resume`. Its outputs go to `sink`. Only requests of one `domain` share
        cached prefixes."""
        checked, inputs = self.text_model.prompt_ids(tokens)
        check_encoder_inputs(inputs, self.engine.runner)
        splitter = None
        if params.thought is not None:
            splitter = ReasoningSplitter(params.thought, constrained=params.constraint is not None)
        return SamplingRequest(
            state if state is not None else SequenceState(keeps_slot=False),
            checked,
            params,
            OutputProcessor(self.tokenizer, params.stop, splitter),
            stop_tokens=self.stop_tokens,
            capacity=self.capacity,
            max_logit_adjustments=self.engine.runner.max_logit_adjustments,
            decode_state=self._decode_state(params, list(filter(is_token, checked)), splitter),
            encoder_inputs=inputs,
            adapter=adapter_number(params.adapter, self.adapters),
            domain=domain,
            cancel=cancel,
            sink=sink,
            generated=tokens_from(generated, self.vocabulary),
        )

    def submit(self, request: SamplingRequest) -> None:
        """Queue a request, which the engine's thread computes."""
        self.engine.submit(request)

    def abort(self, request: SamplingRequest) -> None:
        """Stop computing a request."""
        self.engine.abort(request)

    def on_step(self, callback: Callable[[], object]) -> None:
        """Call a function of the engine's thread when the outputs of a step are delivered."""
        self.engine.after_step = callback

    def on_device_lost(self, recover: Callable[[], object]) -> None:
        """Call a function instead of `recover` when the device is lost during a step."""
        self.engine.recover = recover

    @property
    def stats(self) -> EngineStats:
        """Return the counts of the engine."""
        return self.engine.stats

    @property
    def max_sequences(self) -> int:
        """Return how many answers are computed at once."""
        return self.engine.max_num_seqs

    def render(self, messages: Messages, tools: Tools | None = None) -> str:
        """Return messages, and tools that may be called, as the model's chat template renders them."""
        return self.text_model.render(messages, tools)

    @property
    def tool_format(self) -> ToolFormat | None:
        """Return the format of the model's tool calls; None if its files do not specify one."""
        return self.text_model.tool_format

    @shows_settings
    def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        in_order: bool = True,
        parse_special: bool = False,
        progress: OnProgress = ignore,
        cancel: CancelToken | None = None,
        **settings: Unpack[GenerateSettings],
    ) -> Iterator[Generation]:
        """Yield finished answers, in the order of the prompts or, without `in_order`, as they finish.

        A prompt is a string or messages, as in `generate`, or a mapping with settings of its own and one of `prompt`,
        `text` (to continue as it is) and `tokens`. `parse_special` is that of `generate`, for all prompts. If an answer
        fails, its `error` is set, and the others continue. Prompts are read one by one as slots become free. Once
        cancelled, no more prompts are read, and unfinished answers end with the text so far.
        """
        self.text_model.sampling_params(settings)
        check_bool(in_order, "in_order")
        check_bool(parse_special, "parse_special")
        check_cancel(cancel)
        check_callable(progress, "progress", "events")
        if isinstance(prompts, (str, bytes, Mapping)) or not isinstance(prompts, Iterable):
            raise InputError(
                argument="prompts", expected="a list or another iterable of prompts", got=described(prompts)
            )
        arguments = {**settings, "parse_special": parse_special}
        return (answer for _, answer in BatchGenerator(self, prompts, arguments, in_order, progress, cancel).run())

    def sequence(self) -> Sequence:
        """Return a conversation that can be continued, rewound, forked and saved."""
        return Sequence(self)

    def warmup(self, progress: OnProgress = ignore, cancel: CancelToken | None = None) -> None:
        """Allocate all cache slots, as memory allows, and compile the kernels of every batch size, so that the first
        answers do not wait for it. If the program computes one answer at a time, the prefix cache is dropped.
        """
        self.engine.warm_up(cancellable(progress, cancel))

    def reset_prefix_cache(self) -> None:
        """Drop what finished answers have left in the cache for prompts with the same prefix."""
        with self.engine.exclusive():
            self.engine.kv_slots.reset_free()

    def _decode_state(
        self, params: SamplingParams, prompt: Tokens[int], splitter: ReasoningSplitter | None
    ) -> DecodeState:
        matcher = None
        if params.constraint is not None:
            matcher = self.text_model.grammar_compiler().matcher(params.constraint)
        if params.speculate is False or not self.engine.runner.max_draft_tokens:
            return DecodeState(matcher, splitter=splitter)
        speculation = Speculation(self.engine.costs, prompt, always=params.speculate is True)
        return DecodeState(matcher, speculation, splitter)

    # -- the device ------------------------------------------------------------------------------------------------

    @property
    def batching_unsupported_reason(self) -> str | None:
        """Return why the program computes one sequence at a time; None if it computes several."""
        return self.engine.runner.batching_unsupported_reason

    @property
    def fingerprint(self) -> str:
        """Return the identity of the model in snapshots."""
        return self.engine.runner.method.fingerprint()

    def recover(self, progress: OnProgress = ignore, cancel: CancelToken | None = None) -> bool:
        """Open another device after DeviceLost and load everything again. Return False if no device was lost.

        Sequences keep their tokens, and recompute their caches at the next use.
        """
        with self.engine.exclusive():
            return self._program.recover(progress, cancel)

    def close(self) -> None:
        """Release the GPU memory. Answers in progress end."""
        if self.engine.process.is_current:
            self.engine.close()
            self._program.close()

    def __repr__(self) -> str:
        rows = ", ".join(f"{name}: {text}" if name != "program" else text for name, text in self._rows().items())
        return f"LLM({rows})"

    def _repr_html_(self) -> str:
        return table("LLM", self._rows())

    def _rows(self) -> dict[str, str]:
        return {
            "program": repr(self.path),
            "context": f"{self.capacity:,} tokens",
            "vocabulary": f"{self.vocabulary:,} tokens",
            "at once": f"up to {self.engine.max_num_seqs:,} answers",
            "chat template": "yes" if self.template is not None else "no",
            **({"images": "yes"} if self.text_model.images is not None else {}),
            **({"adapters": ", ".join(self.adapters)} if self.adapters else {}),
            "sampling": describe_defaults(self.sampling_defaults),
        }

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _weakly(llm: LLM) -> Callable[[], object]:
    """Return a function that recovers the model and does not keep it alive."""
    reference = weakref.ref(llm)

    def recover() -> object:
        model = reference()
        return model.recover() if model is not None else None

    return recover
