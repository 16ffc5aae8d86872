"""What the endpoints share: the backend, and tokenizers, chat templates and schema compilers of the models."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..embed.text_tokenizer import TextTokenizer
from ..errors import InputError
from ..llm.constraints import Constraint
from ..llm.context import ContextLimit
from ..llm.prompts import (
    Messages,
    SpecialTokens,
    Tools,
    check_prompt_size,
    encode_chat,
    encode_prompt,
    read_special_tokens,
    render_chat,
)
from ..llm.settings import tokens_from
from ..llm.tokenizer import Tokenizer
from ..llm.tools import ToolFormat
from ..text import close_matches
from .backend import Backend, GenerateRequest, Stream
from .clients import ClientTurns
from .config import Config
from .errors import ApiError
from .messages import ModelInfo
from .schema_process import SchemaCompiler
from .telemetry import Metrics, log

KINDS = {"language": "a language model", "encoder": "an embedding model"}
MAX_FIELD_CHARS = 80  # of an unknown field in the log
MAX_UNKNOWN_FIELDS = 256  # that warnings are logged for: clients choose the names


class TextProcessor:
    """The text side of a language model: encodes prompts and chats, decodes tokens. Thread-safe."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        special_tokens: SpecialTokens,
        template: str | None,
        stop_tokens: frozenset[int],
        *,
        vocabulary: int,
        context_limit: ContextLimit,
        sampling_defaults: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.tokenizer = tokenizer
        self.stop_tokens = stop_tokens
        self.vocabulary = vocabulary
        self.context_limit = context_limit
        self.sampling_defaults = sampling_defaults
        self._special_tokens = special_tokens
        self._template = template

    @classmethod
    def load(cls, model: ModelInfo) -> TextProcessor:
        """Read the files of a language model that a worker has loaded."""
        files = model.text
        assert files is not None  # of a language model
        tokenizer = Tokenizer.load(files.tokenizer)
        config = Path(files.tokenizer_config) if files.tokenizer_config is not None else None
        return cls(
            tokenizer,
            read_special_tokens(config, tokenizer, files.bos_id, files.eos_ids),
            files.template,
            frozenset(files.stop_tokens),
            vocabulary=model.vocabulary,
            context_limit=model.context_limit or ContextLimit(model.context),
            sampling_defaults=files.sampling,
        )

    @property
    def tool_format(self) -> ToolFormat | None:
        return self._special_tokens.tool_format

    @property
    def has_template(self) -> bool:
        return self._template is not None

    def tokenize_text(self, text: str, parse_special: bool = False) -> list[int]:
        """Return the tokens of a text that could fit into the context."""
        text = self._check_length(text)
        return encode_prompt(self.tokenizer, self._special_tokens, text, parse_special=parse_special)

    def _check_length(self, text: str) -> str:
        return check_prompt_size(text, self.tokenizer, self.context_limit)

    def tokenize_chat(self, messages: Messages, tools: Tools | None) -> list[int]:
        """Return the tokens of a conversation up to the start of the response, if they could fit into the context."""
        checked: Callable[[Messages, Tools | None], str] = lambda *args: self._check_length(self._render(*args))  # noqa: E731
        return encode_chat(self.tokenizer, checked, messages, tools)

    def _render(self, messages: Messages, tools: Tools | None) -> str:
        if self._template is None:
            raise InputError(
                "the model has no chat template. Use /v1/completions, or put chat_template.jinja beside the model."
            )
        return render_chat(self._template, messages, self._special_tokens.texts, tools=tools)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, including special ones."""
        return self.tokenizer.decode(tokens_from(tokens, self.vocabulary), specials=True)

    def encode_text(self, text: str, parse_special: bool) -> tuple[int, ...]:
        """Return the prompt of a text to continue."""
        return self._prompt(self.tokenize_text(text, parse_special))

    def encode_tokens(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return a prompt that the client has tokenized."""
        return self._prompt(tokens_from(tokens, self.vocabulary))

    def encode_chat(self, messages: Messages, tools: Tools | None) -> tuple[int, ...]:
        """Return the prompt of a conversation."""
        return self._prompt(self.tokenize_chat(messages, tools))

    def _prompt(self, tokens: Sequence[int]) -> tuple[int, ...]:
        if not tokens:
            raise InputError("prompt: expected at least one token, got none")
        if len(tokens) >= self.context_limit.tokens:
            raise self.context_limit.error(len(tokens))
        return tuple(tokens)

    @cached_property
    def _bytes(self) -> list[bytes | None]:
        return self.tokenizer.token_bytes(self.vocabulary)

    def token_text(self, token: int) -> tuple[str, list[int]]:
        """Return a token as logprobs name it: its readable text, and its bytes. A special token is its name."""
        if token in self.tokenizer.special_ids or not 0 <= token < self.vocabulary:
            data = (self.tokenizer.token_text(token) or "").encode()
        else:
            data = self._bytes[token] or b""
        return data.decode("utf-8", "replace"), list(data)


class Service:
    """The state of one application."""

    def __init__(self, backend: Backend, config: Config) -> None:
        self.backend = backend
        self.config = config
        self.metrics = Metrics(backend)
        self.draining = False
        self.loading = True
        self.turns = ClientTurns()
        self._unknown_fields: set[str] = set()  # that a warning was logged for
        self._text_processors: dict[str, TextProcessor] = {}
        self._schema_compilers: dict[str, SchemaCompiler] = {}
        self._encoders: dict[str, TextTokenizer] = {}

    async def start(self) -> None:
        """Return when requests can be answered."""
        await self.backend.start()
        for model in self.backend.models.values():
            if model.kind == "language":
                self._text_processors[model.name] = await asyncio.to_thread(TextProcessor.load, model)
                self._schema_compilers[model.name] = SchemaCompiler(model)
            else:
                self._encoders[model.name] = await asyncio.to_thread(TextTokenizer.load, model.path)
        self.loading = False

    async def stop(self) -> None:
        self.draining = True
        await self.backend.stop(self.config.shutdown_timeout)
        for compiler in self._schema_compilers.values():
            await compiler.close()

    @property
    def max_client_requests(self) -> int:
        """Return the maximum requests of one client: those that are computed and those that wait."""
        return (self.config.slots + self.config.max_queue) * max(1, len(self.backend.models))

    def warn_of_field(self, name: str, known: Iterable[str]) -> None:
        """Log a warning for the first request with an unknown field of this name."""
        name = name[:MAX_FIELD_CHARS]
        if name not in self._unknown_fields and len(self._unknown_fields) < MAX_UNKNOWN_FIELDS:
            self._unknown_fields.add(name)
            similar = {"similar": matches[0]} if (matches := close_matches(name, known)) else {}
            log.warning("unknown field ignored", extra={"fields": {"field": name, **similar}})

    def model(self, name: str | None, kind: str | None = None) -> ModelInfo:
        """Return the model that a request names, or the only one of a kind if it names none. Raise ApiError if the name
        is unknown or of another kind."""
        if name is None:
            return self._only_model(kind)
        model = self.backend.models.get(name)
        if model is None:
            known = ", ".join(self.backend.models)
            raise ApiError(
                404, f"model: expected one of {known}, got {name[:80]!r}", param="model", code="model_not_found"
            )
        if kind is not None and model.kind != kind:
            raise ApiError(
                400, f"model: {name} is {KINDS[model.kind]}; this endpoint requires {KINDS[kind]}", param="model"
            )
        return model

    def _only_model(self, kind: str | None) -> ModelInfo:
        models = [model for model in self.backend.models.values() if kind in (None, model.kind)]
        if len(models) != 1:
            known = f"one of {', '.join(model.name for model in models)}" if models else KINDS[str(kind)]
            raise ApiError(400, f"model: expected {known}, got none", param="model")
        return models[0]

    def text_processor(self, name: str | None) -> TextProcessor:
        return self._text_processors[self.model(name, "language").name]

    def encoder(self, name: str | None) -> TextTokenizer:
        return self._encoders[self.model(name, "encoder").name]

    async def submit(
        self,
        model: str,
        prompts: Sequence[tuple[int, ...]],
        settings: Mapping[str, Any],
        constraint: Constraint | None,
        client: str,
    ) -> list[Stream]:
        """Submit a request for each prompt: all of them or none. The constraint, which is that of the settings, is
        compiled in a helper before the worker sees it."""
        if self.draining:
            raise ApiError(503, "the server is shutting down", headers={"Retry-After": "5"})
        if constraint is not None:
            await self._schema_compilers[model].check(constraint, self.config.schema_timeout, client)
        streams: list[Stream] = []
        try:
            for number, tokens in enumerate(prompts):
                own = {**settings, "seed": (settings["seed"] + number) % (1 << 31)}
                streams.append(self.backend.generate(GenerateRequest(model, tokens, own, client=client)))
        except BaseException:
            for stream in streams:
                await stream.cancel()
            raise
        return streams
