"""A second player of saved plans, made from docs/plans.md alone: it imports nothing of webpte. No CPU calls."""

from __future__ import annotations

import base64
import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import wgpu

Array = np.ndarray[Any, Any]
ON_DEVICE = {"bool": "<u4", "f16w": "<f4", "i32": "<i4", "f32": "<f4", "f16": "<f2", "i8": "i1", "u8": "u1"}
ON_HOST = {**ON_DEVICE, "bool": "?", "i64": "<i8", "f64": "<f8", "i16": "<i2"}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "neg")
}
FUNCTIONS |= {name: getattr(operator, name) for name in ("eq", "ne", "ge", "gt", "le", "lt")}
FUNCTIONS |= {"min": min, "max": max, "not": operator.not_, "int": int, "float": float, "round": round}
FUNCTIONS |= {"trunc": math.trunc, "ceil": math.ceil, "select": lambda c, a, b: a if c else b}
FUNCTIONS |= {"round_to_f16": lambda x: float(np.float16(x)), "float_bits": lambda x: int(np.float32(x).view(np.int32))}
FUNCTIONS |= {"saturate": lambda x: int(min(max(x, -(2**31)), 2**31 - 1))}
SLOTS = 256
STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
UNIFORM = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST


class RefusedError(Exception):
    """A guard or a check that does not hold, or a shape that was not saved."""


def inputs_of(term: Any) -> set[int]:
    """Return the values that a term stands on."""
    if not isinstance(term, list):
        return set()
    if term[0] in ("element", "least", "greatest", "scalar"):
        return {term[1]}
    inner = [product[1] for product in term[2:]] if term[0] == "sum" else term[1:]
    return set().union(*map(inputs_of, inner))


class Player:
    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self.folder = folder
        self.plan = json.loads((folder / "plan.json").read_text())
        if self.plan["cpu_calls"]:
            raise RefusedError(", ".join(call["name"] for call in self.plan["cpu_calls"]))
        adapter = wgpu.gpu.request_adapter_sync()
        self.device = adapter.request_device_sync(required_features=self.plan["features"])  # with all limits it has
        if lacking := [n for n, most in self.plan["limits"].items() if self.device.limits[n] < most]:
            raise RefusedError(", ".join(lacking))
        self.files = [self._file(item, files) for item in self.plan["files"]]
        self.uniforms = self._layout(["uniform", "uniform"])
        self.kernels = [self._kernel(number, item) for number, item in enumerate(self.plan["kernels"])]
        self.scalars = self.device.create_buffer(size=SLOTS * 16, usage=UNIFORM)
        self.parameters = [self._parameters(base64.b64decode(block)) for block in self.plan["parameters"]]
        self.buffers = [self.device.create_buffer(size=item["bytes"], usage=STORAGE) for item in self.plan["buffers"]]
        for buffer, item in zip(self.buffers, self.plan["buffers"], strict=True):
            if item["fill"]:
                self._write(buffer, self._constant(item["fill"]).astype(ON_DEVICE[item["fill"]["dtype"]]))

    # -- before the first call -----------------------------------------------------------------------------------------

    def _file(self, expected: Mapping[str, Any], files: Sequence[Path]) -> bytes:
        return next(path.read_bytes() for path in files if path.name == expected["name"])

    def _constant(self, item: Mapping[str, Any]) -> Array:
        data = b"".join(self.files[file][offset : offset + size] for file, offset, size in item["spans"])
        return np.frombuffer(data, ON_HOST[item["stored_dtype"]])

    def _layout(self, kinds: Sequence[str]) -> Any:
        entries = [
            {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
            for i, kind in enumerate(kinds)
        ]
        return self.device.create_bind_group_layout(entries=entries)

    def _kernel(self, number: int, item: Mapping[str, Any]) -> Any:
        layout = self._layout(["read-only-storage"] * item["reads"] + ["storage"] * item["writes"])
        return self.device.create_compute_pipeline(
            layout=self.device.create_pipeline_layout(bind_group_layouts=[self.uniforms, layout]),
            compute={
                "module": self.device.create_shader_module(code=self._text(number)),
                "entry_point": "main",
                "constants": {"wg": item["workgroup"]},
            },
        ), layout

    def _text(self, number: int) -> str:
        return (self.folder / f"kernel{number}.wgsl").read_text()

    def _parameters(self, block: bytes) -> Any:
        buffer = self.device.create_buffer(size=256, usage=UNIFORM)
        self.device.queue.write_buffer(buffer, 0, block)
        return self._group(self.uniforms, [(buffer, 0, 256), (self.scalars, 0, SLOTS * 16)])

    def _group(self, layout: Any, ranges: Sequence[tuple[Any, int, int]]) -> Any:
        entries = [
            {"binding": i, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for i, (buffer, offset, size) in enumerate(ranges)
        ]
        return self.device.create_bind_group(layout=layout, entries=entries)

    def _write(self, buffer: Any, array: Array) -> None:
        data = array.tobytes()
        self.device.queue.write_buffer(buffer, 0, data + bytes(-len(data) % 4))

    # -- a call --------------------------------------------------------------------------------------------------------

    def __call__(self, *inputs: Array) -> list[Array]:
        call = _Call(self, inputs)
        blocks = self.plan["blocks"]
        number = 0
        while number < len(blocks):
            for stage in blocks[number]["stages"]:
                call.segment(stage["submit"])
            condition = blocks[number]["condition"]
            jumps = condition is not None and not call.truth(condition)
            number = blocks[number]["target"] if jumps else number + 1
        return [call.output(v) for v in self.plan["outputs"]]


class _Call:
    def __init__(self, player: Player, inputs: Sequence[Array]) -> None:
        self.player, self.plan = player, player.plan
        self.arrays: dict[int, Array] = {}
        self.dims: dict[int, list[int]] = {}
        self.numbers: dict[int, Any] = {}
        self.terms: dict[int, Any] = {}
        for value, array in zip(self.plan["inputs"], inputs, strict=True):
            if self.value(value)["kind"] == "tensor":
                self.arrays[value], self.dims[value] = array, list(array.shape)
            else:
                self.numbers[value] = array.item()

    def value(self, number: int) -> Any:
        return self.plan["values"][str(number)]

    def output(self, value: int) -> Array:
        known = self.arrays if value in self.arrays else self.numbers
        return np.asarray(known[value] if value in known else self.value(value)["value"])

    def truth(self, value: int) -> bool:
        known = self.numbers if value in self.numbers else self.arrays
        return bool(np.all(known[value]))

    def number(self, term: Any) -> Any:
        match term:
            case ["element", value, index, _]:
                return self.arrays[value][tuple(index)].item()
            case ["least", value]:
                return int(self.arrays[value].min())
            case ["greatest", value]:
                return int(self.arrays[value].max())
            case ["scalar", value, _]:
                return self.numbers[value]
            case ["sum", constant, *products]:
                return constant + sum(factor * self.number(part) for factor, part in products)
            case [function, *args]:
                return FUNCTIONS[function](*map(self.number, args))
        return float(term) if isinstance(term, str) else term

    def term(self, scalar: int) -> Any:
        return self.terms.get(scalar, ["scalar", scalar, self.value(scalar)["kind"] != "symfloat"])

    def segment(self, number: int) -> None:
        segment = self.plan["segments"][number]
        schedule = self._schedule(number, segment)
        for guard in schedule["guards"]:
            actual = self.number(guard["term"])
            if not (
                (guard["low"] is None or guard["low"] <= actual) and (guard["high"] is None or actual < guard["high"])
            ):
                raise RefusedError(guard["message"])
        rows = np.zeros((SLOTS, 4), np.int32)
        for slot, term in schedule["slots"]:
            rows[slot, 0] = self.number(term)
        self.player.device.queue.write_buffer(self.player.scalars, 0, rows.tobytes())
        for value in segment["uploads"]:
            self.player._write(self._place(value), self.arrays[value].astype(ON_DEVICE[self.value(value)["dtype"]]))
        self.dims |= {int(value): dims for value, dims in schedule["result_dims"].items()}
        expected = {*self.plan["on_host"], *self.plan["outputs"]}
        self._run(schedule, [value for value in segment["readbacks"] if value in expected])
        for name, term in schedule["result_scalars"].items():
            self.numbers[int(name)] = self.number(term)
            if inputs_of(term) <= {*self.plan["inputs"]}:
                self.terms[int(name)] = term

    def _schedule(self, number: int, segment: Any) -> Any:
        dims = [self.dims[value] for value in segment["tensors"]]
        scalars = [self.term(value) for value in segment["scalars"]]
        for schedule in self.plan["schedules"]:
            if (schedule["segment"], schedule["dims"], schedule["scalars"]) == (number, dims, scalars) and all(
                self.number(term) == decided for term, decided in schedule["specializations"]
            ):
                return schedule
        raise RefusedError(f"no schedule for {dims}")

    def _place(self, value: int) -> Any:
        return self.player.buffers[self.plan["value_buffers"][str(value)]]

    def _run(self, schedule: Any, reads: Sequence[int]) -> None:
        player = self.player
        encoder = player.device.create_command_encoder()
        work = encoder.begin_compute_pass()
        for kernel, ranges, parameters, grid in schedule["dispatches"]:
            pipeline, layout = player.kernels[kernel]
            work.set_pipeline(pipeline)
            work.set_bind_group(0, player.parameters[parameters])
            work.set_bind_group(1, player._group(layout, [(player.buffers[b], at, size) for b, at, size in ranges]))
            work.dispatch_workgroups(*grid)
        work.end()
        player.device.queue.submit([encoder.finish()])
        for value in reads:
            spec, dims = self.value(value), self.dims[value]
            stored = np.dtype(ON_DEVICE[spec["dtype"]])
            nbytes = math.prod(dims) * stored.itemsize
            data = player.device.queue.read_buffer(self._place(value), 0, -(-nbytes // 4) * 4)
            array = np.frombuffer(data, stored, math.prod(dims)).reshape(dims).astype(ON_HOST[spec["host_dtype"]])
            if str(value) in self.plan["checks"] and array.any():
                raise RefusedError(self.plan["checks"][str(value)])
            self.arrays[value] = array
