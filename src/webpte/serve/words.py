"""The text side of a language model, in the HTTP process: tokens, chat templates, how calls are written, schemas."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from ..errors import InputError
from ..llm.chat import Messages, Tools, render_chat
from ..llm.constraints import Constraint, Guides
from ..llm.errors import ContextFullError
from ..llm.settings import tokens_from
from ..llm.special_tokens import SpecialTokens, encode_prompt
from ..llm.tokenizer import Tokenizer
from ..llm.tools import ToolFormat
from .failures import Refusal
from .freed import give_back

KNOWN = 1024  # constraints that are known to be good, by their digests
LONG = 4096  # characters of a constraint; compiling one that is longer takes megabytes for a while


class Words:
    """What turns requests into a model's tokens and its tokens into answers. It may be used from any thread."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        special: SpecialTokens,
        template: str | None,
        stop_tokens: frozenset[int],
        *,
        vocabulary: int,
        context: int,
    ) -> None:
        self.tokenizer = tokenizer
        self.stop_tokens = stop_tokens
        self.vocabulary = vocabulary
        self.context = context
        self._special = special
        self._template = template
        self._good: OrderedDict[bytes, None] = OrderedDict()  # written by the thread that compiles
        # One of its own: schemas take the memory of one at a time, and none of the threads that other work waits for.
        self._compiling = ThreadPoolExecutor(1, "webpte schemas")

    @property
    def tool_format(self) -> ToolFormat | None:
        return self._special.tool_format

    def tokens_of_text(self, text: str) -> list[int]:
        return encode_prompt(self.tokenizer, self._special, text)

    def tokens_of_chat(self, messages: Messages, tools: Tools | None) -> list[int]:
        if self._template is None:
            raise InputError(
                "the model has no chat template; ask /v1/completions, or put chat_template.jinja beside it"
            )
        return self.tokenizer.encode(render_chat(self._template, messages, self._special.texts, tools=tools))

    def text_of(self, tokens: Sequence[int]) -> str:
        """What tokens say, special ones written out."""
        return self.tokenizer.decode(tokens_from(tokens, self.vocabulary), specials=True)

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Tokens of a text to be continued."""
        return self._fitting(self.tokens_of_text(text))

    def encode_tokens(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Tokens that a client has made itself."""
        return self._fitting(tokens_from(tokens, self.vocabulary))

    def encode_chat(self, messages: Messages, tools: Tools | None) -> tuple[int, ...]:
        """Tokens of a conversation, up to where the answer begins."""
        return self._fitting(self.tokens_of_chat(messages, tools))

    def _fitting(self, tokens: Sequence[int]) -> tuple[int, ...]:
        if not tokens:
            raise InputError("the prompt has no tokens; a text of a character, or one token, is the least")
        if len(tokens) >= self.context:
            raise ContextFullError(
                f"the prompt has {len(tokens)} tokens; the model's context holds {self.context}. Shorten it"
            )
        return tuple(tokens)

    @cached_property
    def _bytes(self) -> list[bytes | None]:
        return self.tokenizer.token_bytes(self.vocabulary)

    def token_bytes(self, token: int) -> bytes:
        """What a token is in a text. A special one is written as it is called."""
        if token in self.tokenizer.special_ids or not 0 <= token < self.vocabulary:
            return (self.tokenizer.token_text(token) or "").encode()
        return self._bytes[token] or b""

    @cached_property
    def _guides(self) -> Guides:
        return Guides(self.tokenizer, self.vocabulary, self.stop_tokens)

    def _compile(self, name: bytes, constraint: Constraint) -> None:
        if name not in self._good:  # it may have been asked for twice
            try:
                self._guides.check(constraint)
            finally:
                if len(constraint.source) > LONG:
                    give_back()
            self._good[name] = None
            if len(self._good) > KNOWN:
                self._good.popitem(last=False)

    async def check_constraint(self, constraint: Constraint, seconds: float) -> None:
        """Compile it here first, beside the event loop: what cannot be followed, or takes too long, never reaches the
        worker, where everyone would wait for it. One that was good before waits for nobody."""
        name = hashlib.sha256(f"{constraint.kind} {constraint.source}".encode("utf-8", "surrogatepass")).digest()
        if name in self._good:
            return
        try:
            async with asyncio.timeout(seconds):  # when it has passed, one whose turn has not come is given up
                await asyncio.wrap_future(self._compiling.submit(self._compile, name, constraint))
        except TimeoutError:
            raise Refusal(
                422, f"the {constraint.kind} was not compiled within {seconds:g} s (schema_seconds); simplify it"
            ) from None
