"""Buffers that a delegate keeps, in programs of the real exporter: several calls, reset, forks, snapshots."""

from __future__ import annotations

import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.harness.errors import raises
from tests.support.models.kept import PROGRAMS, kept

# Without aliases the file of "remembered" is that of a module without state; those of the others do not say which of
# several constants of one shape is the buffer.
UNSAID = ("normalised", "cascaded")
INFERRED = [name for name in PROGRAMS if name not in ("remembered", *UNSAID)]
# Not "before": the exporter lets it read what the alias was overwritten with.
ALIASED = [name for name in PROGRAMS if name != "before"]
PROGRAM = [(name, False) for name in INFERRED] + [(name, True) for name in ALIASED]


def check(method, sequence, where=""):
    for number, step in enumerate(sequence):
        for got, want in zip(method.run(step.inputs), step.outputs, strict=True):
            assert_close(got, want, 1e-5, 1e-5, f"{where} call {number}")


@pytest.mark.parametrize(("name", "alias"), PROGRAM)
def test_mutable_buffer_calls_equal_eager_and_reset(name, alias):
    exported = export(kept, name=name, alias=alias)
    with webpte.load(exported.path) as program:
        method = program.method()
        assert sum(buffer.kind == "state" for buffer in method.plan.buffers) >= 1
        for sequence in exported.sequences:
            check(method, sequence, name)
            method.reset()


@pytest.mark.parametrize(("name", "alias"), [("added", False), ("normalised", True), ("remembered", True)])
def test_kept_buffers_belong_to_forks_and_snapshots(name, alias, tmp_path):
    exported = export(kept, name=name, alias=alias)
    (first, *rest), (other, *_) = exported.sequences
    with webpte.load(exported.path) as program:
        method = program.method()
        check(method, [first])
        fork = method.fork()
        method.snapshot(tmp_path / "state")
        method.run(other.inputs)  # another state, which the fork must not see
        check(fork, rest, "fork")
    with webpte.load(exported.path) as program:
        method = program.method()
        method.restore(tmp_path / "state")
        check(method, rest, "restored")


@pytest.mark.parametrize("name", UNSAID)
def test_buffers_of_one_shape_are_refused_without_aliases(name):
    with raises(webpte.UnsupportedError, '"alias_buffer_mutations": True'):
        webpte.load(export(kept, name=name, alias=False).path)


def test_kept_buffers_unchanged_by_passes():
    exported = export(kept, name="cascaded", alias=True)
    with webpte.load(exported.path, passes=()) as program:
        check(program.method(), exported.sequences[0])
