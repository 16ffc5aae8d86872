"""A worker process over real programs. Its answers, over HTTP, are in `serving`."""

from __future__ import annotations

import asyncio
import os
import signal

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.models.task_checkpoints import TEXTS, exported
from tests.support.models.tiny_llm import write_tiny_llm
from webpte.embed import Embedder
from webpte.errors import InputError
from webpte.serve.messages import ModelFile, ModelInfo, WorkerOptions
from webpte.serve.supervisor import Supervisor


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = write_tiny_llm(tmp_path_factory.mktemp("llm"))
    return str(folder / "tiny.pte"), str(exported("bert") / "model.pte")


@pytest.mark.slow
def test_vectors_outlive_their_worker(paths):
    _, encoder = paths
    with Embedder.load(encoder) as embedder:
        rows, expected = embedder.tokenizer.encode(TEXTS), embedder(TEXTS)

    async def test() -> None:
        server = Supervisor(ModelFile("e", encoder))
        async with asyncio.timeout(400):
            try:
                await server.start()
                assert np.array_equal(await server.embed("e", rows), expected)
                with raises(InputError, "row 1", "0 tokens"):
                    await server.embed("e", [rows[0], []])
                vectors = asyncio.create_task(server.embed("e", rows * 20))
                await asyncio.sleep(0.05)
                assert server.worker_pid is not None
                os.kill(server.worker_pid, signal.SIGKILL)
                assert np.abs(await vectors - np.tile(expected, (20, 1))).max() < 1e-5
                while not server.stats().restarts:  # it may have been killed when all was done
                    await asyncio.sleep(0.01)
                assert server.stats().restarts == 1
            finally:
                await server.stop(0.0)

    asyncio.run(test())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["language", "encoder"])
def test_description_of_a_model_is_enough_to_make_tokens_elsewhere(paths, kind):
    async def described() -> ModelInfo:
        server = Supervisor(ModelFile("m", paths[kind == "encoder"]), WorkerOptions(max_sequences=4))
        async with asyncio.timeout(400):
            try:
                await server.start()
                assert server.info is not None
                return server.info
            finally:
                await server.stop(0.0)

    info = asyncio.run(described())
    if kind == "language":
        assert (info.kind, info.context, info.vocabulary, info.max_batch) == ("language", 64, 128, 4)
        assert info.text is not None and os.path.exists(info.text.tokenizer)
        assert info.text.template and info.text.eos_ids == (2, 3)
        assert len(info.fingerprint) >= 32 and info.created > 0
    else:
        assert (info.kind, info.context, info.dimensions, info.text) == ("encoder", 20, 48, None)
