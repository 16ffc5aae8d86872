"""The response bodies of Anthropic's API, and the events of its streams, as this server writes them.

`/openapi.json` states the schemas of these types.
"""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue
from typing_extensions import TypedDict  # pydantic reads the one of typing only from Python 3.12 on

AnthropicErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "overloaded_error",
    "timeout_error",
]
ERROR_TYPES: dict[int, AnthropicErrorType] = {  # by status
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    431: "invalid_request_error",
    500: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class AnthropicErrorObject(TypedDict):
    type: AnthropicErrorType
    message: str


class AnthropicError(TypedDict):
    """An error: the body of a response, or the last event of a stream."""

    type: Literal["error"]
    error: AnthropicErrorObject


# -- messages --------------------------------------------------------------------------------------------------------

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class AnthropicText(TypedDict):
    type: Literal["text"]
    text: str


class AnthropicThinking(TypedDict):
    """The thought before the answer."""

    type: Literal["thinking"]
    thinking: str
    signature: str


class AnthropicToolUse(TypedDict):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, JsonValue]


ContentBlock = AnthropicText | AnthropicThinking | AnthropicToolUse


class OutputTokensDetails(TypedDict):
    thinking_tokens: int


class AnthropicUsage(TypedDict):
    """Token counts. A prompt has `input_tokens` and `cache_read_input_tokens`."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokensDetails


class StopFields(TypedDict):
    stop_reason: StopReason | None  # None: the response has not ended
    stop_sequence: str | None


class AnthropicMessage(StopFields):
    """A whole response, or the first event's, without content."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    usage: AnthropicUsage


class AnthropicTokenCount(TypedDict):
    input_tokens: int


# -- events ----------------------------------------------------------------------------------------------------------


class MessageStartEvent(TypedDict):
    type: Literal["message_start"]
    message: AnthropicMessage


class PingEvent(TypedDict):
    type: Literal["ping"]


class BlockPlace(TypedDict):
    index: int


class BlockStartEvent(BlockPlace):
    type: Literal["content_block_start"]
    content_block: ContentBlock


class TextBlockDelta(TypedDict):
    type: Literal["text_delta"]
    text: str


class ThinkingBlockDelta(TypedDict):
    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(TypedDict):
    type: Literal["signature_delta"]
    signature: str


class InputJsonDelta(TypedDict):
    type: Literal["input_json_delta"]
    partial_json: str


BlockDelta = TextBlockDelta | ThinkingBlockDelta | SignatureDelta | InputJsonDelta


class BlockDeltaEvent(BlockPlace):
    type: Literal["content_block_delta"]
    delta: BlockDelta


class BlockStopEvent(BlockPlace):
    type: Literal["content_block_stop"]


class MessageDeltaEvent(TypedDict):
    type: Literal["message_delta"]
    delta: StopFields
    usage: AnthropicUsage


class MessageStopEvent(TypedDict):
    type: Literal["message_stop"]


AnthropicEvent = (
    MessageStartEvent
    | PingEvent
    | BlockStartEvent
    | BlockDeltaEvent
    | BlockStopEvent
    | MessageDeltaEvent
    | MessageStopEvent
)
