"""Collect the inputs of a model's layers while it reads a text, block by block, after the blocks already quantised."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import Error, InputError
from ...llm.tokenizer_file import read_tokenizer

if TYPE_CHECKING:
    import torch

MAX_CALIBRATION_TOKENS = 8192  # tokens; more takes longer and changes little


def calibration_text(given: bool | str | os.PathLike[str]) -> str:
    """The built-in text, or that of a file."""
    if isinstance(given, bool):
        from ...tools.evaluation import calibration_text

        return calibration_text()
    try:
        return Path(given).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"calibrate: {given} cannot be read as text: {error}") from error


def token_pieces(tokenizer: str, text: str, size: int, vocabulary: int) -> list[list[int]]:
    """Its tokens in pieces of `size`, by the text of a tokenizer.json. A short rest is left out."""
    ids = read_tokenizer("the tokenizer", tokenizer.encode()).encode(text).ids
    tokens = [token for token in ids if token < vocabulary][:MAX_CALIBRATION_TOKENS]
    pieces = [tokens[start : start + size] for start in range(0, len(tokens), size)]
    return [piece for piece in pieces if len(piece) == size or piece is pieces[0]]


def chat_pieces(
    tokenizer: str, template: str, special_tokens: Mapping[str, str | bool], size: int, vocabulary: int
) -> list[list[int]]:
    """The built-in conversations as the model is asked them, each a piece, with the words of its template."""
    from ...llm.chat import render_chat
    from ...tools.evaluation import calibration_chats

    known = {name: text for name, text in special_tokens.items() if isinstance(text, str)}
    encode = read_tokenizer("the tokenizer", tokenizer.encode()).encode
    try:
        texts = [render_chat(template, chat, known, add_generation_prompt=False) for chat in calibration_chats()]
    except Error:
        return []  # a template that cannot be used is told of when somebody talks to the model
    found = (encode(text, add_special_tokens=False).ids for text in texts)
    pieces = ([token for token in tokens if token < vocabulary][:size] for tokens in found)
    return [piece for piece in pieces if piece]


Moments = dict[str, "torch.Tensor"]  # X'X of the inputs of a linear layer, by its name
BlockCall = tuple[tuple[Any, ...], dict[str, Any]]  # what a block is called with
Quantise = Callable[[str, Moments], None]  # the name of a block, and what its layers were given
Read = Callable[[str], None]  # fills in the parameters whose names begin so


def skip_reading(part: str) -> None:
    """Reads what is there already."""


class Calibration:
    """A language model with its blocks in `layers`, each called once with what the one before it gave."""

    def __init__(self, module: torch.nn.Module, pieces: Sequence[Sequence[int]], read: Read = skip_reading) -> None:
        self._module = module
        self._pieces = pieces
        self._read = read
        self._blocks = list(module.get_submodule("layers").children())

    def run(self, quantise: Quantise) -> Moments:
        """Call `quantise` for each block in turn; returns the moments of linear layers behind the blocks."""
        import torch

        with torch.no_grad(), _restored(self._module):
            self._read("tok_embeddings.")
            calls = [self._arguments(piece) for piece in self._pieces]
            hidden = [args[0][0][0] for args in calls]  # of each piece, what the next block is given
            for number, block in enumerate(self._blocks):
                name = f"layers.{number}"
                self._read(f"{name}.")
                with _watched(block, name) as moments:
                    for i, piece in enumerate(calls):
                        self._call(block, piece[number], hidden[i])
                quantise(name, moments)
                hidden = [self._call(self._blocks[number], piece[number], hidden[i]) for i, piece in enumerate(calls)]
            return self._behind(hidden)

    @contextmanager
    def reading(self) -> Iterator[CalibrationPass]:
        """The first piece, read once, so that single blocks can be changed and what follows be read again."""
        import torch

        with torch.no_grad(), _restored(self._module):
            yield CalibrationPass(self._module, self._blocks, self._arguments(self._pieces[0]), self._call)

    def _arguments(self, piece: Sequence[int]) -> list[BlockCall]:
        """What every block is called with; of what the blocks hand on, only the first one's is of use.

        No block is computed, and nothing behind them: their weights may not have been read yet.
        """
        import torch

        calls: list[BlockCall] = []

        class Enough(Exception):  # noqa: N818 — not a failure
            pass

        class Noting(torch.nn.Module):  # type: ignore[misc]
            def forward(self, hidden: Any, *args: Any, **kwargs: Any) -> Any:
                calls.append(((None if calls else hidden, *args), kwargs))
                if len(calls) == count:
                    raise Enough
                return hidden

        count = len(self._blocks)
        blocks = self._module.get_submodule("layers")
        self._module.layers = torch.nn.ModuleList(Noting() for _ in range(count))
        try:
            self._module(torch.tensor([list(piece)]), {"input_pos": torch.tensor([0])})
        except Enough:
            return calls
        finally:
            self._module.layers = blocks
        raise AssertionError(f"the model called {len(calls)} of its {count} blocks")

    @staticmethod
    def _call(block: torch.nn.Module, given: BlockCall, hidden: Any) -> Any:
        args, kwargs = given
        result = block(hidden, *args[1:], **kwargs)
        return result[0] if isinstance(result, tuple) else result

    def _behind(self, hidden: Sequence[torch.Tensor]) -> Moments:
        """Of the head, which stands behind the last norm."""
        import torch

        self._read("norm.")
        norm = self._module.get_submodule("norm")
        rows = torch.cat([norm(piece).flatten(0, -2) for piece in hidden])  # (tokens, K)
        return {"output": rows.T @ rows}


class CalibrationPass:
    """A piece of text on its way through the blocks."""

    def __init__(
        self,
        module: torch.nn.Module,
        blocks: Sequence[torch.nn.Module],
        calls: Sequence[BlockCall],
        call: Callable[..., Any],
    ) -> None:
        self._module, self._list, self._calls, self._call = module, blocks, calls, call
        self._given = [calls[0][0][0]]  # what each block is given
        for block, given in zip(blocks, calls, strict=True):
            self._given.append(call(block, given, self._given[-1]))

    @property
    def blocks(self) -> int:
        return len(self._list)

    def given(self, number: int) -> torch.Tensor:
        hidden: torch.Tensor = self._given[number]
        return hidden

    def predictions(self, number: int, hidden: torch.Tensor | None) -> torch.Tensor:
        """Logarithms of what is predicted behind each token, (tokens, V), from what block `number` is given."""
        import torch

        hidden = self._given[number] if hidden is None else hidden
        for block, given in list(zip(self._list, self._calls, strict=True))[number:]:
            hidden = self._call(block, given, hidden)
        logits = self._module.get_submodule("output")(self._module.get_submodule("norm")(hidden))
        return torch.log_softmax(logits.flatten(0, -2).float(), -1)

    def units(self, number: int) -> list[tuple[str, ...]]:
        """The linear layers of a block, those together that are given the same."""
        import torch

        inputs: dict[int, tuple[torch.Tensor, list[str]]] = {}  # the tensor is kept, so that no other has its id

        def note(name: str) -> Callable[..., None]:
            def add(layer: object, args: tuple[torch.Tensor, ...]) -> None:
                inputs.setdefault(id(args[0]), (args[0], []))[1].append(name)

            return add

        block, hooks = self._list[number], []
        for name, layer in block.named_modules():
            if isinstance(layer, torch.nn.Linear):
                hooks.append(layer.register_forward_pre_hook(note(f"layers.{number}.{name}")))
        try:
            self._call(block, self._calls[number], self._given[number])
        finally:
            for hook in hooks:
                hook.remove()
        return [tuple(names) for _, names in inputs.values()]


@contextmanager
def _watched(block: torch.nn.Module, prefix: str) -> Iterator[Moments]:
    """Sums up the inputs of the block's linear layers while it is called."""
    import torch

    moments: Moments = {}

    def note(name: str) -> Callable[..., None]:
        def add(layer: object, args: tuple[torch.Tensor, ...]) -> None:
            rows = args[0].flatten(0, -2)  # (tokens, K)
            moments[name] = moments.get(name, 0) + rows.T @ rows

        return add

    hooks = [
        layer.register_forward_pre_hook(note(f"{prefix}.{name}"))
        for name, layer in block.named_modules()
        if isinstance(layer, torch.nn.Linear)
    ]
    try:
        yield moments
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def _restored(module: torch.nn.Module) -> Iterator[None]:
    """Puts caches back as they were: what stands in them would be exported."""
    kept = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in module.named_buffers():
            if name in kept:
                buffer.copy_(kept[name])
