"""The request bodies of Ollama's API, as far as this server supports them: types, bounds and defaults."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from ...llm.settings import LARGEST
from ..bodies import RequestBody
from ..errors import ApiError
from ..openai.requests import MAX_MESSAGES, MAX_PARTS, MAX_TOOL_CALLS, ChatTools, Inputs, StopStrings

MAX_NAME_CHARS = 512  # of a model that is not served
ModelName = Annotated[str, Field(max_length=MAX_NAME_CHARS)]


DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def _seconds(value: float | str | None) -> float | None:
    """Return a duration in seconds: a number, or a string such as "5m", "1h30m" or "-1s"."""
    if not isinstance(value, str):
        return value
    text = value.removeprefix("-")
    if text.replace(".", "", 1).isdigit():
        seconds = float(text)
    elif text and not DURATION.sub("", text):
        seconds = sum(float(number) * UNIT_SECONDS[unit] for number, unit in DURATION.findall(text))
    else:
        raise ValueError("expected seconds or a duration such as '5m'")
    return -seconds if value.startswith("-") else seconds


KeepAlive = Annotated[Annotated[float, Field(ge=-(2**31), le=2**31)] | None, BeforeValidator(_seconds)]


class OllamaOptions(RequestBody):
    """`options` of a request. What concerns the loading of a model is ignored: it is loaded already."""

    ignored = (
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "num_thread",
        "num_keep",
        "use_mmap",
        "numa",
        "repeat_last_n",
    )
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_k: int | None = Field(default=None, ge=-1, le=LARGEST)
    top_p: float | None = Field(default=None, ge=0, le=1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=100, alias="repeat_penalty")
    presence_penalty: float | None = Field(default=None, ge=-100, le=100)
    frequency_penalty: float | None = Field(default=None, ge=-100, le=100)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**64 - 1)
    num_predict: int | None = Field(default=None, ge=-2, le=LARGEST)  # below 0: no limit
    stop: StopStrings = Field(default_factory=list)


class OllamaRequest(RequestBody):
    """What chats and completions share."""

    kind = "language"
    ignored: ClassVar[tuple[str, ...]] = ("logprobs", "top_logprobs")
    model: str = ""
    keep_alive: KeepAlive = None
    stream: bool = True
    format: Literal["", "json"] | dict[str, Any] = ""
    options: OllamaOptions = Field(default_factory=OllamaOptions)
    think: bool | Literal["low", "medium", "high"] | None = None


Images = Annotated[list[str], Field(max_length=MAX_PARTS, fail_fast=True)]  # in base64


class OllamaFunctionCall(RequestBody):
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class OllamaToolCall(RequestBody):
    function: OllamaFunctionCall


class OllamaMessage(RequestBody):
    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str = ""
    images: Images = Field(default_factory=list)
    tool_calls: Annotated[list[OllamaToolCall], Field(max_length=MAX_TOOL_CALLS, fail_fast=True)] = Field(
        default_factory=list
    )
    tool_name: str | None = None


class OllamaChatRequest(OllamaRequest):
    """`POST /api/chat`."""

    with_images = True
    messages: Annotated[list[OllamaMessage], Field(max_length=MAX_MESSAGES, fail_fast=True)] = Field(
        default_factory=list
    )
    tools: ChatTools = Field(default_factory=list)
    tool_choice: None = None
    parallel_tool_calls: bool = True


class OllamaGenerateRequest(OllamaRequest):
    """`POST /api/generate`."""

    ignored = (*OllamaRequest.ignored, "context", "template")
    with_images = True
    unsupported: ClassVar[dict[str, str]] = {"suffix": "the model continues texts and does not fill gaps"}
    prompt: str = ""
    system: str = ""
    raw: bool = False
    images: Images = Field(default_factory=list)


class OllamaEmbedRequest(RequestBody):
    """`POST /api/embed`. Without an input, the model is loaded."""

    kind = "encoder"
    ignored: ClassVar[tuple[str, ...]] = ("options",)
    model: str = ""
    keep_alive: KeepAlive = None
    input: str | Inputs = ""
    truncate: bool = True
    dimensions: int | None = Field(default=None, ge=1, le=LARGEST)


class OllamaEmbeddingsRequest(RequestBody):
    """`POST /api/embeddings`, the older form for one text."""

    kind = "encoder"
    ignored: ClassVar[tuple[str, ...]] = ("options",)
    model: str = ""
    keep_alive: KeepAlive = None
    prompt: str = ""


class NamedModel(RequestBody):
    """A request about one model. Older clients send `name`."""

    model: ModelName | None = None
    name: ModelName | None = None

    def required_name(self) -> str:
        name = self.model or self.name
        if not name:
            raise ApiError(400, "model: required", param="model")
        return name


class OllamaShowRequest(NamedModel):
    """`POST /api/show`."""

    ignored: ClassVar[tuple[str, ...]] = ("verbose", "system", "template", "options")


class OllamaPullRequest(NamedModel):
    """`POST /api/pull`."""

    ignored: ClassVar[tuple[str, ...]] = ("insecure", "username", "password")
    stream: bool = True
