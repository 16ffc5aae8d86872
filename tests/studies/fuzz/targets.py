"""Targets of fuzzing: functions of bytes that return, or raise an exception that is a finding.

A typed error is a right answer. Anything else that escapes, and an execution that takes more than a second of CPU time,
is a finding.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.studies.fuzz.bases import bases
from tests.studies.fuzz.documents import honest, read_changed, read_document
from tests.studies.fuzz.mutations import mutant
from tests.studies.fuzz.xnnpack import xnnpack_mutant
from tests.support.harness.container_samples import facts, read_all, sample_blob, sample_ptd, sample_pte
from tests.support.harness.work import counted_calls
from tests.support.harness.xnn_writer import xnn_sample_blob
from webpte import container as c
from webpte.bundles import bundle_checks
from webpte.errors import Error
from webpte.fusion import PASSES
from webpte.graph import build_graph
from webpte.llm.prompts import render_chat
from webpte.lowering import mutated_positions
from webpte.plan import make_planner
from webpte.runtime.kernels import CpuKernels
from webpte.runtime.manifest import MANIFEST, read_manifest
from webpte.runtime.state import read_state, write_state
from webpte.wgsl import Caps

MAX_CALLS = 5_000_000  # of functions; the seeds and what they are changed to take at most 60,000


@dataclass(frozen=True)
class Target:
    """A function that reads untrusted bytes, with the inputs that a run starts from."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    longest: int = 8192

    def __call__(self, data: bytes) -> None:
        with refused_soon():
            self.run(data)


@contextlib.contextmanager
def refused_soon() -> Iterator[None]:
    """Accept typed errors as answers, and fail where that many functions are called that it looks endless."""
    with contextlib.suppress(Error), counted_calls(MAX_CALLS):
        yield


def read_program(data: bytes) -> None:
    read_all(data)


def read_delegate(data: bytes) -> None:
    facts(c.parse_vulkan(c.Span(c.MappedFile.from_bytes("fuzz.pte", data), 0, len(data))))


def read_xnnpack(data: bytes) -> None:
    facts(c.parse_xnnpack(c.Span(c.MappedFile.from_bytes("fuzz.pte", data), 0, len(data))))


def read_tensors(data: bytes) -> None:
    facts(c.parse_tensors(c.MappedFile.from_bytes("fuzz.ptd", data)))


CAPS = Caps(features=frozenset({"shader-f16", "subgroup"}), subgroup=4)
KERNELS = CpuKernels()
WITH_TORCH = "aten::lgamma.out" in KERNELS  # imports torch now, and not inside the first execution


def plan_program(data: bytes) -> int:
    """Plan all methods of a program, as `load` and `Program.plan` do; gives their number."""
    program = c.parse_program(c.MappedFile.from_bytes("fuzz.pte", data))
    for method in program.methods:
        graph = build_graph(method, program.named_data.get, mutated_positions)
        make_planner(graph, CAPS, KERNELS, passes=tuple(PASSES))
    return len(program.methods)


def plan_mutant(data: bytes) -> None:
    """Bytes choose what is changed in an honest program."""
    random = Random(data)
    changed = mutant(random.choice(bases()), random)
    if changed is not None:
        plan_program(changed)


def plan_xnnpack(data: bytes) -> None:
    """Bytes choose what is changed in an honest XNNPACK delegate."""
    changed = xnnpack_mutant(Random(data))
    if changed is not None:
        plan_program(changed)


FINGERPRINT, STATE_SIZES = "f" * 64, (8, 3)
MESSAGES = [{"role": role, "content": text} for role, text in (("system", "Be."), ("user", "Hi?"), ("user", "\n{{1}}"))]
TEMPLATES = [
    "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}{{ eos_token }}{% endfor %}{% if x %}y{% endif %}",
    "{% set ns = namespace(n=0) %}{% macro f(a) %}{{ a * 3 }}{% endmacro %}{{ f('x') }}{{ raise_exception('no') }}",
    "{{ strftime_now('%Y') }}{{ messages | tojson }}{{ range(9) | join(',') }}{% generation %}{% endgeneration %}",
]


def _state_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_state(f"{folder}/state", FINGERPRINT, [memoryview(bytes(size)) for size in STATE_SIZES], b"note")
        return Path(folder, "state").read_bytes()


def read_snapshot(data: bytes) -> None:
    """Read the bytes as they are, and with a digest that fits them, so that the parts after it are reached."""
    folder = Path(tempfile.gettempdir())
    path = folder / f"webpte-fuzz-{os.getpid()}.state"
    try:
        for content in (data, data[:-32] + hashlib.sha256(data[:-32]).digest()):
            path.write_bytes(content)
            with contextlib.suppress(Error):
                state, _ = read_state(path, FINGERPRINT, STATE_SIZES)
                assert [len(part) for part in state] == list(STATE_SIZES)
    finally:
        path.unlink(missing_ok=True)


def read_bundle(data: bytes) -> None:
    """Bytes as what a manifest's hash is of."""
    with tempfile.TemporaryDirectory() as folder:
        opening = b'{"sha256":"%s",' % hashlib.sha256(data).hexdigest().encode()
        Path(folder, MANIFEST).write_bytes(opening + data)
        read_manifest(folder)


def _manifest_bytes() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        site = bundle_checks(Path(folder, "site"))
        return (site / MANIFEST).read_bytes().split(b",", 1)[1]


def render_template(data: bytes) -> None:
    render_chat(data.decode("utf-8", "replace"), MESSAGES, {"bos_token": "<s>", "eos_token": "</s>"})


TARGETS: dict[str, Target] = {
    "container": Target(
        read_program,
        lambda: [
            sample_pte(),
            sample_pte(extended_header=24),
            sample_pte(inline_delegates=True, inline_constants=True),
        ],
    ),
    "delegate": Target(read_delegate, lambda: [sample_blob()]),
    "manifest": Target(read_bundle, lambda: [_manifest_bytes()]),
    "plan": Target(plan_mutant, lambda: [b"0", b"1"], longest=16),
    "saved": Target(read_document, lambda: [honest()[2].encode()]),
    "saved_field": Target(read_changed, lambda: [b"0", b"1"], longest=16),
    "snapshot": Target(read_snapshot, lambda: [_state_bytes()], longest=512),
    "template": Target(render_template, lambda: [template.encode() for template in TEMPLATES], longest=512),
    "tensors": Target(read_tensors, lambda: [sample_ptd()]),
    "plan_xnnpack": Target(plan_xnnpack, lambda: [b"0", b"1"], longest=16),
    "xnnpack": Target(read_xnnpack, lambda: [xnn_sample_blob("offsets"), xnn_sample_blob("inline")]),
}
