"""Write docs/benchmarks.md and its figures from bench/*.json: python -m docs.make_benchmarks

tests/project/test_figures.py fails if the page is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import documentation
from bench.results import Report
from docs.drawing import Drawing

HERE = Path(__file__).parent
ROOT = HERE.parent
PAGE = HERE / "benchmarks.md"
TEMPLATE = ROOT / "bench" / "benchmarks_page.md"
FIGURES = HERE / "figures"
UNITS = documentation.STORED.with_name("units.json")
PEERS = ("webpte", "ONNX Runtime", "LiteRT", "tinygrad")
COLORS = {
    "webpte": "blue",
    "ONNX Runtime": "red",
    "LiteRT": "orange",
    "tinygrad": "green",
    "bare engine": "grey",
    "onnxruntime-web": "red",
}
# The rows in words.
STORIES = {
    "smollm2_decode_100": "SmolLM2-135M (4 bits): one token after 100 others",
    "smollm2_prefill_128": "SmolLM2-135M (4 bits): a prompt of 128 tokens",
    "minilm_1x32": "MiniLM (f32): one text of 32 tokens",
    "minilm_8x128": "MiniLM (f32): 8 texts of 128 tokens",
    "mlp_64": "MLP of four layers, 64 rows",
    "linear_512": "matrix product, 512 × 512 × 512",
    "gemv_4096": "matrix of 4096 × 4096 times a vector",
    "chain_200": "chain of 200 small ops",
    "add_small": "addition of 8 × 8 numbers: a minimal call",
}
PAGE_STORIES = {
    "smollm2_decode_100": "SmolLM2-135M: one token",
    "smollm2_prefill_128": "SmolLM2-135M: a prompt of 128 tokens",
    "minilm_1x32": "MiniLM: one text of 32 tokens",
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


# ---------------------------------------------------------------- figures


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
                drawing.box(0, y + 1, length, bar - 3, COLORS[who], "full", f"{who}: {number(value)} ms")
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
    return f"| sequences | {' | '.join(counts)} |\n|---|{'--:|' * len(counts)}\n| relative tokens/s | {gains} |"


def page_text() -> str:
    results, rows, page = read("results"), native_rows(), read("page")
    facts = results["facts"]
    small = {who: value for who, value in rows[-1][1].items() if value is not None}
    fastest = min((who for who in small if who != "webpte"), key=lambda who: small[who])
    return TEMPLATE.read_text(encoding="utf-8").format(
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
        curve=curve(),
        all=documentation.markdown(Report.read(documentation.STORED), Report.read(UNITS)).strip(),
    )


def files() -> dict[Path, str]:
    native = bars("bench-native", "Python, on one software adapter", native_rows())
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
