"""The text side of a language model, without its weights: `LLM` has one, and so has the front end of the server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Sequence as Tokens
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..errors import InputError
from ..runtime.checks import described
from .adapters import adapter_number
from .constraints import GrammarCompiler
from .context import ContextLimit
from .defaults import apply_defaults
from .engine.embeddings import EncoderInput, EncoderInputs, Segment, flatten
from .image_prompts import ImagePrompts, has_images, separate_images
from .prompts import (
    Messages,
    SpecialTokens,
    Tools,
    check_prompt_size,
    encode_chat,
    encode_prompt,
    render_chat,
    template_variables,
)
from .settings import SamplingParams, sampling_params_from, tokens_from
from .thinking import SWITCHES, ThoughtTags, thinking_variables, thought_after, thought_tags, with_reasoning_fields
from .tokenizer import Tokenizer
from .tool_shapes import ToolCall, ToolFormat
from .tools import parse_calls, schemas_of


class TextModel:
    """Tokenizer, chat template, sampling defaults, and the checks of prompts and settings. Thread-safe."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        special_tokens: SpecialTokens,
        template: str | None,
        stop_tokens: frozenset[int],
        *,
        vocabulary: int,
        context_limit: ContextLimit,
        sampling_defaults: Mapping[str, Any] = MappingProxyType({}),
        images: ImagePrompts | None = None,
        adapters: Tokens[str] = (),
    ) -> None:
        self.tokenizer = tokenizer
        self.template = template  # of chats, in Jinja
        self.stop_tokens = stop_tokens
        self.vocabulary = vocabulary  # tokens that the model can generate
        self.context_limit = context_limit
        self.sampling_defaults = sampling_defaults
        self.special_tokens = special_tokens
        self.images = images  # how images become a part of prompts; None if the model does not see
        self.adapters = adapters  # names that answers may have
        self._compiler: GrammarCompiler | None = None

    @property
    def tool_format(self) -> ToolFormat | None:
        """Return the format of the model's tool calls; None if its files do not specify one."""
        return self.special_tokens.tool_format

    # -- prompts -----------------------------------------------------------------------------------------------------

    def tokenize(
        self,
        prompt: str | Messages | None,
        text: str | None,
        tools: Tools | None,
        params: SamplingParams,
        *,
        parse_special: bool,
    ) -> Tokens[Segment]:
        """Return the tokens and images of a prompt of `LLM.generate`, or of a text to continue."""
        if text is None and prompt is None:
            raise InputError(argument="prompt", expected="a string or messages, or tokens=", got="None")
        if isinstance(prompt, str):
            if not prompt:
                raise InputError(argument="prompt", expected="at least one token", got="none", code="empty_prompt")
            if self.template is None:
                text = prompt
            else:
                prompt = [{"role": "user", "content": prompt}]
        if text is not None:
            if not isinstance(text, str):
                raise InputError(argument="text", expected="a string", got=described(text), code="wrong_type")
            return self.tokenize_text(text, parse_special=parse_special)
        _check_messages(prompt)
        assert prompt is not None and not isinstance(prompt, str)
        return self.chat_segments(prompt, tools, params, parse_special=parse_special)

    def tokenize_text(self, text: str, *, parse_special: bool = False) -> list[int]:
        """Return the tokens of a text to continue, if it could fit into the context."""
        self._check_size(text)
        return encode_prompt(self.tokenizer, self.special_tokens, text, parse_special=parse_special)

    def tokenize_chat(
        self,
        messages: Messages,
        tools: Tools | None,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = False,
    ) -> list[int]:
        """Return the tokens of a conversation without images up to the start of the answer, if it could fit into the
        context."""
        segments = self.chat_segments(messages, tools, params, parse_special=parse_special)
        return [each for each in segments if not isinstance(each, EncoderInput)]

    def chat_segments(
        self,
        messages: Messages,
        tools: Tools | None,
        params: SamplingParams | None = None,
        *,
        parse_special: bool = False,
    ) -> Tokens[Segment]:
        """Return the tokens and images of a conversation up to the start of the answer, if it could fit into the
        context."""
        images = self.images
        if images is None:
            if has_images(messages):
                raise InputError(
                    "the model reads no images",
                    argument="messages",
                    code="no_images",
                    hint="Load a model with an image encoder, and preprocessor_config.json beside it.",
                )
            return self._encode_chat(messages, tools, params, parse_special, lambda text: text)
        messages, sources = separate_images(messages)
        if len(sources) * images.min_rows >= self.context_limit.tokens:  # before any of them is decoded
            raise self.context_limit.error(len(sources) * images.min_rows)
        prepared = [images.prepare(source) for source in sources]
        tokens = self._encode_chat(messages, tools, params, parse_special, lambda text: images.expanded(text, prepared))
        return images.segments(tokens, prepared)

    def _encode_chat(
        self,
        messages: Messages,
        tools: Tools | None,
        params: SamplingParams | None,
        parse_special: bool,
        expanded: Callable[[str], str],
    ) -> list[int]:
        think, effort = (params.think, params.reasoning_effort) if params is not None else (None, None)
        variables = thinking_variables(self._template_variables, self.thought_tags, think, effort)

        def render(messages: Messages, tools: Tools | None) -> str:
            return expanded(self._check_size(self.render(messages, tools, variables)))

        return encode_chat(self.tokenizer, render, messages, tools, parse_special=parse_special)

    def prompt(self, tokens: Iterable[int]) -> tuple[int, ...]:
        """Return the tokens of a prompt. Raise InputError or ContextFullError if the model cannot continue it."""
        checked = tokens_from(tokens, self.vocabulary)
        self._check_length(checked)
        return checked

    def prompt_ids(self, segments: Iterable[Segment]) -> tuple[Tokens[int], EncoderInputs]:
        """Return the ids of a prompt's tokens and rows of embeddings, checked, and what is to be encoded."""
        listed = segments if isinstance(segments, (list, tuple)) else tokens_from(segments, self.vocabulary)
        tokens_from([each for each in listed if not isinstance(each, EncoderInput)], self.vocabulary)
        ids, inputs = flatten(listed)
        self._check_length(ids)
        return ids, inputs

    def _check_length(self, ids: Tokens[int]) -> None:
        if not ids:
            raise InputError(argument="prompt", expected="at least one token", got="none", code="empty_prompt")
        if len(ids) >= self.context_limit.tokens:
            raise self.context_limit.error(len(ids))

    def with_thought(self, params: SamplingParams, prompt: Tokens[Segment]) -> SamplingParams:
        """Return the settings of a response to the tokens of a chat, with the form of the thought before it."""
        tags = self.thought_tags
        if tags is None:
            return params
        suppressed = params.think is False or params.reasoning_effort == "none"
        switch = any(name in self._template_variables for name in SWITCHES)
        budget = 0 if suppressed and not switch else params.thinking_budget
        tokens = [each for each in prompt if not isinstance(each, EncoderInput)]
        return replace(params, thought=thought_after(tokens, tags, self.tokenizer, budget))

    def chat_prompt(
        self, messages: Messages, tools: Tools | None, params: SamplingParams
    ) -> tuple[tuple[Segment, ...], SamplingParams]:
        """Return the tokens and images of a conversation, and the settings of the response to it."""
        segments = self.chat_segments(messages, tools, params)
        self.prompt_ids(segments)
        return tuple(segments), self.with_thought(params, segments)

    def render(
        self,
        messages: Messages,
        tools: Tools | None = None,
        variables: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """Return messages, and tools that may be called, as the chat template renders them."""
        template = self.check_template()
        if self.thought_tags is not None and isinstance(messages, (list, tuple)):
            messages = [
                with_reasoning_fields(message, template) if isinstance(message, Mapping) else message
                for message in messages
            ]
        return render_chat(template, messages, {**variables, **self.special_tokens.texts}, tools=tools)

    @cached_property
    def thought_tags(self) -> ThoughtTags | None:
        """Return the tags around the model's thoughts; None if it does not think."""
        return thought_tags(self.template)

    @cached_property
    def _template_variables(self) -> frozenset[str]:
        """Return the variables that the chat template reads, if the model thinks."""
        return template_variables(self.template or "") if self.thought_tags is not None else frozenset()

    def check_template(self) -> str:
        """Return the chat template. Raise InputError if the model has none."""
        if self.template is None:
            raise InputError(
                "the model has no chat template",
                argument="messages",
                hint="Put chat_template.jinja beside the model, or pass a string (/v1/completions of the server).",
                code="no_chat_template",
            )
        return self.template

    def _check_size(self, text: str) -> str:
        return check_prompt_size(text, self.tokenizer, self.context_limit)

    # -- settings ----------------------------------------------------------------------------------------------------

    def sampling_params(self, settings: Mapping[str, Any]) -> SamplingParams:
        """Return the settings of an answer, checked, with the model's defaults for those that are not set."""
        params = sampling_params_from(apply_defaults(settings, self.sampling_defaults), self.vocabulary)
        adapter_number(params.adapter, self.adapters)
        return params

    def grammar_compiler(self) -> GrammarCompiler:
        """Return the compiler of constraints. Made at first use: reading the vocabulary takes a moment."""
        if self._compiler is None or self._compiler.ends != self.stop_tokens:
            self._compiler = GrammarCompiler(self.tokenizer, self.vocabulary, self.stop_tokens)
        return self._compiler

    # -- answers -----------------------------------------------------------------------------------------------------

    def tool_calls(self, tools: Tools | None, tokens: Tokens[int]) -> tuple[ToolCall, ...]:
        """Return the tool calls in an answer to a prompt with these tools."""
        format = self.tool_format
        if format is None:
            return ()
        text = [token for token in tokens if token not in self.stop_tokens]
        return parse_calls(self.tokenizer.decode(text, specials=True), format, schemas_of(tools)).calls

    def detokenize(self, tokens: Tokens[int]) -> str:
        """Return the text of tokens, including special ones."""
        return self.tokenizer.decode(tokens_from(tokens, self.vocabulary), specials=True)

    def token_text(self, token: int) -> tuple[str, list[int]]:
        """Return a token as logprobs name it: its readable text, and its bytes. A special token is its name."""
        if token in self.tokenizer.special_ids or not 0 <= token < self.vocabulary:
            data = (self.tokenizer.token_text(token) or "").encode()
        else:
            data = self._bytes[token] or b""
        return data.decode("utf-8", "replace"), list(data)

    @cached_property
    def _bytes(self) -> list[bytes | None]:
        return self.tokenizer.token_bytes(self.vocabulary)


def _check_messages(prompt: object) -> None:
    if not isinstance(prompt, Tokens) or isinstance(prompt, (bytes, bytearray)):
        raise InputError(
            argument="prompt",
            expected="a string, or a list of messages with role and content",
            got=described(prompt),
        )
