"""The response bodies of OpenAI's API, and the events of its streams, as this server writes them.

Names are those of OpenAI's client where it has one. `/openapi.json` states the schemas of these types.
"""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import JsonValue
from typing_extensions import TypedDict  # pydantic reads the one of typing only from Python 3.12 on

from ..messages import ModelKind, ModelState

FinishReason = Literal["stop", "length", "tool_calls"]

# -- errors ----------------------------------------------------------------------------------------------------------


class ErrorObject(TypedDict):
    message: str
    type: str
    param: str | None  # the invalid field
    code: str | None


class ErrorBody(TypedDict):
    """An error. `param` names the invalid field."""

    error: ErrorObject


# -- what chats and completions share --------------------------------------------------------------------------------


class PromptTokensDetails(TypedDict):
    cached_tokens: int


class ReasoningDetails(TypedDict):
    reasoning_tokens: int


class CompletionUsage(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: NotRequired[ReasoningDetails]  # if there was a thought


class FinishFields(TypedDict):
    """How a response ended. `stop_reason` is an extension: what cut the response short."""

    finish_reason: FinishReason | None  # None: of a chunk that is not the last
    stop_reason: NotRequired[str]


class ResponseHeader(TypedDict):
    """The first fields of every response and chunk."""

    id: str
    created: int
    model: str


# -- /v1/chat/completions --------------------------------------------------------------------------------------------


class FunctionCall(TypedDict):
    name: str
    arguments: str  # JSON


class MessageToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: FunctionCall


class DeltaToolCall(MessageToolCall):
    index: int


class TopLogprob(TypedDict):
    token: str
    logprob: float | None
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    content: list[TokenLogprob]
    refusal: None


class ChatCompletionMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]  # an extension: the thought before the answer
    tool_calls: NotRequired[list[MessageToolCall]]


class ChatChoice(FinishFields):
    index: int
    message: ChatCompletionMessage
    logprobs: ChatLogprobs | None


class ChatCompletion(ResponseHeader):
    """A whole response."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: CompletionUsage


class ChoiceDelta(TypedDict, total=False):
    role: Literal["assistant"]
    content: str
    reasoning_content: str
    tool_calls: list[DeltaToolCall]


class ChatChunkChoice(FinishFields):
    index: int
    delta: ChoiceDelta
    logprobs: ChatLogprobs | None


class ChatCompletionChunk(ResponseHeader):
    """An event of a stream."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]


class ChatUsageChunk(ChatCompletionChunk):
    """The last event of a stream with `include_usage`. It has no choices."""

    usage: CompletionUsage


# -- /v1/completions -------------------------------------------------------------------------------------------------


class CompletionLogprobs(TypedDict):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(FinishFields):
    index: int
    text: str
    logprobs: CompletionLogprobs | None


class CompletionHeader(ResponseHeader):
    object: Literal["text_completion"]


class CompletionChunk(CompletionHeader):
    """An event of a stream."""

    choices: list[CompletionChoice]


class Completion(CompletionChunk):
    """A whole response, or the last event of a stream with `include_usage`, which has no choices."""

    usage: CompletionUsage


# -- /v1/responses ---------------------------------------------------------------------------------------------------

ItemStatus = Literal["in_progress", "completed"]
ResponseStatus = Literal["in_progress", "completed", "incomplete"]
StatusEventType = Literal["response.created", "response.in_progress", "response.completed", "response.incomplete"]
ItemEventType = Literal["response.output_item.added", "response.output_item.done"]
PartEventType = Literal["response.content_part.added", "response.content_part.done"]


class OutputText(TypedDict):
    type: Literal["output_text"]
    text: str
    annotations: list[JsonValue]
    logprobs: list[JsonValue]


class OutputMessage(TypedDict):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class ReasoningContent(TypedDict):
    type: Literal["reasoning_text"]
    text: str


class OutputReasoning(TypedDict):
    """The thought before the answer."""

    id: str
    type: Literal["reasoning"]
    status: ItemStatus
    summary: list[JsonValue]
    content: list[ReasoningContent]


class FunctionToolCall(TypedDict):
    id: str
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str  # JSON
    status: ItemStatus


OutputItem = OutputMessage | OutputReasoning | FunctionToolCall


class ResponseUsage(TypedDict):
    input_tokens: int
    input_tokens_details: PromptTokensDetails
    output_tokens: int
    output_tokens_details: ReasoningDetails
    total_tokens: int


class IncompleteDetails(TypedDict):
    reason: str


class RequestFields(TypedDict):
    """The fields of a request that its response repeats."""

    model: str
    instructions: str | None
    max_output_tokens: int
    temperature: float
    top_p: float
    tools: list[JsonValue]
    tool_choice: JsonValue
    parallel_tool_calls: bool
    text: JsonValue


class ResponseObject(RequestFields):
    """A response, whole or as far as it is."""

    id: str
    object: Literal["response"]
    created_at: int
    status: ResponseStatus
    error: None
    incomplete_details: IncompleteDetails | None
    output: list[OutputItem]
    usage: ResponseUsage | None
    previous_response_id: None
    store: Literal[False]
    metadata: dict[str, str]
    truncation: Literal["disabled"]


class EventFields(TypedDict):
    sequence_number: int


class ResponseStatusEvent(EventFields):
    type: StatusEventType
    response: ResponseObject


class OutputItemEvent(EventFields):
    type: ItemEventType
    output_index: int
    item: OutputItem


class ItemPlace(TypedDict):
    item_id: str
    output_index: int


class PartPlace(ItemPlace):
    content_index: int


class ContentPartEvent(EventFields, PartPlace):
    type: PartEventType
    part: OutputText | ReasoningContent


class TextDeltaEvent(EventFields, PartPlace):
    type: Literal["response.output_text.delta"]
    delta: str
    logprobs: list[JsonValue]


class TextDoneEvent(EventFields, PartPlace):
    type: Literal["response.output_text.done"]
    text: str
    logprobs: list[JsonValue]


class ReasoningDeltaEvent(EventFields, PartPlace):
    type: Literal["response.reasoning_text.delta"]
    delta: str


class ReasoningDoneEvent(EventFields, PartPlace):
    type: Literal["response.reasoning_text.done"]
    text: str


class ArgumentsDeltaEvent(EventFields, ItemPlace):
    type: Literal["response.function_call_arguments.delta"]
    delta: str


class ArgumentsDoneEvent(EventFields, ItemPlace):
    type: Literal["response.function_call_arguments.done"]
    arguments: str
    name: str


ResponseEvent = (
    ResponseStatusEvent
    | OutputItemEvent
    | ContentPartEvent
    | TextDeltaEvent
    | TextDoneEvent
    | ReasoningDeltaEvent
    | ReasoningDoneEvent
    | ArgumentsDeltaEvent
    | ArgumentsDoneEvent
)


# -- other endpoints -------------------------------------------------------------------------------------------------


class ModelEntry(TypedDict):
    """OpenAI's fields, and extensions from `kind` on. Before the first load, there are those up to `state` only."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    kind: ModelKind
    state: ModelState
    reason: NotRequired[str]  # the code of the error, if the model has failed
    context: NotRequired[int]
    fingerprint: NotRequired[str]
    parent: NotRequired[str]  # of a model with an adapter: the name of the model
    dimensions: NotRequired[int]  # of the vectors of an encoder
    sampling: NotRequired[dict[str, int | float]]  # the defaults of a language model
    images: NotRequired[bool]  # of a language model: whether it reads images in messages
    tools: NotRequired[bool]  # of a language model: whether it calls tools
    thinking: NotRequired[bool]  # of a language model: whether it thinks before it answers


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelEntry]


class EmbeddingEntry(TypedDict):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str  # numbers, or the base64 of little-endian f32


class EmbeddingUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(TypedDict):
    object: Literal["list"]
    model: str
    data: list[EmbeddingEntry]
    usage: EmbeddingUsage


class TranscriptionUsage(TypedDict):
    type: Literal["duration"]
    seconds: int


class Transcription(TypedDict):
    text: str
    usage: TranscriptionUsage


class TranscriptDelta(TypedDict):
    type: Literal["transcript.text.delta"]
    delta: str


class TranscriptDone(TypedDict):
    type: Literal["transcript.text.done"]
    text: str
    usage: TranscriptionUsage


class TranscriptionSegment(TypedDict):
    id: int
    start: float
    end: float
    text: str
    tokens: list[int]


class VerboseTranscription(TypedDict):
    task: Literal["transcribe", "translate"]
    language: str | None
    duration: float
    text: str
    segments: list[TranscriptionSegment]
    usage: TranscriptionUsage


class TokenizeResponse(TypedDict):
    tokens: list[int]
    count: int
    max_model_len: int


class DetokenizeResponse(TypedDict):
    prompt: str
