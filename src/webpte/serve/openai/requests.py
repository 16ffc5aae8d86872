"""The request bodies of OpenAI's API, as far as this server supports them: types, bounds and defaults.

This module only declares. `..http.parse_body` validates a body against it.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Json, Tag

from ...llm.prompts import check_role
from ...llm.settings import LARGEST, MAX_BIASED_TOKENS, MAX_STOP_STRINGS, PENALTIES
from ...llm.thinking import ReasoningEffort
from ..bodies import RequestBody, TooManyError
from ..config import MAX_CHOICES, MAX_INPUTS, MAX_TOOLS

# Bounds of lists. Every list has one and fails fast: the errors of half a million entries would take pydantic 15 s, in
# which no other thread runs.
MAX_MESSAGES = 4096
MAX_PARTS = 1024  # of a message
MAX_TOKENS = 1 << 20  # in a list of tokens
MAX_TOP_LOGPROBS = 20
MAX_TOOL_CALLS = 128  # in one message
MAX_TOOL_NAME_CHARS = 64
MAX_MODALITIES = 8
IGNORED = (  # by every endpoint
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
)

Model = str | None  # None: the only model of the kind that the endpoint requires
NonEmpty = Annotated[str, Field(min_length=1)]
TokenList = Annotated[list[Annotated[int, Field(ge=0, le=LARGEST)]], Field(max_length=MAX_TOKENS, fail_fast=True)]
StopStrings = NonEmpty | Annotated[list[NonEmpty], Field(max_length=MAX_STOP_STRINGS, fail_fast=True)]
TokenKey = Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
Bias = Annotated[float, Field(ge=PENALTIES[0], le=PENALTIES[1])]


def _few_biases(value: Any) -> Any:
    """Return the value of `logit_bias`. Its size is checked first: objects do not fail fast."""
    if isinstance(value, dict) and len(value) > MAX_BIASED_TOKENS:
        raise TooManyError(MAX_BIASED_TOKENS, "entries", len(value))
    return value


Biases = Annotated[dict[TokenKey, Bias], BeforeValidator(_few_biases)]
MaxTokens = Annotated[int, Field(ge=1, le=LARGEST)]


# -- tools -----------------------------------------------------------------------------------------------------------


class Function(RequestBody):
    """A function that the client can call. `strict` is ignored: arguments always follow the schema."""

    ignored = ("strict",)
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=MAX_TOOL_NAME_CHARS)]
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})


class ChatTool(RequestBody):
    type: Literal["function"]
    function: Function


ChatTools = Annotated[list[ChatTool], Field(max_length=MAX_TOOLS, fail_fast=True)]


class ResponsesTool(Function):
    type: Literal["function"]


ResponsesTools = Annotated[list[ResponsesTool], Field(max_length=MAX_TOOLS, fail_fast=True)]


class FunctionName(RequestBody):
    name: str


class ChatToolChoice(RequestBody):
    type: Literal["function"]
    function: FunctionName


class ResponsesToolChoice(FunctionName):
    type: Literal["function"]


ToolChoiceMode = Literal["none", "auto", "required"]


# -- response formats ------------------------------------------------------------------------------------------------


class TextFormat(RequestBody):
    type: Literal["text"]


class JsonObjectFormat(RequestBody):
    type: Literal["json_object"]


class NamedSchema(RequestBody):
    """A JSON schema. `strict` is ignored: responses always follow the schema."""

    ignored = ("strict", "name", "description")
    schema_: dict[str, Any] = Field(alias="schema")


class ChatSchemaFormat(RequestBody):
    type: Literal["json_schema"]
    json_schema: NamedSchema


class ResponsesSchemaFormat(NamedSchema):
    type: Literal["json_schema"]


ChatFormat = Annotated[TextFormat | JsonObjectFormat | ChatSchemaFormat, Field(discriminator="type")]
ResponsesFormat = Annotated[TextFormat | JsonObjectFormat | ResponsesSchemaFormat, Field(discriminator="type")]


# -- messages --------------------------------------------------------------------------------------------------------


class TextPart(RequestBody):
    type: Literal["text"]
    text: str


Content = str | Annotated[list[TextPart], Field(max_length=MAX_PARTS, fail_fast=True)]


class ImageAddress(RequestBody):
    ignored = ("detail",)
    url: NonEmpty


class ImagePart(RequestBody):
    type: Literal["image_url"]
    image_url: ImageAddress


TextOrImagePart = Annotated[TextPart | ImagePart, Field(discriminator="type")]
ImageContent = str | Annotated[list[TextOrImagePart], Field(max_length=MAX_PARTS, fail_fast=True)]


class CalledFunction(RequestBody):
    name: str
    arguments: Json[dict[str, Any]]


class CalledTool(RequestBody):
    """A tool call in an earlier response."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class SystemMessage(RequestBody):
    role: Literal["system", "developer"]
    content: Content
    name: str | None = None


class UserMessage(RequestBody):
    role: Literal["user"]
    content: ImageContent
    name: str | None = None


class AssistantMessage(RequestBody):
    """An earlier response. Clients send back fields as they came; those without a meaning here are ignored.

    `reasoning` is another name of `reasoning_content`.
    """

    ignored = ("refusal", "annotations", "audio", "function_call")
    role: Literal["assistant"]
    content: Content | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    name: str | None = None
    tool_calls: Annotated[list[CalledTool], Field(max_length=MAX_TOOL_CALLS, fail_fast=True)] = Field(
        default_factory=list
    )


class ToolMessage(RequestBody):
    """The result of a tool call."""

    role: Literal["tool"]
    content: Content
    name: str | None = None
    tool_call_id: str


ChatMessage = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


def _with_roles(messages: Any) -> Any:
    """Return messages, none of which has an unknown role: the error is that of `webpte.llm`."""
    for at, message in enumerate(messages[:MAX_MESSAGES] if isinstance(messages, list) else ()):
        if isinstance(message, dict) and message.get("role") is not None:
            check_role(message["role"], at)
    return messages


ChatMessages = Annotated[
    list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True), BeforeValidator(_with_roles)
]


# -- generation ------------------------------------------------------------------------------------------------------


class SamplingFields(RequestBody):
    """What every generating endpoint has."""

    model: Model = None
    temperature: float | None = Field(default=None, ge=0, le=2)  # default: the model's, as for all of sampling
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**64 - 1)  # default: random
    stream: bool = False


class StreamOptions(RequestBody):
    ignored = ("include_obfuscation",)
    include_usage: bool = False


class ChoiceFields(SamplingFields):
    """What chats and completions share. `top_k`, `min_p` and `repetition_penalty` are extensions, as in vLLM, and the
    names that begin with `dry`, as in llama.cpp."""

    n: int = Field(default=1, ge=1, le=LARGEST)
    stop: StopStrings = Field(default_factory=list)
    max_tokens: MaxTokens | None = None
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: Biases = Field(default_factory=dict)
    top_k: int | None = Field(default=None, ge=-1, le=LARGEST)  # -1 and 0: all tokens
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=100)
    dry_multiplier: float | None = Field(default=None, ge=0, le=100)
    dry_allowed_length: int | None = Field(default=None, ge=1, le=LARGEST)
    response_format: ChatFormat | None = None
    stream_options: StreamOptions | None = None


class TemplateVariables(RequestBody):
    """Variables of chat templates. `thinking` is the name that some templates have for `enable_thinking`."""

    enable_thinking: bool | None = None
    thinking: bool | None = None
    reasoning_effort: ReasoningEffort | None = None


class ThinkingFields(RequestBody):
    """The thought before the answer. These are extensions: `thinking_budget` is its maximum length in tokens."""

    enable_thinking: bool | None = None
    thinking_budget: int | None = Field(default=None, ge=0, le=LARGEST)
    chat_template_kwargs: TemplateVariables = Field(default_factory=TemplateVariables)


class ToolFields(RequestBody):
    """What endpoints with tools share."""

    parallel_tool_calls: bool = True


class ChatRequest(ChoiceFields, ToolFields, ThinkingFields):
    """`POST /v1/chat/completions`."""

    kind = "language"
    ignored = IGNORED
    with_images = True
    unsupported: ClassVar[dict[str, str]] = {
        "functions": "use tools",
        "function_call": "use tool_choice",
        "audio": "responses are text",
        "prediction": "the server drafts tokens itself",
        "web_search_options": "the server has no web search",
        "verbosity": "ask for it in a message",
    }
    messages: ChatMessages
    reasoning_effort: ReasoningEffort | None = None
    max_completion_tokens: MaxTokens | None = None
    logprobs: bool = False
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    modalities: Annotated[list[Literal["text"]], Field(max_length=MAX_MODALITIES, fail_fast=True)] = Field(
        default_factory=list
    )
    tools: ChatTools = Field(default_factory=list)
    tool_choice: ToolChoiceMode | ChatToolChoice | None = None


Prompts = Annotated[list[str], Field(max_length=MAX_CHOICES, fail_fast=True)]
TokenLists = Annotated[list[TokenList], Field(max_length=MAX_CHOICES, fail_fast=True)]


class CompletionRequest(ChoiceFields):
    """`POST /v1/completions`."""

    kind = "language"
    ignored = IGNORED
    unsupported: ClassVar[dict[str, str]] = {
        "echo": "prepend the prompt to the response yourself",
        "suffix": "the model continues texts and does not fill gaps",
    }
    prompt: str | Annotated[Prompts | TokenList | TokenLists, Field(min_length=1)]
    parse_special: bool = False
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    best_of: int | None = Field(default=None, ge=1, le=LARGEST)


# -- /v1/responses ---------------------------------------------------------------------------------------------------


class ResponsesTextPart(RequestBody):
    ignored = ("annotations", "logprobs")
    type: Literal["input_text", "output_text", "text"]
    text: str


class ResponsesImagePart(RequestBody):
    ignored = ("detail",)
    unsupported: ClassVar[dict[str, str]] = {"file_id": "the server stores no files; send a data address"}
    type: Literal["input_image"]
    image_url: NonEmpty


ResponsesPart = Annotated[ResponsesTextPart | ResponsesImagePart, Field(discriminator="type")]


class ResponsesItem(RequestBody):
    ignored: ClassVar[tuple[str, ...]] = ("id", "status", "phase")


class MessageItem(ResponsesItem):
    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[ResponsesPart], Field(max_length=MAX_PARTS, fail_fast=True)]


class FunctionCallItem(ResponsesItem):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: Json[dict[str, Any]]


class FunctionCallOutputItem(ResponsesItem):
    type: Literal["function_call_output"]
    call_id: str
    output: str


class ReasoningText(RequestBody):
    type: Literal["reasoning_text", "summary_text"]
    text: str


ReasoningTexts = Annotated[list[ReasoningText], Field(max_length=MAX_PARTS, fail_fast=True)]


class ReasoningItem(ResponsesItem):
    """The thought before the item that follows. A summary counts if there is no content."""

    ignored = (*ResponsesItem.ignored, "encrypted_content")
    type: Literal["reasoning"]
    content: ReasoningTexts = Field(default_factory=list)
    summary: ReasoningTexts = Field(default_factory=list)


def _item_type(item: Any) -> Any:
    return item.get("type") or "message" if isinstance(item, dict) else getattr(item, "type", None)


InputItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[FunctionCallOutputItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(_item_type),
]


class ResponsesTextOptions(RequestBody):
    format: ResponsesFormat | None = None


class ReasoningOptions(RequestBody):
    """`reasoning` of a request. Responses contain the whole thought, and no summary."""

    ignored = ("summary", "generate_summary")
    effort: ReasoningEffort | None = None


class ResponsesRequest(SamplingFields, ToolFields, ThinkingFields):
    """`POST /v1/responses`."""

    kind = "language"
    ignored = (*IGNORED, "include", "stream_options")
    with_images = True
    unsupported: ClassVar[dict[str, str]] = {
        "previous_response_id": "the server stores nothing; send the whole conversation as input",
        "conversation": "the server stores nothing; send the whole conversation as input",
        "background": "wait for the response, or stream it",
        "prompt": "the server stores no prompts; send the text",
        "max_tool_calls": "the server calls no tools",
    }
    input: str | Annotated[list[InputItem], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)]
    instructions: str | None = None
    max_output_tokens: MaxTokens | None = None
    text: ResponsesTextOptions | None = None
    reasoning: ReasoningOptions = Field(default_factory=ReasoningOptions)
    truncation: Literal["disabled"] = "disabled"
    tools: ResponsesTools = Field(default_factory=list)
    tool_choice: ToolChoiceMode | ResponsesToolChoice | None = None


# -- other endpoints -------------------------------------------------------------------------------------------------


Inputs = Annotated[list[str], Field(max_length=MAX_INPUTS, fail_fast=True)]


class EmbeddingsRequest(RequestBody):
    """`POST /v1/embeddings`. Tokens are not accepted: those of another tokenizer would mean nothing here."""

    kind = "encoder"
    ignored = ("user",)
    model: Model = None
    input: str | Annotated[Inputs, Field(min_length=1)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(default=None, ge=1, le=LARGEST)


class TokenizeRequest(RequestBody):
    """`POST /tokenize`: either `prompt` or `messages`."""

    kind = "language"
    model: Model = None
    prompt: str | None = None
    parse_special: bool = False
    messages: ChatMessages | None = None
    parallel_tool_calls: bool = True
    tools: ChatTools = Field(default_factory=list)
    tool_choice: ToolChoiceMode | ChatToolChoice | None = None


class DetokenizeRequest(RequestBody):
    """`POST /detokenize`."""

    kind = "language"
    model: Model = None
    tokens: TokenList


class TranscriptionRequest(RequestBody):
    """`POST /v1/audio/transcriptions` and `/v1/audio/translations`: the fields of a form, beside its file."""

    kind = "speech"
    ignored = ("include", "known_speaker_names", "user")
    media_type = "multipart/form-data"
    unsupported: ClassVar[dict[str, str]] = {
        "prompt": "windows do not see other text",
        "chunking_strategy": "windows follow the timestamps",
    }
    model: Model = None
    language: str | None = Field(default=None, max_length=40)
    response_format: Literal["json", "text", "srt", "vtt", "verbose_json"] = "json"
    stream: Literal["true", "false"] = "false"
    temperature: Literal["0", "0.0"] = "0"  # decoding is greedy
    timestamp_granularities: Literal["segment"] = Field(default="segment", alias="timestamp_granularities[]")
