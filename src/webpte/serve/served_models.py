"""The kinds of models: what the server does for each, and what it keeps of a loaded model in its own process."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..embed.pair_tokenizer import PairPrompts, PairTokenizer, read_pairs
from ..embed.text_tokenizer import TextTokenizer
from ..errors import InputError
from ..llm.context import ContextLimit
from ..llm.image_prompts import ImagePrompts
from ..llm.prompts import read_special_tokens
from ..llm.text_model import TextModel
from ..llm.tokenizer import Tokenizer
from ..task_file import task_of
from .accounts import Accounts
from .errors import WorkerUnavailable
from .messages import Computation, Embed, Generate, ModelInfo, ModelKind, Transcribe, text_digest
from .schema_process import SchemaCompiler


@dataclass(frozen=True)
class Kind:
    """What the server does for the models of a kind."""

    title: str  # in messages
    tasks: tuple[str | None, ...]  # in the task file of a program; None for programs without one
    computation: type[Computation]  # that a worker does for it
    endpoint: str  # of the example
    example: Mapping[str, object] | None  # fields of a request besides `model`; None: a form with a recording
    capabilities: tuple[str, ...] = ()  # in Ollama's API, of every model of the kind
    max_requests: int | None = None  # that a model has at once; None: as many as a batch


KINDS: Mapping[ModelKind, Kind] = {
    "language": Kind(
        "a language model",
        (None,),
        Generate,
        "v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hello!"}]},
        ("completion",),
    ),
    # An encoder computes a batch of each request in turn.
    "encoder": Kind(
        "an embedding model", (TextTokenizer.task,), Embed, "v1/embeddings", {"input": "Hello!"}, ("embedding",), 8
    ),
    "reranker": Kind(
        "a reranker",
        (PairTokenizer.task, PairPrompts.task),
        Embed,
        "v1/rerank",
        {"query": "Hello!", "documents": ["Good morning!", "It rains."]},
    ),
    # A speech model computes one after the other, and the second need not wait for a message from the server.
    "speech": Kind("a speech model", ("speech",), Transcribe, "v1/audio/transcriptions", None, (), 2),
}


def kind_of(path: str) -> ModelKind:
    """Return the kind of a program. One of another task is taken for an encoder, which refuses it when it is loaded."""
    task = task_of(Path(path))
    return next((kind for kind, each in KINDS.items() if task in each.tasks), "encoder")


def check_computation(model: ModelInfo, computation: type[Computation]) -> None:
    """Raise InputError if a model is of a kind that does not compute this."""
    if KINDS[model.kind].computation is not computation:
        kinds = " or ".join(kind for kind, each in KINDS.items() if each.computation is computation)
        raise InputError(
            f"model: {model.name} is of kind {model.kind}; this request needs kind {kinds}", code="wrong_model_kind"
        )


class ServedModel:
    """A loaded model as the endpoints use it: its description, and what turns requests into tokens.

    Endpoints get one of the kind that they ask for, so they read the property of that kind only.
    """

    def __init__(self, info: ModelInfo, accounts: Accounts) -> None:
        """Read the files of a model that a worker has loaded."""
        self.info = info
        self._accounts = accounts
        self.name = info.name
        self._text = _text_model(info) if info.kind == "language" else None
        self._encoder = TextTokenizer.load(info.path) if info.kind == "encoder" else None
        self._reranker = read_pairs(info.path) if info.kind == "reranker" else None
        self._compiler: SchemaCompiler | None = None
        self._base: ServedModel | None = None  # of a model with an adapter

    @property
    def text(self) -> TextModel:
        """Return the tokenizer and template of a language model."""
        assert self._text is not None
        return self._text

    @property
    def encoder(self) -> TextTokenizer:
        assert self._encoder is not None
        return self._encoder

    @property
    def reranker(self) -> PairTokenizer | PairPrompts:
        assert self._reranker is not None
        return self._reranker

    @property
    def schemas(self) -> SchemaCompiler:
        """Return the compiler of the schemas of a language model."""
        if self._base is not None:
            return self._base.schemas
        if self._compiler is None:
            self._compiler = SchemaCompiler(self.info, self._accounts)
        return self._compiler

    def with_adapter(self, info: ModelInfo) -> ServedModel:
        """Return the same model as requests with an adapter use it. It shares the compiler of schemas."""
        model = copy.copy(self)
        model.info, model.name, model._base = info, info.name, self
        model._text = copy.copy(self.text)
        model._text.sampling_defaults = {**self.text.sampling_defaults, "adapter": info.adapter}
        return model

    async def close(self) -> None:
        if self._compiler is not None:
            await self._compiler.close()


def _text_model(model: ModelInfo) -> TextModel:
    files = model.text
    assert files is not None  # of a language model
    if files.digest and text_digest(files.tokenizer, files.tokenizer_config, files.template) != files.digest:
        raise WorkerUnavailable(
            f"the tokenizer of {model.name} was replaced after its worker has read it. Replace all files of a model, "
            "and restart the server.", code="model_replaced",
        )  # fmt: skip
    tokenizer = Tokenizer.load(files.tokenizer)
    config = Path(files.tokenizer_config) if files.tokenizer_config is not None else None
    return TextModel(
        tokenizer,
        read_special_tokens(config, tokenizer, files.bos_id, files.eos_ids),
        files.template,
        frozenset(files.stop_tokens),
        vocabulary=model.vocabulary,
        context_limit=model.context_limit or ContextLimit(model.context),
        sampling_defaults=files.sampling,
        images=ImagePrompts(files.images, tokenizer) if files.images is not None else None,
        adapters=model.adapters,
    )
