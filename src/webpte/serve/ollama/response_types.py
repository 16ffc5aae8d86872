"""The response bodies of Ollama's API, and the lines of its streams, as this server writes them.

`/openapi.json` states the schemas of these types. Durations are in nanoseconds.
"""

from __future__ import annotations

from typing import Literal, NotRequired

from pydantic import JsonValue
from typing_extensions import TypedDict  # pydantic reads the one of typing only from Python 3.12 on

from ..messages import ModelState


class OllamaError(TypedDict):
    error: str


# -- generation ------------------------------------------------------------------------------------------------------


OllamaDoneReason = Literal["stop", "length", "load", "unload"]


class OllamaCalledFunction(TypedDict):
    name: str
    arguments: dict[str, JsonValue]


class OllamaCall(TypedDict):
    function: OllamaCalledFunction


class OllamaAnswer(TypedDict):
    """The message of a chat response."""

    role: Literal["assistant"]
    content: str
    thinking: NotRequired[str]  # the thought before the answer
    tool_calls: NotRequired[list[OllamaCall]]


class OllamaContent(TypedDict, total=False):
    """Where the text is: in `message` of a chat, else in `response`."""

    message: OllamaAnswer
    response: str
    thinking: str


class OllamaHeader(TypedDict):
    model: str
    created_at: str


class OllamaLine(OllamaHeader, OllamaContent):
    """A line of a stream, but for the last."""

    done: Literal[False]


class OllamaLoaded(OllamaHeader, OllamaContent):
    """The response to a request without a prompt, which loads a model."""

    done: Literal[True]
    done_reason: OllamaDoneReason
    total_duration: int


class OllamaResponse(OllamaLoaded):
    """A whole response, or the last line of a stream."""

    load_duration: int
    prompt_eval_count: int
    prompt_eval_duration: int
    eval_count: int
    eval_duration: int


OllamaWhole = OllamaResponse | OllamaLoaded


# -- vectors ---------------------------------------------------------------------------------------------------------


class OllamaEmbedResponse(TypedDict):
    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OllamaEmbeddingsResponse(TypedDict):
    embedding: list[float]


# -- models ----------------------------------------------------------------------------------------------------------


class OllamaDetails(TypedDict):
    parent_model: str
    format: Literal["pte"]
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModel(TypedDict):
    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaListedModel(OllamaModel):
    modified_at: str


class OllamaRunningModel(OllamaModel):
    size_vram: int
    expires_at: str
    context_length: int
    state: ModelState  # an extension


class OllamaModelList(TypedDict):
    models: list[OllamaListedModel]


class OllamaRunningList(TypedDict):
    models: list[OllamaRunningModel]


class OllamaShowResponse(TypedDict):
    modelfile: str
    parameters: str  # defaults, one per line
    template: str
    details: OllamaDetails
    model_info: dict[str, str | int]
    capabilities: list[str]
    modified_at: str


class OllamaVersion(TypedDict):
    version: str


class OllamaPullStatus(TypedDict):
    """The first and the last line of a download, and the response without a stream."""

    status: Literal["pulling manifest", "success"]


class OllamaPullProgress(TypedDict):
    """A line of a download."""

    status: str
    total: int  # bytes of this part
    completed: int
