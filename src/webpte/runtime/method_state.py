"""What a method keeps from call to call.

State that a kernel on the device touches lives there, in the device's dtypes; what CPU kernels want of it is read back,
and what they write of it is uploaded. The rest lives here, in the dtypes the program declares, as arrays that are
replaced and never written into: several forks may hold the same one.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from ..device import Observer, Session
from ..errors import RangeError
from ..plan import Plan
from .borders import Array, from_device, to_device


class MethodState:
    """The state of one method or fork. `session` holds the device's part; None where nothing runs there."""

    def __init__(self, plan: Plan, session: Session | None) -> None:
        self._plan = plan
        self.session = session
        self._arrays = self._initial()

    def _initial(self) -> dict[int, Array]:
        """As the file says, and zero where it says nothing."""
        arrays = {}
        for value_id in self._plan.host_state:
            spec = self._plan.graph.tensor(value_id)
            wanted = spec.host_dtype.held
            held = spec.constant.array(spec.dims) if spec.constant is not None else np.zeros(spec.dims, wanted)
            arrays[value_id] = np.ascontiguousarray(held, wanted).reshape(spec.dims)
        return arrays

    def array(self, value_id: int, observer: Observer | None = None) -> Array:
        """The state as the host sees it. Not to be written into."""
        if value_id in self._arrays:
            return self._arrays[value_id]
        assert self.session is not None
        spec = self._plan.graph.tensor(value_id)
        return from_device(self.session.read_tensor(value_id, observer), spec.dims, spec)

    def for_device(self, written: Mapping[int, Array]) -> list[tuple[int, Array]]:
        """What of the state that the host has written belongs on the device, as that stores it."""
        graph = self._plan.graph
        return [
            (value_id, to_device(array, graph.tensor(value_id), functools.partial(_beyond, value_id)))
            for value_id, array in written.items()
            if value_id not in self._arrays
        ]

    def keep(self, written: Mapping[int, Array]) -> int:
        """Take over what the host has written in a call that is done: nothing of it if something cannot be held.

        Gives the bytes of it that went to the device.
        """
        ready = self.for_device(written)
        # Of its own: what a kernel has made may be a view of what the caller gave or will be given.
        kept = {value_id: np.array(array) for value_id, array in written.items() if value_id in self._arrays}
        for value_id, array in ready:
            assert self.session is not None
            self.session.upload(value_id, array)
        self._arrays = self._arrays | kept
        return sum(array.nbytes for _, array in ready)

    def reset(self) -> None:
        if self.session is not None:
            self.session.reset()
        self._arrays = self._initial()

    def copy(self, other: MethodState) -> None:
        """Take over the state of another method of the same plan."""
        if self.session is not None and other.session is not None:
            self.session.copy_state(other.session)
        self._arrays = other._arrays

    def alike(self, value_id: int, other: MethodState, theirs: int) -> bool:
        """Whether both have a piece of state on one device, in the same bytes."""
        if self.session is None or other.session is None or self.session.gpu is not other.session.gpu:
            return False
        mine, its = self._plan.graph.tensor(value_id), other._plan.graph.tensor(theirs)
        return mine.dtype == its.dtype and value_id not in self._arrays and theirs not in other._arrays

    def take(self, other: MethodState, pairs: Sequence[tuple[int, int]]) -> None:
        """Take over pieces of another method's state that are `alike`, on the device."""
        assert self.session is not None and other.session is not None
        self.session.copy_tensors(other.session, pairs)

    def sizes(self) -> list[int]:
        """Bytes of each piece of it, first the device's."""
        sizes = self.session.state_sizes() if self.session is not None else []
        return sizes + [array.nbytes for array in self._arrays.values()]

    def read(self) -> list[memoryview]:
        pieces = self.session.read_state() if self.session is not None else []
        return pieces + [memoryview(array.tobytes()) for array in self._arrays.values()]

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Take over what `read` gave, of which the sizes have been checked."""
        count = len(pieces) - len(self._arrays)
        arrays = {
            value_id: _from_bytes(piece, old)
            for (value_id, old), piece in zip(self._arrays.items(), pieces[count:], strict=True)
        }
        if self.session is not None:
            self.session.write_state(pieces[:count])
        self._arrays = arrays


def _beyond(value_id: int, reason: str) -> RangeError:
    return RangeError(f"value {value_id}, the state that a CPU kernel wrote, {reason}")


def _from_bytes(piece: memoryview, like: Array) -> Array:
    if like.dtype == np.bool_:  # bytes of a file may be neither 0 nor 1
        return np.frombuffer(piece, np.uint8).astype(np.bool_).reshape(like.shape)
    return np.frombuffer(bytearray(piece), like.dtype).reshape(like.shape)
