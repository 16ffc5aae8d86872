"""Batch jobs on Ray: two actors, one of them killed, and the recipe of the page."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pyarrow.parquet as pq
import pytest

import webpte
from tests.support.harness.bulk import actor_processes, contents, kept_rows, read
from tests.support.harness.errors import raises
from tests.support.harness.recipes import page_folder, recipe, same_vectors
from tests.support.models import example_models
from webpte.batch import run

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'webpte[ray]'")
ROWS, BLOCK = 300, 10


@pytest.fixture(scope="module")
def cluster(folder):
    before = os.getcwd()
    os.chdir(folder)  # where its processes begin
    try:
        ray.init(num_cpus=3, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="error")
    finally:
        os.chdir(before)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return page_folder(tmp_path_factory.mktemp("page"), ROWS)


@pytest.fixture(scope="module")
def undisturbed(folder):
    run(folder / "minilm.pte", folder / "tickets.parquet", folder / "alone", block_rows=BLOCK)
    return folder / "alone"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ray_killed_actor_keeps_every_row_once(cluster, folder, undisturbed):
    out, killed = folder / "by actors", []

    def kill() -> None:
        while len(list(out.rglob("g*.parquet"))) < 3:
            time.sleep(0.01)
        killed.append(actor_processes()[0])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    report = run(folder / "minilm.pte", folder / "tickets.parquet", out, block_rows=BLOCK, actors=2)
    killer.join(60)
    assert killed and report.rows == ROWS and report.actors == 2
    assert contents(out) == contents(undisturbed)
    assert read(out)["id"].to_pylist() == list(range(ROWS))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ray_killed_actor_keeps_finished_rows_of_its_block(cluster, folder):
    """The actor is killed within the only block, and the one that replaces it computes the other rows."""
    talker, out, killed = example_models.talker() / "smollm2.pte", folder / "answers", []
    settings: Any = {"settings": {"max_new_tokens": 40}, "block_rows": ROWS}
    run(talker, folder / "tickets.parquet", folder / "answers alone", **settings)

    def kill() -> None:
        while len(kept_rows(out)) < 8:
            time.sleep(0.01)
        killed.append(len(kept_rows(out)))
        os.kill(actor_processes()[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    report = run(talker, folder / "tickets.parquet", out, actors=1, **settings)
    killer.join(60)
    assert killed and report.rows == ROWS and report.reused_rows >= killed[0]
    assert contents(out) == contents(folder / "answers alone")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ray_actor_reserves_gpu_and_raises_our_errors(cluster, folder):
    """If Ray assigned no GPU, or one without an adapter, the error would be another one."""
    with raises(webpte.InputError, "prompt", "'title'"):
        run(folder / "minilm.pte", folder / "tickets.parquet", folder / "never", actors=1, gpus=True, prompt="title")
    assert not list((folder / "never").rglob("*.parquet"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ray_recipe_writes_same_vectors(cluster, folder, undisturbed, monkeypatch):
    monkeypatch.chdir(folder)
    exec(compile(recipe("with_ray.py"), "with_ray.py", "exec"), {"__name__": "recipe"})
    same_vectors(pq.read_table(folder / "vectors_by_ray"), undisturbed)
