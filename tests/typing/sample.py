"""The whole surface in one typed program, which `mypy --strict` and strict pyright accept; no type of it is Any."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import assert_type

import numpy as np
import numpy.typing as npt

import webpte
from webpte.llm import LLM, Generation, Piece, Usage

Floats = npt.NDArray[np.float32]


def print_progress(event: webpte.Progress) -> None:
    print(f"{event.stage}: {event.done} of {event.total} {event.unit}")


def run(path: Path, x: Floats, cancel: webpte.CancelToken) -> Floats:
    """Return a program of a path, of bytes and of a file; a method by position, by name and into an array."""
    limits = {"max-buffer-size": 1 << 28}
    with webpte.load(
        path, data=[io.BytesIO(b"")], limits=limits, memory=1 << 30, progress=print_progress, cancel=cancel
    ) as program:
        assert_type(program.method_names, tuple[str, ...])
        assert_type(program.memory(), webpte.Memory)
        assert_type(program.memory("forward").kinds, dict[str, int])
        method = program.method("forward", progress=print_progress)
        assert_type(method.inputs, tuple[webpte.ArgumentInfo, ...])
        assert_type([(info.name, info.bound) for info in method.inputs], list[tuple[str, tuple[int, ...] | None]])
        (filled,) = method.run({"x": x}, outputs=["out0"], into=[np.empty_like(x)], strict=True)
        assert_type(filled, Floats)
        method.snapshot(path.with_suffix(".state"), note=b"before")
        assert_type(method.fork().restore(path.with_suffix(".state")), bytes)
        method.save(path.with_suffix(".plan"), shapes=[[(1, 8)]])
        assert_type(webpte.bundle(program, path.with_suffix(".site"), sequences=2), Path)
        y = np.asarray(method(x=x), np.float32)
        assert_type(y, Floats)
    with webpte.open_plan(path.with_suffix(".plan"), [path]) as plan:
        assert_type(plan.method(), webpte.Method)
    return filled + y


def talk(checkpoint: Path) -> str:
    """A checkpoint becomes a program, and that answers: all at once, piece by piece, and several prompts together."""
    program = webpte.export.export_llm(checkpoint, "model.pte", quantize="4w", group_size=32, max_context=512)
    with LLM.load(program, kv_cache="f16", max_sequences=4, tune="off") as llm:
        answer = llm.generate(
            [{"role": "user", "content": "Who wrote Hamlet?"}], max_new_tokens=20, temperature=0.5, seed=7
        )
        assert_type(answer, Generation)
        pieces = [piece.text for piece in answer]
        assert_type(pieces, list[str])
        assert_type(answer.usage, Usage)
        assert_type(answer.usage.completion_tokens, int)
        for one in llm.generate_many(["One", "Two"], max_new_tokens=4, in_order=False):
            assert_type(one.result(), str)
        sequence = llm.sequence()
        assert_type(sequence.generate("Once", stop=["."]).tokens, list[int])
        assert_type(sequence.fork().position, int)
        return asyncio.run(streamed(llm))


def listen(checkpoint: Path, samples: Floats, cancel: webpte.CancelToken) -> str:
    """A Whisper becomes a program, and that hears a file and samples."""
    program = webpte.export.export_speech(checkpoint, "whisper.pte", progress=print_progress)
    with webpte.speech.Transcriber.load(program, tune="off") as transcriber:
        assert_type(transcriber.languages, tuple[str, ...])
        result = transcriber(
            samples, rate=44100, language="de", task="translate", timestamps=True, progress=print_progress
        )
        assert_type(result, webpte.speech.Transcript)
        assert_type([(one.start, one.end, one.text) for one in result.segments], list[tuple[float, float, str]])
        assert_type(result.language, str | None)
        return transcriber("speech.wav", no_speech_threshold=0.6, cancel=cancel).text


async def streamed(llm: LLM) -> str:
    text = ""
    async for piece in llm.generate("Twice", top_k=5, logprobs=True):
        assert_type(piece, Piece)
        text += piece.text
    return text


def tasks(folder: Path, picture: Path) -> Floats:
    """Texts to vectors, images to classes and to boxes."""
    with webpte.vision.Classifier.load(folder / "vit.pte", memory=1 << 30) as classifier:
        assert_type(classifier([picture, "cat.png"], top=3)[0][0].label, str)
    with webpte.vision.Detector.load(folder / "yolos.pte") as detector:
        assert_type(detector([picture], threshold=0.9)[0][0].box, tuple[float, float, float, float])
    with webpte.embed.Embedder.load(folder / "minilm.pte", tune="off") as embedder:
        return embedder(["a text"], prompt="query", truncate=False)


def as_executorch(data: bytes, x: Floats) -> int:
    program = webpte.Runtime.get().load_program(data, verification=webpte.Verification.Minimal)
    assert_type(program.method_names, set[str])
    assert_type(program.metadata("forward").input_tensor_meta(0).sizes(), tuple[int, ...])
    method = program.load_method("forward")
    return len(method.execute([x])) + len(method.execute(x))


def failed(error: webpte.Error) -> str:
    webpte.show_versions()
    return ", ".join(error.items) if isinstance(error, webpte.UnsupportedError) else str(error)
