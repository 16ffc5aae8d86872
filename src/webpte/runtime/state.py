"""The state of methods: on the device and the host, shared between methods, and in files.

State that a kernel on the device uses is stored there, in the device's dtypes; CPU kernels read it back and upload what
they write. The rest is stored on the host, in the dtypes the program declares, as arrays that are replaced and never
written into: several forks may hold the same array.

A state file holds a magic number, the program's fingerprint, the number of buffers, the length of a note, the buffers'
sizes, the note, the buffers' bytes, and the SHA-256 of all that; little-endian. It is written under a temporary name,
synced to the disk and renamed, so that no reader sees an incomplete file. It is read and checked whole before use.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from ..device import NO_OBSERVER, Extent, Observer, Session
from ..errors import DataError, FormatError, InputError, RangeError
from ..graph import DType
from ..partial_files import output_file
from ..plan import Plan
from ..typing import Array, PathLike
from .converter import from_device, to_device


class MethodState:
    """The state of one method or fork. `session` holds the device's part; None if nothing runs on a device."""

    def __init__(self, plan: Plan, session: Session | None) -> None:
        self._plan = plan
        self.session = session
        self._arrays = self._initial()

    def _initial(self) -> dict[int, Array]:
        """Return the initial arrays: those of the file, else zeros."""
        arrays = {}
        for value_id in self._plan.host_state:
            spec = self._plan.graph.tensor(value_id)
            dtype = spec.host_dtype.held
            held = spec.constant.array(spec.dims) if spec.constant is not None else np.zeros(spec.dims, dtype)
            arrays[value_id] = np.ascontiguousarray(held, dtype).reshape(spec.dims)
        return arrays

    def array(self, value_id: int, observer: Observer = NO_OBSERVER) -> Array:
        """Return a state tensor in its declared dtype. Do not write into it."""
        if value_id in self._arrays:
            return self._arrays[value_id]
        assert self.session is not None
        spec = self._plan.graph.tensor(value_id)
        return from_device(self.session.read_tensor(value_id, observer), spec.dims, spec)

    def for_device(self, written: Mapping[int, Array]) -> list[tuple[int, Array]]:
        """Return those of the written tensors that are stored on the device, in its dtype."""
        graph = self._plan.graph
        return [
            (value_id, to_device(array, graph.tensor(value_id), functools.partial(_beyond, value_id)))
            for value_id, array in written.items()
            if value_id not in self._arrays
        ]

    def commit(self, written: Mapping[int, Array]) -> int:
        """Store the tensors that the host has written in a call: all of them, or none if one cannot be converted.

        Return the bytes that were uploaded.
        """
        ready = self.for_device(written)
        # Copies: the result of a kernel may be a view of the caller's inputs or outputs.
        copies = {value_id: np.array(array) for value_id, array in written.items() if value_id in self._arrays}
        for value_id, array in ready:
            assert self.session is not None
            self.session.upload(value_id, array)
        self._arrays = self._arrays | copies
        return sum(array.nbytes for _, array in ready)

    def reset(self, kept: int | None = None) -> None:
        """Restore the initial values, except that of the tensor `kept` on the device."""
        if self.session is not None:
            self.session.reset(kept)
        self._arrays = self._initial()

    def copy(self, other: MethodState) -> None:
        """Copy the state of another method of the same plan."""
        if self.session is not None and other.session is not None:
            self.session.copy_state(other.session)
        self._arrays = other._arrays

    def same_layout(self, value_id: int, other: MethodState, theirs: int) -> bool:
        """Return whether both states have a tensor on one device, in the same dtype."""
        if self.session is None or other.session is None or self.session.gpu is not other.session.gpu:
            return False
        mine, its = self._plan.graph.tensor(value_id), other._plan.graph.tensor(theirs)
        return mine.dtype == its.dtype and value_id not in self._arrays and theirs not in other._arrays

    def copy_tensors(self, other: MethodState, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy tensors of another method's state that have the `same_layout`, on the device."""
        assert self.session is not None and other.session is not None
        self.session.copy_tensors(other.session, pairs)

    def take(self, other: MethodState, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy tensors of another method's state: (theirs, ours), of equal sizes and perhaps of other shapes."""
        on_device = [(theirs, ours) for theirs, ours in pairs if self.same_layout(ours, other, theirs)]
        dims = {ours: self._plan.graph.tensor(ours).dims for _, ours in pairs}
        self.commit({o: other.array(t).reshape(dims[o]) for t, o in pairs if (t, o) not in on_device})
        if on_device:
            self.copy_tensors(other, on_device)

    def copy_rows(self, value_id: int, row: int, other: MethodState, theirs: int) -> None:
        """Copy a tensor of another method's state to rows of one of this state, on the device if both are on one."""
        bytes_per_row = self._plan.stored_bytes(value_id) // self._plan.graph.tensor(value_id).dims[0]
        if self.same_layout(value_id, other, theirs):
            self._device().copy_into(value_id, row * bytes_per_row, other._device(), theirs)
        else:
            spec = self._plan.graph.tensor(value_id)
            rows = to_device(other.array(theirs), spec, functools.partial(_beyond, value_id))
            self._device().write_into(value_id, row * bytes_per_row, rows)

    def copy_extents(self, source: MethodState, extents: Sequence[Extent]) -> None:
        """Copy ranges of the state on the device, from this method or another one with the same state buffers."""
        self._device().copy_extents(source._device(), extents)

    def read_extents(self, extents: Sequence[Extent]) -> list[memoryview]:
        """Return ranges of the state on the device, each from the extent's `source`."""
        return self._device().read_extents(extents)

    def write_extents(self, extents: Sequence[Extent], pieces: Sequence[memoryview]) -> None:
        """Write what `read_extents` returned into ranges of the state on the device."""
        self._device().write_extents(extents, pieces)

    def _device(self) -> Session:
        if self.session is None:
            raise InputError(f"{self._plan.graph.name} has no state on a device", code="no_device_state")
        return self.session

    def sizes(self) -> list[int]:
        """Return the bytes of each buffer, those on the device first."""
        sizes = self.session.state_sizes() if self.session is not None else []
        return sizes + [array.nbytes for array in self._arrays.values()]

    def read(self) -> list[memoryview]:
        """Return the contents of each buffer."""
        pieces = self.session.read_state() if self.session is not None else []
        return pieces + [memoryview(array.tobytes()) for array in self._arrays.values()]

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Write the buffers of `read`, whose sizes were checked."""
        count = len(pieces) - len(self._arrays)
        arrays = {
            value_id: _from_bytes(piece, old)
            for (value_id, old), piece in zip(self._arrays.items(), pieces[count:], strict=True)
        }
        if self.session is not None:
            self.session.write_state(pieces[:count])
        self._arrays = arrays


def _beyond(value_id: int, expected: str, got: str) -> RangeError:
    return RangeError(
        argument=f"value {value_id}, state that a CPU kernel wrote",
        expected=f"{expected}, because the device uses it",
        got=got,
        hint="Make the buffer float64, which stays on the CPU, or keep smaller integers in it.",
    )


def _from_bytes(piece: memoryview, like: Array) -> Array:
    if like.dtype == np.bool_:  # bytes of a file may be neither 0 nor 1
        return np.frombuffer(piece, np.uint8).astype(np.bool_).reshape(like.shape)
    return np.frombuffer(bytearray(piece), like.dtype).reshape(like.shape)


class SharedBuffer(NamedTuple):
    """The identity of a buffer that several methods share. Their shapes may differ: one may be a view."""

    place: tuple[int, int]  # pool and offset in the exporter's memory plan
    dtype: DType
    nbytes: int


class SharedCopy(NamedTuple):
    """A method's own copy of a shared buffer."""

    buffer: SharedBuffer
    value_id: int
    dims: tuple[int, ...]


class SharedState:
    """Synchronizes the copies of a program's methods. They share a lock: a call of one reads the state of another."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._latest: dict[SharedBuffer, tuple[MethodState, int]] = {}

    def share_of(self, plan: Plan) -> StateShare | None:
        """Return a method's share, or None if it shares nothing."""
        copies = _copies(plan)
        return StateShare(self, copies) if copies else None

    def synchronize(self, state: MethodState, copies: Sequence[SharedCopy]) -> None:
        """Copy the latest shared buffers to a method, and record that it has the latest: it may write them now."""
        stale: dict[MethodState, list[tuple[int, int]]] = {}
        for copy in copies:
            holder, theirs = self._latest.get(copy.buffer, (state, copy.value_id))
            if holder is not state:
                stale.setdefault(holder, []).append((theirs, copy.value_id))
        for holder, pairs in stale.items():
            state.take(holder, pairs)
        self._latest.update({copy.buffer: (state, copy.value_id) for copy in copies})

    def forget(self, state: MethodState) -> None:
        """Drop the record of a method whose state was released."""
        self._latest = {buffer: held for buffer, held in self._latest.items() if held[0] is not state}


class StateShare(NamedTuple):
    """The shared buffers of one method."""

    whole: SharedState
    copies: tuple[SharedCopy, ...]

    def synchronize(self, state: MethodState) -> None:
        self.whole.synchronize(state, self.copies)

    def forget(self, state: MethodState) -> None:
        self.whole.forget(state)


def _copies(plan: Plan) -> tuple[SharedCopy, ...]:
    """Return a method's copies of buffers that other methods may share."""
    copies = []
    for value_id in sorted(plan.flow.state):
        spec = plan.graph.tensor(value_id)
        if spec.shared is not None:
            dtype, nbytes = spec.host_dtype, plan.stored_bytes(value_id)
            copies.append(SharedCopy(SharedBuffer(spec.shared, dtype, nbytes), value_id, spec.dims))
    return tuple(copies)


MAGIC = b"webpte state 2\n\0"
OLD_MAGIC = b"webpte state 1\n\0"
MAX_NOTE_BYTES = 64 << 20
_HEADER = struct.Struct("<16s64sII")
_DIGEST = hashlib.sha256().digest_size


def write_state(path: PathLike, fingerprint: str, state: Sequence[memoryview], note: bytes) -> None:
    if len(note) > MAX_NOTE_BYTES:
        raise InputError(
            argument="note", expected=f"at most {MAX_NOTE_BYTES} bytes", got=f"{len(note)} bytes", code="too_long"
        )
    name = os.fspath(path)
    header = _HEADER.pack(MAGIC, fingerprint.encode(), len(state), len(note))
    sizes = struct.pack(f"<{len(state)}Q", *(len(data) for data in state))
    pieces: list[bytes | memoryview] = [header, sizes, note, *state]
    digest = hashlib.sha256()
    with output_file(name) as temporary, open(temporary, "wb") as file:
        for data in pieces:
            digest.update(data)
            file.write(data)
        file.write(digest.digest())
        file.flush()
        os.fsync(file.fileno())
    _sync_folder(os.path.dirname(name) or ".")


def _sync_folder(folder: str) -> None:
    """Sync the new name to the disk, if the system supports it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


Sizes = Sequence[int] | Callable[[bytes], Sequence[int]]  # bytes of each buffer, or a function of the file's note


def read_state(path: PathLike, fingerprint: str, sizes: Sizes) -> tuple[list[memoryview], bytes]:
    """Return the buffers and the note of a file, after checks that it is complete and of this program.

    A function of sizes is called before the file's digest is checked, and may raise.
    """
    name = os.fspath(path)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before open(), which would wait for ever on a pipe
            raise FormatError(f"{name} is not a regular file", code="not_regular_file")
        with open(path, "rb") as file:
            return _read(file, name, fingerprint, sizes)
    except OSError as error:
        raise FormatError(f"cannot read {name}: {error}", code="unreadable") from error


def _read(file: BinaryIO, name: str, fingerprint: str, expected_sizes: Sizes) -> tuple[list[memoryview], bytes]:
    head = file.read(_HEADER.size)
    if head.startswith(OLD_MAGIC):
        raise FormatError(
            f"{name} is a snapshot of an older format, without a digest",
            code="unknown_version",
            hint="Write it again.",
        )
    if len(head) < _HEADER.size or not head.startswith(MAGIC):
        raise FormatError(f"{name} is not a webpte state file", code="bad_magic")
    _, owner, count, length = _HEADER.unpack(head)
    if owner != fingerprint.encode():
        raise DataError(f"{name} is the state of another program or method, or of other weights", code="other_program")
    file_size = os.fstat(file.fileno()).st_size
    table = file.read(min(8 * count, file_size))
    note = file.read(min(length, MAX_NOTE_BYTES))
    sizes = expected_sizes(note) if callable(expected_sizes) else expected_sizes
    if count != len(sizes) or table != struct.pack(f"<{len(sizes)}Q", *sizes):
        raise DataError(
            f"{name}: the sizes of its {count} buffers differ from this method's {len(sizes)}", code="buffer_sizes"
        )
    expected = len(head) + len(table) + length + sum(sizes) + _DIGEST
    if length > MAX_NOTE_BYTES or file_size != expected:
        kind = "truncated" if file_size < expected else "too long"
        code = "truncated" if file_size < expected else "too_long"
        raise FormatError(
            f"{name} is {kind}: expected {expected} bytes for its note and {count} buffers, got {file_size} bytes",
            code=code,
        )
    rest = file.read()
    body, digest = memoryview(rest)[:-_DIGEST], rest[-_DIGEST:]
    whole = hashlib.sha256(head)
    for part in (table, note, body):
        whole.update(part)
    if whole.digest() != digest:
        raise FormatError(f"{name} is damaged: its contents do not match their SHA-256", code="hash_mismatch")
    state, offset = [], 0
    for size in sizes:
        state.append(body[offset : offset + size])
        offset += size
    return state, note
