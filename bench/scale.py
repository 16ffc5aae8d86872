"""What a decoded token costs, as a sum one can do on paper: `python -m bench.scale` writes docs/scale.md.

Four rates are taken from single kernels of the stored bench; two whole models of the same bench tell how good the sum
is; and the same sum with published bandwidths says what to expect of GPUs that nobody has tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .documentation import DOCS, STORED
from .goals import BARE, UNFUSED, WEBPTE
from .results import Report

PAGE = DOCS / "scale.md"
BYTES_PER_WEIGHT = 0.5 + 4 / 32  # a 4-bit code, and an f32 scale for every 32
SINGLE_MATRIX = 4096**2
CHAIN = 200
BARE_ATTENTION = 30 * 9 * 64 * 2  # layers, heads, head size, keys and values: multiplications per token of context


@dataclass(frozen=True)
class Llama:
    """The sizes that decide what a token costs."""

    name: str
    layers: int
    dim: int
    heads: int
    kv_heads: int
    head: int
    hidden: int
    vocab: int

    @property
    def weights(self) -> int:
        """4-bit weights that one token is multiplied by."""
        attention = 2 * self.dim * self.heads * self.head + 2 * self.dim * self.kv_heads * self.head
        return self.layers * (attention + 3 * self.dim * self.hidden) + self.vocab * self.dim

    @property
    def dispatches(self) -> int:
        """Eight a layer, and embedding, choice of row, norm, head and two of the sampler."""
        return 8 * self.layers + 6

    def attention(self, context: int) -> int:
        """Multiplications with cached keys and values."""
        return 2 * self.layers * self.heads * self.head * context

    def cache_bytes(self, context: int) -> int:
        return 4 * 2 * self.layers * self.kv_heads * self.head * context


LLAMA256 = Llama("llama256", 4, 256, 8, 4, 32, 768, 2048)
SMOLLM2 = Llama("SmolLM2-135M", 30, 576, 9, 3, 64, 1536, 49152)
LLAMA1B = Llama("Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256)
CHECKS = ((LLAMA256, 33, "llama256_decode"), (SMOLLM2, 101, "smollm2_decode_100"), (SMOLLM2, 901, "smollm2_decode_900"))
# Published memory bandwidths in GB/s.
DEVICES = {"Apple M4 Pro": 273, "Intel Arc B580": 456, "AMD Radeon RX 7900 XTX": 960}
SHARES = (0.45, 0.75)  # of its bandwidth that a device reaches; ExecuTorch's C++ backend reached 0.48 on the M4 Pro
DISPATCH_MICROSECONDS = (25.0, 3.0)  # with a pass for each, as was published for Vulkan; back to back in one pass
READBACK_MICROSECONDS = (500.0, 100.0)
PUBLISHED = 188  # tokens per second of ExecuTorch's C++ WebGPU backend, Llama-3.2-1B at 4 bits on the M4 Pro


@dataclass(frozen=True)
class Rates:
    """What single kernels take on the adapter of the bench, in seconds."""

    call: float  # upload, submit, wait, read back, whatever is computed
    dispatch: float
    weight: float
    attention: float  # per multiplication with the cache

    @classmethod
    def of(cls, rows: Report, units: Report) -> Rates:
        call = _taken(rows, "add_small", WEBPTE)
        dispatch = (_taken(rows, "chain_200", UNFUSED) - call) / (CHAIN - 1)
        weight = (_taken(rows, "q4_gemv_4096", WEBPTE) - call - dispatch) / SINGLE_MATRIX
        grown = _taken(units, "attention_900", BARE) - _taken(units, "attention_100", BARE)
        return cls(call, dispatch, weight, grown / 800 / BARE_ATTENTION)

    def parts(self, model: Llama, context: int) -> dict[str, float]:
        return {
            "weights": model.weights * self.weight,
            "attention": model.attention(context) * self.attention,
            "dispatches": model.dispatches * self.dispatch,
            "call": self.call,
        }


def _taken(report: Report, row: str, contender: str) -> float:
    seconds = report.seconds(row, contender)
    if seconds is None:
        raise SystemExit(f"{row} of {contender} was not measured: run python -m bench --write-docs, then with --units")
    return seconds


def measured(rows: Report, units: Report) -> list[tuple[Llama, int, float, dict[str, float]]]:
    """Model, context, seconds as measured, and the parts of the prediction."""
    rates = Rates.of(rows, units)
    return [(model, context, _taken(units, row, WEBPTE), rates.parts(model, context)) for model, context, row in CHECKS]


def stored() -> tuple[Report, Report]:
    """The last results of the bench: whole rows, and rows beside the unit."""
    return Report.read(STORED), Report.read(STORED.with_name("units.json"))


def expected(bandwidth: float, model: Llama = LLAMA1B, context: int = 512) -> tuple[float, float]:
    """Tokens per second, cautious and hopeful, on a device with so many GB/s."""
    nbytes = model.weights * BYTES_PER_WEIGHT + model.cache_bytes(context)
    found = []
    for share, dispatch, readback in zip(SHARES, DISPATCH_MICROSECONDS, READBACK_MICROSECONDS, strict=True):
        seconds = nbytes / (share * bandwidth * 1e9) + (model.dispatches * dispatch + readback) * 1e-6
        found.append(1 / seconds)
    return found[0], found[1]


def markdown(rows: Report, units: Report) -> str:
    rates = Rates.of(rows, units)
    checks = [
        f"| {model.name} at {context} | {model.weights / 1e6:.1f} M | {model.dispatches} | "
        + " | ".join(f"{1e3 * parts[part]:.2f}" for part in ("weights", "attention", "dispatches", "call"))
        + f" | {1e3 * sum(parts.values()):.2f} | {1e3 * taken:.2f} | {sum(parts.values()) / taken:.2f} |"
        for model, context, taken, parts in measured(rows, units)
    ]
    devices = [
        f"| {name} | {bandwidth} | {low:.0f} to {high:.0f} |"
        for name, bandwidth in DEVICES.items()
        for low, high in [expected(bandwidth)]
    ]
    return PAGE_TEXT.format(
        call=1e6 * rates.call,
        dispatch=1e6 * rates.dispatch,
        weights=1e-9 / rates.weight,
        attention=1e-9 / rates.attention,
        adapter=rows.facts["adapter"],
        checks="\n".join(checks),
        devices="\n".join(devices),
        megabytes=LLAMA1B.weights * BYTES_PER_WEIGHT / 1e6,
        gigaflops=2 * LLAMA1B.weights / 1e9,
        dispatches=LLAMA1B.dispatches,
        published=PUBLISHED,
        shares=SHARES,
        microseconds=DISPATCH_MICROSECONDS,
    )


PAGE_TEXT = """# Scale

Generated by `python -m bench.scale` from `bench/results.json` and `bench/units.json`.

## What a token costs

A decoded token is four things: every weight is read and multiplied once, the cached keys and values are, each dispatch
costs something whatever it does, and so does the call. The rates below come from single kernels of the bench on
{adapter}, none of them from a model:

| rate | from the row | value |
|---|---|--:|
| a call | add 8×8 | {call:.0f} µs |
| a dispatch | chain of 200 small ops, no fusion | {dispatch:.1f} µs |
| 4-bit weights | q4 GEMV 4096² | {weights:.2f} G/s |
| multiplications in attention | bare attention, 100 to 900 tokens | {attention:.2f} G/s |

Their sum against what the same bench measured, in milliseconds:

| model and context | weights | dispatches | weights | attention | dispatches | call | sum | measured | ratio |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{checks}

A test holds the ratio between 0.75 and 1.25.

## On a GPU: a prediction, not a measurement

Nothing in this section was run. lavapipe is bound by instructions, a GPU by bandwidth: there a token takes the time to
read its bytes. Llama-3.2-1B at 4 bits in groups of 32 is {megabytes:.0f} MB and {gigaflops:.1f} GFLOP a token, in
{dispatches} dispatches. The cautious end takes {shares[0]:.0%} of the published bandwidth and {microseconds[0]:.0f} µs
a dispatch, which is what was published for WebGPU on Vulkan with a pass for each; the hopeful end {shares[1]:.0%} and
{microseconds[1]:.0f} µs, for dispatches that follow each other in one pass.

| device | published GB/s | predicted tokens per second at 512 tokens of context |
|---|--:|--:|
{devices}

For comparison: ExecuTorch's C++ WebGPU backend is published with {published} tokens per second for this model on the
M4 Pro, which is 48 % of its bandwidth.

What decides, then, is the share of the bandwidth that the 4-bit kernels reach, and below about a billion weights the
number of dispatches. `webpte profile` shows both on the device at hand, and `webpte tune` chooses kernels by the first.
"""


def main() -> None:
    Path(PAGE).write_text(markdown(*stored()), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
