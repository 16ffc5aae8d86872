"""Every leaf of the JSON files that come with a model, replaced by values that no honest file has.

`python -m tests.studies fuzz leaves [SUBJECT ...] [--sample N]` reads all of them, or N of each subject, and fails for
an error that is not typed and for a file that takes seconds.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.studies.fuzz.checkpoints import honest_folder, scratch
from tests.studies.fuzz.children import READ, REFUSED, outcome_of
from tests.studies.fuzz.documents import Way
from tests.support.models import families

MAX_SECONDS = 4.0  # of CPU time
VALUES: list[Any] = [
    *(None, True, -1, 0, 1, 3, 2**16, 2**24, 2**31, 2**63, 10**30, int("9" * 4299)),
    *(0.5, 1e308, 1e-320, float("nan"), float("inf")),
    *("", "x", "x" * 100_000, "\ud800", "../../etc/passwd"),
    *([], [0], [-1] * 3, [1e308] * 3, [0.0] * 3, [[[]]], [1] * 1000, ["x"]),
    *({}, {"a": 1}, {"height": 10**9, "width": 1}, {"longest_edge": 2**40}, {"shortest_edge": 1, "longest_edge": 1e12}),
]
_NESTED = "nested"  # in the place of a value: lists in lists, deeper than any recursive function goes
MAX_ELEMENTS = 3  # of a list whose elements are changed


@dataclass(frozen=True)
class Subject:
    """Files beside each other, and what reads them."""

    folder: Path
    names: tuple[str, ...]
    read: Callable[[Path], object]


def leaf_ways(value: Any, way: Way = ()) -> Iterator[Way]:
    """Yield the way to every part of a document; of long lists, to their first elements."""
    yield way
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items)[: None if isinstance(value, dict) else MAX_ELEMENTS]:
        yield from leaf_ways(inner, (*way, key))


def with_value(document: Any, way: Way, value: Any) -> str:
    """Return the text of a document with another value at the end of the way."""
    changed: Any = copy.deepcopy(document)
    if way:
        holder = functools.reduce(lambda inner, step: inner[step], way[:-1], changed)
        holder[way[-1]] = value
    else:
        changed = value
    text = json.dumps(changed)
    return text.replace(f'"{_NESTED}"', "[" * 900 + "]" * 900) if value == _NESTED else text


# ---------------------------------------------------------------- subjects


def _family(name: str) -> Subject:
    from transformers import AutoConfig

    from webpte.checkpoints.hugging_face import validate_folder

    tiny = families.first(name)
    folder = _folder(f"family-{name}")
    config = AutoConfig.for_model(tiny.model_type, **{**families.COMMON, **tiny.fields})
    (folder / "config.json").write_text(config.to_json_string(use_diff=False))
    return Subject(folder, ("config.json",), validate_folder)


def _checkpoint() -> Subject:
    from webpte.checkpoints.hugging_face import read_folder

    names = ("config.json", "generation_config.json", "special_tokens_map.json", "model.safetensors.index.json")
    return Subject(honest_folder(), names, read_folder)


def _read_with_images(folder: Path) -> None:
    """Read a checkpoint, and prepare images as its processor declares."""
    from tests.support.models.tiny_vlm import picture
    from webpte.checkpoints.hugging_face import read_folder
    from webpte.errors import InputError
    from webpte.llm.image_processor import read_image_processor

    read_folder(folder)
    processor = read_image_processor(folder / "preprocessor_config.json")
    for size in ((40, 56), (1, 1), (2, 1500)):
        try:
            tiles = processor(picture(0, *size))
        except InputError:
            continue
        processor.text(tiles)
        for pixels in tiles.pixels:
            processor.arguments(pixels)


def _tower(name: str) -> Subject:
    from tests.support.models import tiny_gemma3_vl, tiny_lfm2_vl, tiny_qwen3_5_vl, tiny_vlm

    writers: dict[str, Callable[[Path], Any]] = {
        "idefics3": tiny_vlm.write_vlm,
        "gemma3": tiny_gemma3_vl.write_gemma3_vl,
        "lfm2_vl": tiny_lfm2_vl.write_lfm2_vl,
        "qwen3_5": tiny_qwen3_5_vl.write_qwen3_5_vl,
    }
    folder = _folder(f"tower-{name}")
    writers[name](folder)
    return Subject(folder, ("config.json", "preprocessor_config.json"), _read_with_images)


def _speech(name: str) -> Subject:
    from tests.support.models.moonshine import tiny_moonshine
    from tests.support.models.whisper import tiny_whisper
    from webpte.checkpoints.speech import read_speech_config

    folder = _folder(f"speech-{name}")
    (tiny_whisper if name == "whisper" else tiny_moonshine)(folder)
    return Subject(folder, ("config.json", "generation_config.json", "preprocessor_config.json"), read_speech_config)


def _encoder() -> Subject:
    from tests.support.models.task_checkpoints import write_encoder
    from webpte.checkpoints.sentence_transformers import read_answer_tokens, read_encoder_config

    def read(folder: Path) -> None:
        read_answer_tokens(folder)
        read_encoder_config(folder)

    folder = write_encoder(_folder("encoder"), "bert", "mean", dense=True)
    names = ("modules.json", "1_Pooling/config.json", "2_Dense/config.json", "sentence_bert_config.json")
    return Subject(folder, (*names, "config_sentence_transformers.json"), read)


def _adapter() -> Subject:
    from tests.support.models.peft_adapter import write_adapter
    from webpte.checkpoints.adapters import adapter_modules, read_adapters
    from webpte.checkpoints.hugging_face import read_folder

    folder = _folder("adapter")
    shape = read_folder(honest_folder()).weights.sources["layers.0.attention.wq.weight"].shape
    write_adapter(folder / "lora", {"model.layers.0.self_attn.q_proj": (shape[0], shape[1])}, seed=1)
    source = read_folder(honest_folder())
    (folder / "modules.json").write_bytes(adapter_modules(source.architecture, source.family.names))

    def read(changed: Path) -> None:
        modules = (changed / "modules.json").read_bytes()
        for layers in read_adapters({"a": changed / "lora"}, modules, "model.pte").values():
            for layer in layers.values():
                layer.down(), layer.up()

    return Subject(folder, ("lora/adapter_config.json", "modules.json"), read)


def _program() -> Subject:
    """What stands beside a program of a language model."""
    from webpte.llm.defaults import read_generation_config
    from webpte.llm.prompts import read_special_tokens
    from webpte.llm.tokenizer import Tokenizer

    folder = _folder("program")
    families.write_tokenizer(folder / "tokenizer.json")
    form = {"begin": "<call>", "end": "</call>", "bare": False, "shape": "object", "name": "name"}
    tokens = {"bos_token": "!", "eos_token": {"content": "~"}, "add_bos_token": True, "tool_format": form}
    sampling = {"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.1}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    (folder / "generation_config.json").write_text(json.dumps(sampling))
    tokenizer = Tokenizer.load(folder / "tokenizer.json")

    def read(changed: Path) -> None:
        read_special_tokens(changed / "tokenizer_config.json", tokenizer, 1, [2])
        read_generation_config(changed / "generation_config.json")

    return Subject(folder, ("tokenizer_config.json", "generation_config.json"), read)


def _task_file() -> Subject:
    from webpte.embed.text_tokenizer import TextTokenizer
    from webpte.task_file import write_task

    folder = _folder("task")
    families.write_tokenizer(folder / "model.tokenizer.json")
    fields = {"dimensions": 8, "max_tokens": 20, "pooling": "mean", "normalize": True, "prompts": {"query": "q: "}}
    write_task(folder / "model.pte", "embedding", {**fields, "pad": 0, "default_prompt": "query", "lowercase": False})
    return Subject(folder, ("model.task.json",), lambda changed: TextTokenizer.load(changed / "model.pte"))


def _safetensors() -> Subject:
    """The header of a file of weights, which is JSON too."""
    import numpy as np

    from tests.support.models.tiny_checkpoint import write_safetensors
    from webpte.checkpoints.safetensors_file import read_weights

    folder = _folder("safetensors")
    write_safetensors(folder / "all", {"a": np.zeros((4, 8), "<f4"), "b": np.zeros(8, "<f4")})
    data = (folder / "all").read_bytes()
    size = int.from_bytes(data[:8], "little")
    (folder / "header.json").write_bytes(data[8 : 8 + size])

    def read(changed: Path) -> None:
        header = (changed / "header.json").read_bytes()
        path = changed / "model.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + size :])
        for tensor in read_weights(path).values():
            tensor.read(), tensor.part(0, 0)

    return Subject(folder, ("header.json",), read)


def _folder(name: str) -> Path:
    folder = scratch() / f"leaves-{name}"
    folder.mkdir()
    return folder


def subjects() -> dict[str, Callable[[], Subject]]:
    """Return the subjects by name. Their files are written when a subject is called."""
    others = {
        "checkpoint": _checkpoint,
        "encoder": _encoder,
        "adapter": _adapter,
        "program": _program,
        "task": _task_file,
        "safetensors": _safetensors,
    }
    return {
        **others,
        **{f"tower {name}": functools.partial(_tower, name) for name in ("idefics3", "gemma3", "lfm2_vl", "qwen3_5")},
        **{f"speech {name}": functools.partial(_speech, name) for name in ("whisper", "moonshine")},
        **{f"family {name}": functools.partial(_family, name) for name in families.tinies()},
    }


# ---------------------------------------------------------------- runs


def findings(subject: Subject, sample: int | None = None, seed: int = 1) -> tuple[int, list[str]]:
    """Return how many mutants were read, and what went wrong."""
    subject.read(subject.folder)
    documents = {name: (subject.folder / name).read_bytes() for name in subject.names}
    parsed = {name: json.loads(data) for name, data in documents.items()}
    mutants = [(n, way, at) for n in subject.names for way in leaf_ways(parsed[n]) for at in range(len(VALUES) + 1)]
    chosen = mutants if sample is None else Random(seed).sample(mutants, min(sample, len(mutants)))
    lines: list[str] = []
    for name, way, at in chosen:
        value = VALUES[at] if at < len(VALUES) else _NESTED
        (subject.folder / name).write_text(with_value(parsed[name], way, value))
        started = time.process_time()
        outcome = outcome_of(lambda random: (subject.read(subject.folder), None)[1], Random(0))
        seconds = time.process_time() - started
        if outcome not in (READ, REFUSED) or seconds > MAX_SECONDS:
            lines.append(f"{name} {way} = {value!r:.40}: {outcome}, {seconds:.1f} s")
        (subject.folder / name).write_bytes(documents[name])
    return len(chosen), lines


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies fuzz leaves", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT")
    parser.add_argument("--sample", type=int, help="mutants of each subject; all unless given")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    known = subjects()
    if unknown := [name for name in args.subjects if name not in known]:
        parser.error(f"unknown subject {unknown[0]!r}; expected {', '.join(known)}")
    failed = False
    for name in args.subjects or known:
        started = time.monotonic()
        count, lines = findings(known[name](), args.sample, args.seed)
        print(f"{name}: {count} mutants in {time.monotonic() - started:.0f} s, {len(lines)} findings", flush=True)
        for line in lines[:20]:
            print(f"  {line}", flush=True)
        failed |= bool(lines)
    return int(failed)
