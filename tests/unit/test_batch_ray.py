"""Blocks of a job divided among Ray actors, and errors of actors."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest

import webpte
from tests.support.harness.errors import raises
from webpte.batch import on_ray, run
from webpte.batch.on_ray import MIN_CHUNKS_PER_ACTOR, block_stats, chunks
from webpte.batch.tables import RowBlock
from webpte.batch.task_spec import TaskSpec
from webpte.batch.worker import BatchJob, BatchWorker, BlockStats


def blocks_of(*groups):
    return [RowBlock("x", number, 10 * first, 10) for number, count in enumerate(groups) for first in range(count)]


def job_of(source):
    return BatchJob("model.pte", str(source), "out", 10, TaskSpec("embed"), "fingerprint", adapter=1)


@pytest.mark.parametrize("actors", [1, 2, 7])
@pytest.mark.parametrize("groups", [(1,), (40,), (1,) * 9, (100, 3, 50)])
def test_ray_chunks_hold_each_block_once_within_row_groups(groups, actors):
    blocks = blocks_of(*groups)
    result = chunks(blocks, actors)
    assert [block for some in result for block in some] == blocks
    assert all(len({block.group for block in some}) == 1 for some in result)
    assert len(result) >= min(len(blocks), MIN_CHUNKS_PER_ACTOR * actors)


def test_shards_keep_row_groups_whole_if_there_are_enough():
    assert [len(some) for some in chunks(blocks_of(*(3,) * 8), 2)] == [3] * 8


def test_ray_actor_error_raised_after_its_blocks(monkeypatch, tmp_path):
    def run(self, blocks):
        yield stats
        raise webpte.FormatError("a damaged block", code="damaged")

    (tmp_path / "x.jsonl").touch()
    (block,) = blocks_of(1)
    stats = BlockStats(block, "name", True, rows=10, failed=1, tokens=5, computed_tokens=6)
    monkeypatch.setattr(BatchWorker, "run", run)
    batch = {"blocks": [json.dumps([asdict(block)])]}
    results = [json.loads(one) for one in on_ray.Actor(job_of(tmp_path / "x.jsonl"), gpus=False)(batch)["results"]]
    assert block_stats(results[0]) == stats
    with raises(webpte.FormatError, "a damaged block", code="damaged"):
        block_stats(results[1])
    (missing,) = on_ray.Actor(job_of(tmp_path / "none.jsonl"), gpus=False)(batch)["results"]
    with raises(webpte.InputError, "none.jsonl", code="missing_input"):
        block_stats(json.loads(missing))


def test_ray_options_without_actors_are_refused(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "a"}\n')
    (tmp_path / "model.pte").touch()
    with raises(webpte.InputError, "gpus", "actors", code="missing_option"):
        run(tmp_path / "model.pte", tmp_path / "x.jsonl", tmp_path / "out", gpus=True)
    with raises(webpte.InputError, "actors", "got 0", code="invalid_number"):
        run(tmp_path / "model.pte", tmp_path / "x.jsonl", tmp_path / "out", actors=0)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("gpus", "adapter"), [(True, 3), (False, 1)])
def test_ray_actor_uses_adapter_of_its_gpu(monkeypatch, tmp_path, gpus, adapter):
    """Ray shows the number as text."""
    context = SimpleNamespace(get_accelerator_ids=lambda: {"GPU": ["3"]})
    monkeypatch.setattr(on_ray, "_ray", lambda: SimpleNamespace(get_runtime_context=lambda: context))
    assert on_ray.Actor(job_of(tmp_path), gpus)._job.adapter == adapter
