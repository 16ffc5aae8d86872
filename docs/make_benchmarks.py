"""Write docs/benchmarks.md and its pictures from bench/*.json: python -m docs.make_benchmarks

The same figures as docs/performance.md and docs/scale.md have, told to people who do not know the bench.
tests/project/test_figures.py fails where the page is not what this would write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.drawing import Drawing

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = HERE / "benchmarks.md"
FIGURES = HERE / "figures"
PEERS = ("webpte", "ONNX Runtime", "LiteRT", "tinygrad")
COLOURS = {
    "webpte": "blue",
    "ONNX Runtime": "red",
    "LiteRT": "orange",
    "tinygrad": "green",
    "bare engine": "grey",
    "onnxruntime-web": "red",
}
# What a row is about, in words.
STORIES = {
    "smollm2_decode_100": "a token of SmolLM2-135M (4 bits), after 100 others",
    "smollm2_prefill_128": "reading a prompt of 128 tokens with it",
    "minilm_1x32": "a sentence of 32 tokens through MiniLM (f32)",
    "minilm_8x128": "8 texts of 128 tokens through MiniLM",
    "mlp_64": "64 rows through four small layers",
    "linear_512": "one matrix product, 512 × 512 × 512",
    "gemv_4096": "one matrix of 4096 × 4096 times a vector",
    "chain_200": "200 tiny ops, one after the other",
    "add_small": "adding 8 × 8 numbers: what a call costs at least",
}
PAGE_STORIES = {
    "smollm2_decode_100": "a token of SmolLM2-135M",
    "smollm2_prefill_128": "a prompt of 128 tokens",
    "minilm_1x32": "a sentence through MiniLM",
}


def read(name: str) -> Any:
    return json.loads((ROOT / "bench" / f"{name}.json").read_text(encoding="utf-8"))


def milliseconds(row: Mapping[str, Any], who: str) -> float | None:
    """None where it cannot do it, or its result is wrong."""
    found = row.get(who)
    if found is None or found.get("cannot") or found.get("wrong") or found.get("right") is False:
        return None
    return float(found["milliseconds"] if "milliseconds" in found else found["seconds"] * 1000)


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


# ---------------------------------------------------------------- pictures


def bars(name: str, title: str, rows: Sequence[tuple[str, Mapping[str, float | None]]]) -> Drawing:
    """A group of bars for each row, as long as the time is in relation to the slowest of the group."""
    width, bar, head, gap = 560, 17, 22, 12
    height = sum(head + bar * len(found) + gap for _, found in rows)
    about = "; ".join(f"{t}: " + ", ".join(f"{w} {number(v)} ms" for w, v in found.items()) for t, found in rows)
    drawing = Drawing(name, 760, height, title, about)
    y = 0.0
    for text, found in rows:
        drawing.text(0, y + 15, text, "head")
        y += head
        slowest = max(value for value in found.values() if value is not None)
        for who, value in found.items():
            if value is None:
                drawing.text(0, y + bar - 4, f"{who}: cannot do it right here", "small")
            else:
                length = round(max(width * value / slowest, 2), 1)
                drawing.box(0, y + 1, length, bar - 3, COLOURS[who], "full", f"{who}: {number(value)} ms")
                drawing.text(length + 6, y + bar - 4, f"{who} {number(value)} ms")
            y += bar
        y += gap
    return drawing


def native_rows() -> list[tuple[str, dict[str, float | None]]]:
    rows = read("results")["rows"]
    return [(text, {who: milliseconds(rows[name], who) for who in PEERS}) for name, text in STORIES.items()]


def page_rows() -> list[tuple[str, dict[str, float | None]]]:
    rows = read("page")
    found = []
    for name, text in PAGE_STORIES.items():
        pair = {
            "webpte": milliseconds(rows[name], "page"),
            "onnxruntime-web": milliseconds(rows[name], "onnxruntime-web"),
        }
        found.append((text, pair))
    return found


# ---------------------------------------------------------------- the page

TEXT = """# Benchmarks

How fast is it? This page says what was measured, what it means, and what it does not. It is written by `python -m
docs.make_benchmarks` from the stored results of the bench (`bench/*.json`); all rows, methods and footnotes are in
[Performance](performance.md) and [Scale](scale.md).

## Read this first

**No GPU was involved.** Everything here ran on {machine}, where Mesa's *lavapipe* ({adapter}) plays a GPU on the CPU.
All contenders ran on that same adapter, taking turns. So:

- A **ratio** between two bars of one group means something: it is how much more work one program makes for the same
  device. Below 1.5 × call it a tie.
- A **time** means nothing for your machine. A GPU is faster by factors that differ from row to row.
- A GPU may **rank** things differently. lavapipe punishes instructions, a GPU punishes memory traffic and idle lanes;
  kernels that are best on one are not on the other, which is why webpte carries both and measures on your device
  (`webpte tune`).

## Natively, from Python

![Milliseconds per call of webpte, ONNX Runtime, LiteRT and tinygrad on one software adapter](figures/bench-native.svg)

{native}

A call starts and ends with arrays on the host; every result was compared with NumPy's before it counted. Medians of
15 turns, {date}; {versions}.

**What this says.** In the rows with real models webpte takes {best} of the time of the fastest peer. It comes from
doing less: fewer dispatches, 4-bit weights multiplied as they are stored, one submit, and reading back only what was
asked for.

**Where others are ahead.** A call that does next to nothing costs {small} ms here and {small_peer} ms in {small_who}:
Python prepares it, and theirs is C++.

**Why the gaps are so wide.** The peers have kernels for GPUs alone; webpte also has some for software devices, and
runs them here. On a GPU that part of the lead is gone.

**What it does not say.** How any of them does on a GPU, or how they compare with runtimes for one vendor (CUDA, Core
ML), which will be faster there.

## In a web page

The same programs in Chromium on its own software adapter (SwiftShader), as a [bundle](bundles.md) beside
onnxruntime-web:

![Milliseconds of a bundle's page and of onnxruntime-web in the same browser](figures/bench-page.svg)

{page}

Most of that gap is kernels for software devices, again: a token of a small Llama takes the page {tuned} ms with
those, {untuned} ms with its kernels for GPUs, and onnxruntime-web {theirs} ms. The page and player of a bundle are
{player} MB; with weights and all, a first visit to the page of SmolLM2 loads {visit} MB (exported with
`--lm-head 4`, as all of this page; with the head in 8 bits, which is the default since, 114 MB).

## Several at once

A pass over the weights can serve several sequences. Tokens per second of SmolLM2-135M in all, times those of one
sequence alone, on lavapipe:

{curve}

A GPU should gain more, because there a further row hides behind the reading of weights; that is a
[prediction](scale.md), not a measurement.

## Measure yours

```console
$ webpte doctor
$ webpte bench model.pte
$ webpte profile model.pte
```

`webpte bench --json` keeps the figures; we would like to see them from real GPUs.
"""


def table(rows: Sequence[tuple[str, Mapping[str, float | None]]]) -> str:
    who = list(rows[0][1])
    lines = [f"| ms | {' | '.join(who)} |", f"|---|{'--:|' * len(who)}"]
    lines += [f"| {text} | {' | '.join(number(found[w]) for w in who)} |" for text, found in rows]
    return "\n".join(lines)


def ratios(rows: Sequence[tuple[str, Mapping[str, float | None]]]) -> str:
    """Of webpte to the best of the others, in the rows of models, the smallest and the largest."""
    found = []
    for _, times in rows[:4]:
        mine = times["webpte"]
        others = [v for who, v in times.items() if who != "webpte" and v is not None]
        assert mine is not None
        found.append(mine / min(others))
    return f"{min(found):.0%} to {max(found):.0%}".replace("%", " %")


def curve() -> str:
    """Tokens of all sequences in the time that one sequence takes for one."""
    seconds = read("curve")["models"]["smollm2"]
    counts = ("1", "2", "4", "8", "16", "32")
    gains = " | ".join(f"{int(n) * seconds['1'] / seconds[n]:.1f} ×" for n in counts)
    return f"| sequences | {' | '.join(counts)} |\n|---|{'--:|' * len(counts)}\n| tokens per second in all | {gains} |"


def page_text() -> str:
    results, rows, page = read("results"), native_rows(), read("page")
    facts, visit = results["facts"], read("visits")["SmolLM2-135M, 4 bits"]
    small = {who: value for who, value in rows[-1][1].items() if value is not None}
    fastest = min((who for who in small if who != "webpte"), key=lambda who: small[who])
    return TEXT.format(
        machine=facts["machine"],
        adapter=facts["adapter"],
        native=table(rows),
        date=max(results["dates"].values())[:10],
        versions=", ".join(f"{who} {facts['versions'][who].removeprefix('version ')}" for who in PEERS),
        best=ratios(rows),
        small=number(small["webpte"]),
        small_peer=number(small[fastest]),
        small_who=fastest,
        page=table(page_rows()),
        tuned=number(milliseconds(page["llama256_decode"], "page")),
        untuned=number(milliseconds(page["llama256_decode"], "page, kernels for a GPU")),
        theirs=number(milliseconds(page["llama256_decode"], "onnxruntime-web")),
        player=f"{visit['page'] / 1e6:.2f}",
        visit=f"{(visit['page'] + visit['plan'] + visit['weights']) / 1e6:.0f}",
        curve=curve(),
    )


def files() -> dict[Path, str]:
    native = bars("bench-native", "Natively, on one software adapter", native_rows())
    page = bars("bench-page", "In a browser, on its software adapter", page_rows())
    drawn = {FIGURES / f"{drawing.name}.svg": drawing.svg() for drawing in (native, page)}
    return {PAGE: page_text(), **drawn}


def main() -> int:
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: {len(text)} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
