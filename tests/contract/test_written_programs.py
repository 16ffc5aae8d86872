"""Files of the package's writer, read by ExecuTorch: its Python finds the same fields, its C++ loads and runs them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness.container_samples import sample_ptd, sample_pte
from tests.support.harness.rewriting import archived, contents, rewritten, rewritten_tensors
from tests.support.models.families import first
from webpte import container
from webpte.builder import build_program

# Fields that webpte does not read, so that a program that was read and written again lacks them. ExecuTorch's planner
# may also count memory that no value of the plan is in.
NOT_READ = re.compile(
    r"\.(requires_grad|container_meta_type(\..*)?|storage_type|memory_layout|non_const_buffer_sizes\[\d+\])$"
)
# In the sample of the tests' own writer, which leaves out what ExecuTorch's always writes.
LEFT_OUT = re.compile(r"\.(chains(\[0\]\.(in|out)puts)?|non_const_buffer_sizes)$")


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Yield the fields of ExecuTorch's dataclasses that differ."""
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        for field in dataclasses.fields(one):
            yield from differences(getattr(one, field.name), getattr(other, field.name), f"{path}.{field.name}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from differences(a, b, f"{path}[{index}]")
    elif one != other and (one == one or other == other):
        yield path


def read_whole(data: bytes) -> Any:
    """Return a program as ExecuTorch's Python reads it."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    return deserialize_pte_binary(data)


def read(data: bytes) -> Any:
    """Return a program without its blobs, whose graphs are compared separately."""
    file = read_whole(data)
    for entry in file.program.backend_delegate_data:
        if entry.data[4:8] == b"VH00":
            entry.data = b""
    return file


def graph(data: bytes) -> Any:
    from executorch.backends.vulkan.serialization import vulkan_graph_serialize as vulkan
    from executorch.exir._serialize._program import _extract_delegate_payload

    return vulkan.flatbuffer_to_vk_graph(vulkan.extract_vk_flatbuffer(_extract_delegate_payload(data, "VulkanBackend")))


def test_executorch_reads_every_field_of_the_sample() -> None:
    result = set(differences(read(sample_pte()), read(rewritten(sample_pte()))))
    assert not [path for path in result if not NOT_READ.search(path) and not LEFT_OUT.search(path)]


def test_executorch_reads_every_field_of_archived_exports() -> None:
    for name, data in archived(".pte"):
        again = rewritten(data)
        result = set(differences(read(data), read(again)))
        assert contents(again) == contents(data) and rewritten(again) == again, name
        assert not [path for path in result if not NOT_READ.search(path)], name


def test_executorch_reads_every_field_of_delegate_graphs() -> None:
    programs = [(name, data) for name, data in archived(".pte") if b"VH00" in data]
    for name, data in programs[::25]:  # each starts flatc
        try:
            expected = graph(data)
        except ValueError:  # its JSON has no infinities
            continue
        assert not [path for path in differences(expected, graph(rewritten(data))) if not NOT_READ.search(path)], name


def test_executorch_reads_every_entry_of_a_tensor_file() -> None:
    from executorch.exir._serialize._cord import Cord
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

    for data in [sample_ptd(), *(data for _, data in archived(".ptd"))]:
        expected, got = (FlatTensorSerializer().deserialize(Cord(each)) for each in (data, rewritten_tensors(data)))
        assert list(expected.named_data) == list(got.named_data)
        for key in expected.named_data:
            first, second = expected.named_data[key], got.named_data[key]
            assert expected.buffers[first.buffer_index] == got.buffers[second.buffer_index]
            assert first.tensor_layout == second.tensor_layout


def test_executorch_runtime_loads_written_program() -> None:
    portable_lib = pytest.importorskip("executorch.extension.pybindings.portable_lib")
    count = 0
    for name, data in archived(".pte"):
        if b"get_max_seq_len" in data:
            module = portable_lib._load_for_executorch_from_buffer(rewritten(data))
            expected = portable_lib._load_for_executorch_from_buffer(data)
            methods = ("get_max_seq_len", "get_vocab_size")
            assert [module.run_method(m) for m in methods] == [expected.run_method(m) for m in methods], name
            count += 1
    assert count


@pytest.mark.parametrize("family", ["llama", "gemma3", "lfm2"])
def test_executorch_reads_a_built_program(family: str, tmp_path: Path) -> None:
    """Delegates, kernel calls between them, caches of both kinds: every table is there, and C++ verifies the file."""
    from executorch.backends.vulkan.serialization import vulkan_graph_serialize as vulkan

    portable_lib = pytest.importorskip("executorch.extension.pybindings.portable_lib")
    first(family).save(tmp_path / "checkpoint")
    path = build_program(tmp_path / "checkpoint", tmp_path / "m.pte", quantize="4w", max_context=40, max_tokens=24)
    data = path.read_bytes()
    assert portable_lib._load_for_executorch_from_buffer(data).run_method("get_max_seq_len") == [24]
    with container.MappedFile(path) as file:
        program = container.parse_program(file)
        theirs = read_whole(data)
        assert [plan.name for plan in theirs.program.execution_plan] == [method.name for method in program.methods]
        forward, plan = program.methods[0], theirs.program.execution_plan[0]
        assert len(plan.values) == len(forward.values) and plan.inputs == list(forward.inputs)
        assert len(plan.chains[0].instructions) == len(forward.instructions)
        assert {*theirs.named_data.pte_data} == {*program.named_data}
        for delegate, blob in zip(forward.delegates, theirs.program.backend_delegate_data, strict=True):
            ours = container.parse_vulkan(delegate.blob)
            graph = vulkan.flatbuffer_to_vk_graph(vulkan.extract_vk_flatbuffer(bytes(blob.data)))
            assert [(call.name, call.args) for call in graph.chain] == [(c.name, list(c.args)) for c in ours.calls]
            assert len(graph.values) == len(ours.values) and len(graph.constants) == len(ours.constants)
        for key, entry in theirs.named_data.pte_data.items():
            assert bytes(theirs.named_data.buffers[entry.buffer_index]) == bytes(program.named_data[key].view())
