"""The rows of the bench: what is computed, and how its problem is made."""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .models import forward
from .problems import Array, Problem
from .reference import GROUP, Reference, dequantized, softmax

Make = Callable[[], Problem]
HERE = Path(__file__).parent
SOURCES = (
    "problems.py",
    "models.py",
    "reference.py",
    "rows.py",
    "checkpoints.py",
)  # a change there makes problems anew
LLAMA256 = {
    "layers": 4, "heads": 8, "kv_heads": 4, "width": 32, "dim": 256, "hidden": 768, "vocab": 2048,
    "context": 128, "eps": 1e-5, "theta": 10000.0,
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """`tolerance` is how far a result may be off, relative to its largest value. A `unit` serves `--units` only."""

    name: str
    title: str
    make: Make
    tolerance: float = 1e-4
    weights: str | None = None  # rows of one model share its weights
    unit: bool = False

    def folder(self) -> Path:
        """Where the problem lies; made at the first call."""
        root = cache_root() / "problems" / sources_hash()
        folder = root / self.name
        if not (folder / "about.json").exists():
            for old in root.parent.glob("*"):  # made by older code, hundreds of megabytes
                if old != root:
                    shutil.rmtree(old)
            shutil.rmtree(folder, ignore_errors=True)
            self.make().save(folder, root / f"weights-{self.weights or self.name}")
        return folder

    def problem(self) -> Problem:
        return Problem.read(self.folder())


def cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "webpte" / "bench"


@functools.cache
def sources_hash() -> str:
    """Of the syntax trees: comments and formatting make nothing anew."""
    trees = "".join(ast.dump(ast.parse((HERE / name).read_bytes())) for name in SOURCES)
    return hashlib.sha256(trees.encode()).hexdigest()[:16]


def solved(kind: str, inputs: dict[str, Array], weights: Mapping[str, Array], sizes: dict[str, float]) -> Problem:
    """A problem with NumPy's answer."""
    asked = Problem(kind, inputs, dict(weights), (), sizes)
    answer = forward(Reference(asked.weights), asked, inputs)
    return Problem(kind, inputs, asked.weights, (np.asarray(answer, np.float32),), sizes)


def normal(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * np.float32(scale)


# ---------------------------------------------------------------- single kernels


def add(*shape: int) -> Make:
    return lambda: solved("add", {"a": normal(1, *shape), "b": normal(2, *shape)}, {}, {})


def linear(M: int, N: int, K: int) -> Make:
    return lambda: solved("linear", {"x": normal(1, M, K)}, {"weight": normal(2, N, K, scale=K**-0.5)}, {})


def quantized(seed: int, N: int, K: int) -> dict[str, Array]:
    """Random codes, and scales such that outputs are about as large as inputs.

    From 1 to 15 with a 15 in every group: whoever quantizes the f32 weights again, symmetrically, finds the same codes.
    """
    rng = np.random.default_rng(seed)
    codes = rng.integers(1, 16, (N, K), dtype=np.uint8)
    codes[:, ::GROUP] = 15
    scales = (rng.random((N, K // GROUP), dtype=np.float32) + np.float32(0.5)) * np.float32(0.2 * K**-0.5)
    return {"codes": codes, "scales": scales}


def q4_linear(M: int, N: int, K: int) -> Make:
    return lambda: solved("q4_linear", {"x": normal(1, M, K)}, quantized(2, N, K), {})


def chain(length: int, rows: int = 8, columns: int = 8) -> Make:
    def make() -> Problem:
        weights = {"a": normal(2, rows, columns, scale=0.1), "b": 1 + normal(3, rows, columns, scale=0.01)}
        return solved("chain", {"x": normal(1, rows, columns)}, weights, {"length": length})

    return make


def mlp(M: int, blocks: int = 4, width: int = 256, hidden: int = 1024) -> Make:
    def make() -> Problem:
        weights: dict[str, Array] = {}
        for i in range(blocks):
            for part, N, K in (("up", hidden, width), ("down", width, hidden)):
                weights[f"{i}.{part}.weight"] = normal(10 * i + N, N, K, scale=(2 / K) ** 0.5)
                weights[f"{i}.{part}.bias"] = normal(10 * i + N + 1, N, scale=0.1)
        return solved("mlp", {"x": normal(1, M, width)}, weights, {"blocks": blocks})

    return make


# ---------------------------------------------------------------- models


def minilm(batch: int, tokens: int) -> Make:
    """all-MiniLM-L6-v2 over random words; in a batch, sentences have different lengths."""

    def make() -> Problem:
        from .checkpoints import minilm_weights

        ids = np.random.default_rng(1).integers(1000, 30000, (batch, tokens))
        lengths = tokens - 8 * np.arange(batch)
        mask = (np.arange(tokens)[None] < lengths[:, None]).astype(np.int64)
        sizes: dict[str, float] = {"batch": batch, "tokens": tokens, "heads": 12, "layers": 6}
        return solved("minilm", {"ids": ids, "mask": mask}, minilm_weights(batch, tokens), sizes)

    return make


def llama_weights(sizes: Mapping[str, float]) -> dict[str, Array]:
    dim, kv = int(sizes["dim"]), int(sizes["kv_heads"] * sizes["width"])
    hidden, vocab = int(sizes["hidden"]), int(sizes["vocab"])
    shapes = {"q": (dim, dim), "k": (kv, dim), "v": (kv, dim), "o": (dim, dim)}
    shapes |= {"gate": (hidden, dim), "up": (hidden, dim), "down": (dim, hidden)}
    weights = {"words.weight": normal(1, vocab, dim), "final.weight": 1 + normal(2, dim, scale=0.1)}
    layers = {f"{i}.{part}": shape for i in range(int(sizes["layers"])) for part, shape in shapes.items()}
    for seed, (name, shape) in enumerate({**layers, "head": (vocab, dim)}.items(), 100):
        weights |= {f"{name}.{part}": array for part, array in quantized(seed, *shape).items()}
    for i in range(int(sizes["layers"])):
        weights |= {f"{i}.{norm}.weight": 1 + normal(10 + i, dim, scale=0.1) for norm in ("attend", "feed")}
    return weights


def llama256(past: int, tokens: int) -> Make:
    return lambda: decoder(llama_weights(LLAMA256), dict(LLAMA256), past, tokens)


def smollm2(past: int, tokens: int) -> Make:
    def make() -> Problem:
        return decoder(*smollm2_model(), past, tokens)

    return make


def smollm2_model() -> tuple[dict[str, Array], dict[str, float]]:
    from .checkpoints import SMOLLM2_SIZES, smollm2_weights

    return smollm2_weights(cache_root()), dict(SMOLLM2_SIZES)


def decoder(weights: dict[str, Array], sizes: dict[str, float], past: int, tokens: int) -> Problem:
    """`tokens` more behind `past` ones, whose keys and values are inputs too, for those who do not keep them."""
    ids = np.random.default_rng(5).integers(0, int(sizes["vocab"]), past + tokens)
    inputs: dict[str, Array] = {"ids": ids[None, past:]}
    if past:
        before = Reference(weights)
        asked = Problem("llama", {"ids": ids[None, :past]}, weights, (), {**sizes, "past": 0, "tokens": past})
        forward(before, asked, asked.inputs)
        inputs |= {"prompt": ids[None, :past], "keys": np.stack(before.keys), "values": np.stack(before.values)}
    return solved("llama", inputs, weights, {**sizes, "past": past, "tokens": tokens})


# ---------------------------------------------------------------- units: parts of SmolLM2, run bare


def smollm2_matmuls() -> Problem:
    return matmuls(*smollm2_model())


def matmuls(weights: dict[str, Array], sizes: dict[str, float]) -> Problem:
    """Every matrix that one token meets, each with an input of its own width; the last layer's results count."""
    inputs = {name: normal(i, 1, int(sizes[name])) for i, name in enumerate(("dim", "hidden"))}
    by_width = {x.shape[1]: x for x in inputs.values()}
    last = [f"{int(sizes['layers']) - 1}.{part}" for part in ("q", "k", "v", "o", "gate", "up", "down")]
    expected = []
    for name in (*last, "head"):
        matrix = dequantized(weights[f"{name}.codes"], weights[f"{name}.scales"])
        expected.append(by_width[matrix.shape[1]] @ matrix.T)
    return Problem("q4_stack", inputs, weights, tuple(expected), sizes)


def attention(
    context: int, heads: int = 9, kv_heads: int = 3, width: int = 64, rows: int = 1024, layers: int = 30
) -> Make:
    def make() -> Problem:
        q, k, v = normal(1, heads, width), normal(2, rows, kv_heads, width), normal(3, rows, kv_heads, width)
        keys, values = (np.repeat(x[:context], heads // kv_heads, 1) for x in (k, v))  # (C, H, D)
        weights = softmax(np.einsum("hd,chd->hc", q, keys) * np.float32(width**-0.5))
        expected = np.einsum("hc,chd->hd", weights, values)
        return Problem("attention", {"q": q}, {"k": k, "v": v}, (expected,), {"context": context, "layers": layers})

    return make


def upload(nbytes: int) -> Make:
    def make() -> Problem:
        data = normal(1, nbytes // 4)
        return Problem("upload", {"data": data}, {}, (data[-16:],), {})

    return make


# ---------------------------------------------------------------- all of them

SMOLLM2_BYTES = 96 << 20  # about what the program's constants take
_ROWS = [
    Row("add_small", "add 8×8", add(8, 8)),
    Row("add_large", "add 1 Mi", add(1024, 1024)),
    Row("linear_512", "linear 512³", linear(512, 512, 512)),
    Row("gemv_4096", "fp32 GEMV 4096²", linear(1, 4096, 4096)),
    Row("mlp_1", "MLP 4×(256→1024→256), 1 row", mlp(1)),
    Row("mlp_64", "MLP 4×(256→1024→256), 64 rows", mlp(64)),
    Row("chain_200", "chain of 200 small ops", chain(200)),
    Row("q4_gemv_4096", "q4 GEMV 4096²", q4_linear(1, 4096, 4096)),
    Row("q4_gemm_64", "q4 GEMM 64×1024²", q4_linear(64, 1024, 1024)),
    Row("llama256_prefill", "llama256 q4, prefill 32", llama256(0, 32), 1e-3, "llama256"),
    Row("llama256_decode", "llama256 q4, decode", llama256(32, 1), 1e-3, "llama256"),
    Row("minilm_1x32", "MiniLM 1×32", minilm(1, 32), 1e-3),
    Row("minilm_8x128", "MiniLM 8×128", minilm(8, 128), 1e-3),
    Row("smollm2_prefill_128", "SmolLM2 q4, prefill 128", smollm2(0, 128), 1e-2, "smollm2"),
    Row("smollm2_decode_100", "SmolLM2 q4, decode at 100", smollm2(100, 1), 1e-2, "smollm2"),
    Row("smollm2_decode_900", "SmolLM2 q4, decode at 900", smollm2(900, 1), 1e-2, "smollm2"),
    Row("smollm2_prefill_32", "SmolLM2 q4, prefill 32", smollm2(0, 32), 1e-2, "smollm2", unit=True),
    Row("smollm2_matmuls", "SmolLM2's matrices, 1 token", smollm2_matmuls, 1e-4, "smollm2", unit=True),
    Row("attention_100", "attention ×30 at 100", attention(100), unit=True),
    Row("attention_900", "attention ×30 at 900", attention(900), unit=True),
    Row("upload", "upload of 96 MB", upload(SMOLLM2_BYTES), unit=True),
]
ROWS = {row.name: row for row in _ROWS}
