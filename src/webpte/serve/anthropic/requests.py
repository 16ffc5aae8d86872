"""The request bodies of Anthropic's API, as far as this server supports them: types, bounds and defaults."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ...llm.settings import LARGEST
from ..bodies import RequestBody
from ..config import MAX_TOOLS
from ..openai.requests import (
    MAX_MESSAGES,
    MAX_PARTS,
    MAX_TOOL_NAME_CHARS,
    MaxTokens,
    ResponsesSchemaFormat,
    SamplingFields,
    StopStrings,
)


class Block(RequestBody):
    """A part of a message. The prefix cache finds common prefixes without marks."""

    ignored: ClassVar[tuple[str, ...]] = ("cache_control",)


class TextBlock(Block):
    ignored = (*Block.ignored, "citations")
    type: Literal["text"]
    text: str


class Base64Source(RequestBody):
    ignored = ("media_type",)
    type: Literal["base64"]
    data: str


class UrlSource(RequestBody):
    type: Literal["url"]
    url: str


class ImageBlock(Block):
    ignored = (*Block.ignored, "transformations")
    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource, Field(discriminator="type")]


class ThinkingBlock(Block):
    """The thought of an earlier response. Its signature is not verified."""

    ignored = (*Block.ignored, "signature")
    type: Literal["thinking"]
    thinking: str


class ToolUseBlock(Block):
    """A tool call of an earlier response."""

    ignored = (*Block.ignored, "caller", "toolset_name")
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


TextOrImage = Annotated[TextBlock | ImageBlock, Field(discriminator="type")]


class ToolResultBlock(Block):
    """The result of a tool call. An error is text like other results: chat templates know no difference."""

    ignored = (*Block.ignored, "is_error", "toolset_name")
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Annotated[list[TextOrImage], Field(max_length=MAX_PARTS, fail_fast=True)] = ""


UserBlock = Annotated[TextBlock | ImageBlock | ToolResultBlock, Field(discriminator="type")]
AssistantBlock = Annotated[TextBlock | ThinkingBlock | ToolUseBlock, Field(discriminator="type")]
TextBlocks = Annotated[list[TextBlock], Field(max_length=MAX_PARTS, fail_fast=True)]


class SystemTurn(RequestBody):
    role: Literal["system"]
    content: str | TextBlocks


class UserTurn(RequestBody):
    role: Literal["user"]
    content: str | Annotated[list[UserBlock], Field(max_length=MAX_PARTS, fail_fast=True)]


class AssistantTurn(RequestBody):
    role: Literal["assistant"]
    content: str | Annotated[list[AssistantBlock], Field(max_length=MAX_PARTS, fail_fast=True)]


Turn = Annotated[SystemTurn | UserTurn | AssistantTurn, Field(discriminator="role")]


class CustomTool(RequestBody):
    """A tool that the client calls. Calls always follow the schema, so `strict` is ignored."""

    ignored = (
        "cache_control", "strict", "allowed_callers", "defer_loading", "eager_input_streaming", "input_examples",
    )  # fmt: skip
    type: Literal["custom"] = "custom"
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=MAX_TOOL_NAME_CHARS)]
    description: str = ""
    input_schema: dict[str, Any]


class ToolChoice(RequestBody):
    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None  # of the tool to call, for "tool"
    disable_parallel_tool_use: bool = False


class Thinking(RequestBody):
    """The thought before the answer, which responses contain in full."""

    ignored = ("display",)
    type: Literal["enabled", "adaptive", "disabled"]
    budget_tokens: int | None = Field(default=None, ge=1, le=LARGEST)


class OutputConfig(RequestBody):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: ResponsesSchemaFormat | None = None


class ConversationFields(RequestBody):
    """What a conversation consists of. These fields decide its tokens."""

    kind = "language"
    messages: Annotated[list[Turn], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    system: str | TextBlocks = ""
    tools: Annotated[list[CustomTool], Field(max_length=MAX_TOOLS, fail_fast=True)] = Field(default_factory=list)
    tool_choice: ToolChoice = ToolChoice(type="auto")
    thinking: Thinking = Thinking(type="disabled")
    output_config: OutputConfig = OutputConfig()


IGNORED = (
    "cache_control", "metadata", "service_tier", "speed", "inference_geo", "diagnostics",
    "user_profile_id", "workspace_id",
)  # fmt: skip
UNSUPPORTED = {"mcp_servers": "the server calls no tools", "container": "the server runs no code"}


class CountTokensRequest(ConversationFields):
    """`POST /v1/messages/count_tokens`."""

    ignored = IGNORED
    with_images = True
    unsupported: ClassVar[dict[str, str]] = UNSUPPORTED
    model: str | None = None


class MessagesRequest(ConversationFields, SamplingFields):
    """`POST /v1/messages`. `seed` and `min_p` are extensions."""

    ignored = IGNORED
    with_images = True
    unsupported: ClassVar[dict[str, str]] = UNSUPPORTED
    max_tokens: MaxTokens
    stop_sequences: StopStrings = Field(default_factory=list)
    top_k: int | None = Field(default=None, ge=-1, le=LARGEST)
    min_p: float | None = Field(default=None, ge=0, le=1)
