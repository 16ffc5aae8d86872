"""A model of the time that a language model takes on a GPU, fitted to published figures: python -m bench.cost_model

    time of a step = dispatches x cost of a dispatch + max(bytes / bandwidth, instructions / rate)

Everything that comes out is a prediction. `--write` puts the tables into docs/performance.md.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.support.harness import markdown_tables

from .compilers.report import KernelReport, ProgramReport, from_json, markdown_table, result_path

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
MODELS_PAGE = PAGE.with_name("models.md")
ISSUE = "issue"  # as `PublishedFigure.fits`: the share of the instruction rate
TOLERANCE = 0.25  # error of a prediction that counts as right


@dataclass(frozen=True)
class Card:
    """A GPU by its data sheet."""

    name: str
    gigabytes_per_second: float
    lanes: int  # f32 instructions per clock
    gigahertz: float
    api: str  # decides the cost of a dispatch
    source: str
    compiler: str  # the device of bench.compilers whose instructions are nearest to its own

    @property
    def rate(self) -> float:
        """Return the f32 instructions per second."""
        return self.lanes * self.gigahertz * 1e9


APPLE_SHEET = "Apple's specification; 128 f32 lanes per GPU core; clock from the published TFLOPS"
CARDS = {
    card.name: card
    for card in (
        Card("M2", 100, 1280, 1.40, "Metal", APPLE_SHEET, "m2"),
        Card("M3", 100, 1280, 1.60, "Metal", APPLE_SHEET, "m2"),
        Card("M4 Pro", 273, 2560, 1.80, "Metal", APPLE_SHEET + " (20 cores)", "m2"),
        Card("RX 7900 XTX", 960, 6144, 2.50, "Vulkan", "AMD's specification, without dual issue", "navi31"),
        Card("RTX 4070", 504, 5888, 2.48, "Vulkan", "NVIDIA's specification", "ampere"),
        Card("V100", 900, 5120, 1.53, "Vulkan", "NVIDIA's specification (SXM2)", "turing"),
        Card("RTX 5090", 1792, 21760, 2.41, "Vulkan from PyTorch", "NVIDIA's specification", "ampere"),
        Card("Arc 140V (Lunar Lake)", 136, 1024, 2.05, "Vulkan", "Intel's specification, LPDDR5X-8533", "lnl"),
        Card(
            "Adreno 740",
            67,
            1536,
            0.68,
            "Vulkan",
            "Snapdragon 8 Gen 2 with LPDDR5X-8400; six processors of 256 lanes",
            "a740",
        ),
    )
}


@dataclass(frozen=True)
class Work:
    """What a step does on any device."""

    gigabytes: float
    dispatches: float
    instructions: float = 0  # f32 instructions of all invocations


@dataclass(frozen=True)
class PublishedFigure:
    """A figure in tokens per second that others measured."""

    system: str
    card: str
    work: Work  # of one token
    tokens_per_second: float
    fits: str = ""  # the parameter that it determines; else it is held out


@dataclass(frozen=True)
class Parameters:
    """The fitted values."""

    dispatch_seconds: dict[str, float]  # by API
    issue: float  # share of a GPU's instruction rate that a matrix product reaches
    bandwidth: float = 0.85  # share of the data sheet's bandwidth that a stream of loads reaches; assumed


# Weights that a token of Llama 3.2 1B reads: 16 layers and the head, which shares its table with the embedding.
LAYERS_1B, HEAD_1B = 0.973e9, 0.263e9
LLAMA_1B = LAYERS_1B + HEAD_1B
# llama.cpp's graph has 19 nodes per layer of Llama that are dispatched, and 4 besides. ExecuTorch's has 18 and 4.
LLAMA_CPP_1B = Work(0.81, 16 * 19 + 4)
# 32 layers of 30 nodes: three of four layers have a recurrent state. The embedding table is not read.
LLAMA_CPP_9B = Work(5.0, 32 * 30)
# Compiled for m2 without checks of bounds, because these figures were measured on an M4 Pro:
INSTRUCTIONS_PER_WEIGHT = 11.1  # ExecuTorch's GEMV (q4gsw_linear_coop4_bicol), 177 instructions for 16 weights
PREFILL_INSTRUCTIONS = 1.61  # per multiply-add, as webpte's product with tiles of 4 x 4 needs: an assumption
CACHE_8K = 8192 * 16 * 2 * 512 * 4 / 1e9  # gigabytes: context x layers x (keys, values) x width x f32
EXECUTORCH_1B = Work(0.70, 16 * 18 + 4, LLAMA_1B * INSTRUCTIONS_PER_WEIGHT)
EXECUTORCH_1B_8K = Work(0.70 + CACHE_8K, 16 * 18 + 4, LLAMA_1B * INSTRUCTIONS_PER_WEIGHT)
# A prompt's weights and dispatches are shared by its tokens, so instructions remain; the head runs once.
PROMPT = Work(0, 0, LAYERS_1B * PREFILL_INSTRUCTIONS)
# Each token has 4,096 others before it on average: 32 heads x 64 x (scores, values), in each of 16 layers.
PROMPT_8K = Work(0, 0, (LAYERS_1B + 4096 * 32 * 64 * 2 * 16) * PREFILL_INSTRUCTIONS)
# 564 dispatches for 24 layers as published; 28 layers have as many more. Weights in f32.
TORCH_HALF_B = Work(0.49 * 4, 564)
TORCH_1B = Work(1.54 * 4, 564 * 28 / 24)

PUBLISHED = (
    PublishedFigure("llama.cpp, Llama 3.2 1B Q4_K_M", "M2", LLAMA_CPP_1B, 82.9, "Metal"),
    PublishedFigure("llama.cpp, Llama 3.2 1B Q4_K_M", "M3", LLAMA_CPP_1B, 67.4),
    PublishedFigure("llama.cpp, Llama 3.2 1B Q4_K_M", "V100", LLAMA_CPP_1B, 141, "Vulkan"),
    PublishedFigure("llama.cpp, Llama 3.2 1B Q4_K_M", "RTX 4070", LLAMA_CPP_1B, 66.5),
    PublishedFigure("llama.cpp, Qwen3.5 9B Q4_K_M", "M2", LLAMA_CPP_9B, 17.5),
    PublishedFigure("llama.cpp, Qwen3.5 9B Q4_K_M", "V100", LLAMA_CPP_9B, 42.2),
    PublishedFigure("ExecuTorch, Llama 3.2 1B, context 128", "M4 Pro", EXECUTORCH_1B, 188),
    PublishedFigure("ExecuTorch, Llama 3.2 1B, context 8k", "M4 Pro", EXECUTORCH_1B_8K, 96),
    PublishedFigure("ExecuTorch, Llama 3.2 1B, prompt of 128", "M4 Pro", PROMPT, 1882, ISSUE),
    PublishedFigure("ExecuTorch, Llama 3.2 1B, prompt of 8k", "M4 Pro", PROMPT_8K, 1164),
    PublishedFigure("torch-webgpu, Qwen2.5 0.5B f32", "RTX 5090", TORCH_HALF_B, 21.0, "Vulkan from PyTorch"),
    PublishedFigure("torch-webgpu, Qwen2.5 1.5B f32", "RTX 5090", TORCH_1B, 17.9),
)


@dataclass(frozen=True)
class FamilyModel:
    """A model as docs/models.md counts it, by its config.json."""

    name: str
    layer_weights: float
    head_weights: float  # its table is the embedding's too
    dispatches_before: int  # of a token, when the engine ran its sequences one at a time (commit 7741edcc)
    state_bytes: float = 0  # of its recurrent layers, read and written by each token

    @property
    def dispatches(self) -> int:
        """Return the dispatches of a token, as docs/models.md has them."""
        section = markdown_tables.parts(MODELS_PAGE.read_text(encoding="utf-8"), "## State by family")[1]
        return int(next(row[2] for row in markdown_tables.rows(section) if row[0] == self.name))

    @property
    def gigabytes(self) -> float:
        """Return the bytes of a token: layers of 4 bits and an f32 scale for 32 weights, a head of 8 bits."""
        return (self.layer_weights * 5 / 8 + self.head_weights + self.state_bytes) / 1e9


# Widths: a layer's inputs x outputs, for each of its products.
FAMILY_MODELS = (
    FamilyModel("Gemma 3 1B", 26 * 1152 * (2 * 1024 + 2 * 256 + 3 * 6912), 262144 * 1152, 1047),
    FamilyModel(
        "LFM2 1.2B",
        16 * 2048 * 3 * 8192 + 10 * 2048 * 4 * 2048 + 6 * 2048 * (2 * 2048 + 2 * 512),
        65536 * 2048,
        232,
    ),
    FamilyModel(
        "Qwen3.5 0.8B",
        24 * 1024 * 3 * 3584 + 18 * 1024 * (6144 + 2 * 2048 + 2 * 16) + 6 * 1024 * (4096 + 2 * 512 + 2048),
        248320 * 1024,
        1674,
        18 * 16 * 128 * 128 * 4 * 2,
    ),
)


@dataclass(frozen=True)
class Attention:
    """How the attention of a token goes over a KV cache of f16, in each layer of Llama 3.2 1B."""

    workgroups: int
    steps: int  # of a workgroup, one after another
    waits: int  # for loads, in a step
    invocations: int  # of a workgroup
    instructions: int  # of an invocation in a step
    dispatches: int

    def seconds(self, keys: int, card: Card, parameters: Parameters) -> float:
        """Return the longest of three times, without dispatches: of the cache, of all instructions, of a workgroup."""
        reading = keys * WIDTH_1B * 2 * 2 / (card.gigabytes_per_second * 1e9 * parameters.bandwidth)
        step = self.invocations * self.instructions
        computing = self.workgroups * self.steps * step / card.rate
        core = min(card.rate, CORE_LANES * card.gigahertz * 1e9)
        return max(reading, computing, self.steps * (self.waits * WAIT_SECONDS + step / core))


LAYERS, WIDTH_1B = 16, 8 * 64  # width of all key heads
CORE_LANES = 128  # of what runs a workgroup: a core of Apple, a WGP of AMD, a multiprocessor of NVIDIA
WAIT_SECONDS = 0.5e-6  # of a load that misses the caches, with what runs between two loads; assumed
KEYS = 2000
# 16 parts of 125 keys, by workgroups for the four query heads of a key head; 16 keys a step. 138 of the instructions
# are compiled for navi31, those of two keys' values; a step has two of these, and about 190 for scores.
SPLIT = Attention(8 * 16, 8, 2, 64, 470, 2)
# A workgroup for each query head; 128 keys a step. Compiled: 357 for navi31, 369 for m2.
WHOLE = Attention(32, -(-KEYS // 128), 1, 256, 370, 1)


def predict(work: Work, card: Card, parameters: Parameters) -> float:
    """Return the seconds of a step."""
    reading = work.gigabytes / (card.gigabytes_per_second * parameters.bandwidth)
    computing = work.instructions / (card.rate * parameters.issue)
    return work.dispatches * parameters.dispatch_seconds[card.api] + max(reading, computing)


def fit(published: Iterable[PublishedFigure] = PUBLISHED) -> Parameters:
    """Determine each parameter by the one figure that names it."""
    issue, costs = 1.0, {card.api: 0.0 for card in CARDS.values()}
    for figure in (figure for figure in published if figure.fits):
        card, seconds = CARDS[figure.card], 1 / figure.tokens_per_second
        free = predict(figure.work, card, Parameters(dict.fromkeys(costs, 0.0), 1.0))
        if figure.fits == ISSUE:
            issue = free / seconds
        else:
            costs[figure.fits] = (seconds - free) / figure.work.dispatches
    return Parameters(costs, issue)


def error(figure: PublishedFigure, parameters: Parameters) -> float:
    """Return the relative error of the predicted tokens per second."""
    return 1 / predict(figure.work, CARDS[figure.card], parameters) / figure.tokens_per_second - 1


# ---------------------------------------------------------------- our programs


def decode_work(report: ProgramReport, weights: float, gigabytes: float, compiler: str) -> Work:
    """Return the work of a decode step: dispatches of the plan, and compiled instructions for each weight."""
    rows = [row for row in report.kernels(compiler) if "decode" in row.phases]
    each = _per_weight(rows, "decode", compiler)
    return Work(gigabytes, sum(row.phases["decode"][0] for row in rows), weights * each)


def prompt_work(report: ProgramReport, weights: float, compiler: str, tokens: int = 255) -> Work:
    """Return the work of one token of a prompt in matrix products; attention is not counted."""
    rows = [row for row in report.kernels(compiler) if "prefill" in row.phases]
    # Kernels that decode runs too are those of the head, which has one row.
    each = _per_weight([row for row in rows if "decode" not in row.phases], "prefill", compiler)
    return Work(0, sum(row.phases["prefill"][0] for row in rows) / tokens, weights * each)


def _per_weight(rows: Sequence[KernelReport], phase: str, compiler: str) -> float:
    """Return the instructions per multiply-add of the matrix kernels, weighted by their workgroups."""
    matrix = [(row.phases[phase][1], row.per_multiply_add(compiler)) for row in rows]
    known = [(groups, each) for groups, each in matrix if each is not None]
    return sum(groups * each for groups, each in known) / sum(groups for groups, _ in known)


# ---------------------------------------------------------------- tables


def published_table(parameters: Parameters) -> str:
    rows = []
    for figure in PUBLISHED:
        predicted = 1 / predict(figure.work, CARDS[figure.card], parameters)
        fitted = "instruction rate" if figure.fits == ISSUE else f"dispatch, {figure.fits}"
        use = f"fitted: {fitted}" if figure.fits else "held out"
        numbers = (f"{figure.tokens_per_second:,.4g}", f"{predicted:,.4g}", f"{error(figure, parameters):+.0%}")
        rows.append((figure.system, figure.card, use, *numbers))
    return markdown_table(("system", "GPU", "use", "published tok/s", "predicted tok/s", "error"), rows)


def parameters_table(parameters: Parameters) -> str:
    costs = [(f"cost of a dispatch, {api}", f"{1e6 * s:.1f} µs") for api, s in parameters.dispatch_seconds.items()]
    issue = ("share of the instruction rate in matrix products", f"{parameters.issue:.2f}")
    return markdown_table(("parameter", "value"), [*costs, issue])


def cards_table() -> str:
    rows = [(c.name, f"{c.gigabytes_per_second:g}", f"{c.rate / 1e12:.2f}", c.api, c.source) for c in CARDS.values()]
    return markdown_table(("GPU", "GB/s", "10¹² f32 instructions/s", "API", "source"), rows)


def _cards() -> list[Card]:
    """Return the cards that predictions are made for: PyTorch's cost of a dispatch is not webpte's."""
    return [card for card in CARDS.values() if card.api != "Vulkan from PyTorch"]


def programs_table(parameters: Parameters) -> str:
    """Return predictions for Llama 3.2 1B as `webpte export` writes it.

    Layers have 4 bits and an f32 scale for 32 weights, so 5 bits a weight. The head has 8 bits.
    """
    gigabytes = (LAYERS_1B * 5 / 8 + HEAD_1B) / 1e9
    report = from_json(result_path("llama-3.2-1b").read_text(encoding="utf-8"))
    rows = []
    for card in _cards():
        decode = decode_work(report, LLAMA_1B, gigabytes, card.compiler)
        prompt = prompt_work(report, LAYERS_1B, card.compiler)
        speeds = [f"{1 / predict(work, card, parameters):,.0f}" for work in (decode, prompt)]
        bound = _bound(decode, card, parameters)
        rows.append((card.name, card.compiler, f"{decode.dispatches:.0f}", speeds[0], bound, speeds[1]))
    head = ("GPU", "compiled for", "dispatches", "decode tok/s", "decode is bound by", "prefill tok/s, products only")
    return markdown_table(head, rows)


def contexts_table(parameters: Parameters) -> str:
    """Return predictions for Llama 3.2 1B at 2,000 keys: with a merge of parts in each layer, and without."""
    gigabytes = (LAYERS_1B * 5 / 8 + HEAD_1B) / 1e9
    report = from_json(result_path("llama-3.2-1b").read_text(encoding="utf-8"))
    rows = []
    for card in _cards():
        decode = decode_work(report, LLAMA_1B, gigabytes, card.compiler)
        cells, counts = [], []
        for attention in (SPLIT, WHOLE):
            counts.append(decode.dispatches + LAYERS * (attention.dispatches - 1))
            layer = attention.seconds(KEYS, card, parameters)
            step = predict(replace(decode, dispatches=counts[-1]), card, parameters) + LAYERS * layer
            cells += [f"{1e6 * layer:.0f} µs", f"{1 / step:,.0f}"]
        dispatches = " → ".join(f"{count:.0f}" for count in counts)
        rows.append((card.name, dispatches, *cells[::2], *cells[1::2]))
    head = ("GPU", "dispatches", "a layer, divided", "a layer, whole", "tok/s, divided", "tok/s, whole")
    return markdown_table(head, rows)


def family_models_table() -> str:
    rows = [
        (model.name, str(model.dispatches_before), str(model.dispatches), f"{model.gigabytes:.2f}")
        for model in FAMILY_MODELS
    ]
    return markdown_table(("model", "dispatches before", "dispatches now", "GB per token"), rows)


def families_table(parameters: Parameters) -> str:
    """Return the predicted decode speed of models of other families, with the dispatches before and now."""
    report = from_json(result_path("llama-3.2-1b").read_text(encoding="utf-8"))
    rows = []
    for card in _cards():
        cells = []
        for model in FAMILY_MODELS:
            weights = model.layer_weights + model.head_weights
            now = replace(decode_work(report, weights, model.gigabytes, card.compiler), dispatches=model.dispatches)
            before = replace(now, dispatches=model.dispatches_before)
            cells += [f"{1 / predict(work, card, parameters):,.0f}" for work in (before, now)]
        rows.append((card.name, *cells))
    return markdown_table(("GPU", *(f"{m.name}{when}" for m in FAMILY_MODELS for when in (", before", ""))), rows)


def _bound(work: Work, card: Card, parameters: Parameters) -> str:
    parts = {
        "dispatches": work.dispatches * parameters.dispatch_seconds[card.api],
        "bandwidth": work.gigabytes / (card.gigabytes_per_second * parameters.bandwidth),
        "instructions": work.instructions / (card.rate * parameters.issue),
    }
    return max(parts, key=lambda name: parts[name])


def tables() -> dict[str, str]:
    """Return the generated tables of docs/performance.md by name."""
    parameters = fit()
    return {
        "cards": cards_table(),
        "parameters": parameters_table(parameters),
        "published": published_table(parameters),
        "programs": programs_table(parameters),
        "contexts": contexts_table(parameters),
        "family models": family_models_table(),
        "families": families_table(parameters),
    }


def filled(page: str) -> str:
    """Return the page with each table between its markers."""
    for name, table in tables().items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end {name} -->)", re.DOTALL)
        page = marked.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", page)  # type: ignore[misc]
    return page


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cost_model", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/performance.md")
    if parser.parse_args().write:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n\n".join(tables().values()))


if __name__ == "__main__":
    main()
