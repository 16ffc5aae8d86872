"""Collect the inputs of a model's layers while it reads a text, block by block, after the blocks already quantized."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Moments = dict[str, "torch.Tensor"]  # X'X of the inputs of a linear layer, by its name
BlockCall = tuple[tuple[Any, ...], dict[str, Any]]  # the arguments of a block
Quantize = Callable[[str, Moments], None]  # the name of a block, and the moments of its layers' inputs
Read = Callable[[str], None]  # reads the parameters whose names begin so


def skip_reading(part: str) -> None:
    """Do nothing: all parameters are read already."""


class Calibration:
    """Run a language model block by block. Its blocks are in `layers`; each takes the output of the previous one."""

    def __init__(self, module: torch.nn.Module, pieces: Sequence[Sequence[int]], read: Read = skip_reading) -> None:
        self._module = module
        self._pieces = pieces
        self._read = read
        self._blocks = list(module.get_submodule("layers").children())

    def run(self, quantize: Quantize) -> Moments:
        """Call `quantize` for each block in turn; return the moments of linear layers after the blocks."""
        import torch

        with torch.no_grad(), _restored(self._module):
            self._read("tok_embeddings.")
            calls = [self._arguments(piece) for piece in self._pieces]
            hidden = [args[0][0][0] for args in calls]  # of each piece, the input of the next block
            for number, block in enumerate(self._blocks):
                name = f"layers.{number}"
                self._read(f"{name}.")
                with _record_moments(block, name) as moments:
                    for i, piece in enumerate(calls):
                        self._call(block, piece[number], hidden[i])
                quantize(name, moments)
                hidden = [self._call(self._blocks[number], piece[number], hidden[i]) for i, piece in enumerate(calls)]
            return self._head_moments(hidden)

    @contextmanager
    def first_piece(self) -> Iterator[CalibrationPass]:
        """Run the first piece once, so that single blocks can be changed and the blocks after them run again."""
        import torch

        with torch.no_grad(), _restored(self._module):
            yield CalibrationPass(self._module, self._blocks, self._arguments(self._pieces[0]), self._call)

    def _arguments(self, piece: Sequence[int]) -> list[BlockCall]:
        """Return the arguments of every block. Of the hidden states, only those of the first block are valid.

        No block is computed, nor anything after them: their weights may not have been read yet.
        """
        import torch

        calls: list[BlockCall] = []

        class AllRecorded(Exception):  # noqa: N818 — not a failure
            pass

        class Recorder(torch.nn.Module):  # type: ignore[misc]
            def forward(self, hidden: Any, *args: Any, **kwargs: Any) -> Any:
                calls.append(((None if calls else hidden, *args), kwargs))
                if len(calls) == count:
                    raise AllRecorded
                return hidden

        count = len(self._blocks)
        blocks = self._module.get_submodule("layers")
        self._module.layers = torch.nn.ModuleList(Recorder() for _ in range(count))
        try:
            self._module(torch.tensor([list(piece)]), {"input_pos": torch.tensor([0])})
        except AllRecorded:
            return calls
        finally:
            self._module.layers = blocks
        raise AssertionError(f"the model called {len(calls)} of its {count} blocks")

    @staticmethod
    def _call(block: torch.nn.Module, arguments: BlockCall, hidden: Any) -> Any:
        args, kwargs = arguments
        result = block(hidden, *args[1:], **kwargs)
        return result[0] if isinstance(result, tuple) else result

    def _head_moments(self, hidden: Sequence[torch.Tensor]) -> Moments:
        """Return the moments of the head's inputs, after the last norm."""
        import torch

        self._read("norm.")
        norm = self._module.get_submodule("norm")
        rows = torch.cat([norm(piece).flatten(0, -2) for piece in hidden])  # (tokens, K)
        return {"output": rows.T @ rows}


class CalibrationPass:
    """The inputs of all blocks for one piece of text."""

    def __init__(
        self,
        module: torch.nn.Module,
        blocks: Sequence[torch.nn.Module],
        calls: Sequence[BlockCall],
        call: Callable[..., Any],
    ) -> None:
        self._module, self._list, self._calls, self._call = module, blocks, calls, call
        self._inputs = [calls[0][0][0]]  # of each block
        for block, arguments in zip(blocks, calls, strict=True):
            self._inputs.append(call(block, arguments, self._inputs[-1]))

    @property
    def blocks(self) -> int:
        return len(self._list)

    def block_input(self, number: int) -> torch.Tensor:
        """Return the input of a block."""
        hidden: torch.Tensor = self._inputs[number]
        return hidden

    def predictions(self, number: int, hidden: torch.Tensor | None) -> torch.Tensor:
        """Return log-probabilities after each token, (tokens, V), from the input of block `number`."""
        import torch

        hidden = self._inputs[number] if hidden is None else hidden
        for block, arguments in list(zip(self._list, self._calls, strict=True))[number:]:
            hidden = self._call(block, arguments, hidden)
        logits = self._module.get_submodule("output")(self._module.get_submodule("norm")(hidden))
        return torch.log_softmax(logits.flatten(0, -2).float(), -1)

    def units(self, number: int) -> list[tuple[str, ...]]:
        """Return the linear layers of a block, grouped by their input."""
        import torch

        inputs: dict[int, tuple[torch.Tensor, list[str]]] = {}  # the tensor is kept alive, so that its id stays unique

        def note(name: str) -> Callable[..., None]:
            def add(layer: object, args: tuple[torch.Tensor, ...]) -> None:
                inputs.setdefault(id(args[0]), (args[0], []))[1].append(name)

            return add

        block, hooks = self._list[number], []
        for name, layer in block.named_modules():
            if isinstance(layer, torch.nn.Linear):
                hooks.append(layer.register_forward_pre_hook(note(f"layers.{number}.{name}")))
        try:
            self._call(block, self._calls[number], self._inputs[number])
        finally:
            for hook in hooks:
                hook.remove()
        return [tuple(names) for _, names in inputs.values()]


@contextmanager
def _record_moments(block: torch.nn.Module, prefix: str) -> Iterator[Moments]:
    """Sum up the moments of the inputs of the block's linear layers while it is called."""
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
    """Restore the caches afterwards, because their values are exported."""
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    try:
        yield
    finally:
        for name, buffer in module.named_buffers():
            if name in buffers:
                buffer.copy_(buffers[name])
