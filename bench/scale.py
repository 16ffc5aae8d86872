"""What a decoded token costs, as a sum one can do on paper: `python -m bench.scale` writes docs/scale.md.

Four rates are taken from single kernels of the stored bench; two whole models of the same bench tell how good the sum
is; and the same sum with published bandwidths says what to expect of GPUs that nobody has tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .bulk import section as bulk_section
from .chats import CONTEXT
from .chats import section as chats_section
from .curve import TILE, Curve
from .documentation import DOCS, STORED
from .goals import BARE, UNFUSED, WEBPTE
from .results import Report
from .visits import section

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
    context: int  # tokens that its cache has room for

    @property
    def weights(self) -> int:
        """4-bit weights that one token is multiplied by."""
        return self.layer_weights + self.head_weights

    @property
    def layer_weights(self) -> int:
        attention = 2 * self.dim * self.heads * self.head + 2 * self.dim * self.kv_heads * self.head
        return self.layers * (attention + 3 * self.dim * self.hidden)

    @property
    def head_weights(self) -> int:
        return self.vocab * self.dim

    @property
    def dispatches(self) -> int:
        """Eight a layer, and embedding, choice of row, norm, head and two of the sampler."""
        return 8 * self.layers + 6

    def attention(self, context: int) -> int:
        """Multiplications with cached keys and values."""
        return 2 * self.layers * self.heads * self.head * context

    def cache_bytes(self, context: int) -> int:
        return 4 * 2 * self.layers * self.kv_heads * self.head * context


LLAMA256 = Llama("llama256", 4, 256, 8, 4, 32, 768, 2048, 128)
SMOLLM2 = Llama("SmolLM2-135M", 30, 576, 9, 3, 64, 1536, 49152, 1024)
LLAMA1B = Llama("Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, 131072)
CHECKS = ((LLAMA256, 33, "llama256_decode"), (SMOLLM2, 101, "smollm2_decode_100"), (SMOLLM2, 901, "smollm2_decode_900"))
CURVES = {"llama256": LLAMA256, "smollm2": SMOLLM2}  # by the stems of their files
MOST_OF_ONE_TILE = 16
SHOWN_ROWS = (1, 2, 4, 8, 12, 16, 17, 24, 32)
# Published memory bandwidths in GB/s.
DEVICES = {"Apple M4 Pro": 273, "Intel Arc B580": 456, "AMD Radeon RX 7900 XTX": 960}
TERAFLOPS = {"Apple M4 Pro": 9.2, "Intel Arc B580": 13.7, "AMD Radeon RX 7900 XTX": 61.4}  # published, of f32
SEQUENCES = (1, 2, 4, 8, 16, 32, 64)
COMPUTE_SHARES = (0.15, 0.4)  # of those that the kernels reach
WEIGHT_READS = (4, 64)  # sequences for which weights are read from memory once: a tile's, or all that there are
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
    further: float = 1.0  # what a row that is not the first of its tile costs a weight, relative to the first

    @classmethod
    def of(cls, rows: Report, units: Report, curve: Curve) -> Rates:
        call = _taken(rows, "add_small", WEBPTE)
        dispatch = (_taken(rows, "chain_200", UNFUSED) - call) / (CHAIN - 1)
        weight = (_taken(rows, "q4_gemv_4096", WEBPTE) - call - dispatch) / SINGLE_MATRIX
        grown = _taken(units, "attention_900", BARE) - _taken(units, "attention_100", BARE)
        one, tile = curve.kernel[1], curve.kernel[TILE]
        return cls(call, dispatch, weight, grown / 800 / BARE_ATTENTION, (tile - one) / (TILE - 1) / one)

    def parts(self, model: Llama, context: int, rows: int = 1) -> dict[str, float]:
        """Of a pass over so many rows, the last of which gets a next token."""
        tiles = 1 if rows <= MOST_OF_ONE_TILE else -(-rows // TILE)
        times = tiles * (1 - self.further) + rows * self.further
        return {
            "weights": (model.layer_weights * times + model.head_weights) * self.weight,
            "attention": rows * model.attention(context) * self.attention,
            "dispatches": model.dispatches * self.dispatch,
            "call": self.call,
        }


def _taken(report: Report, row: str, contender: str) -> float:
    seconds = report.seconds(row, contender)
    if seconds is None:
        raise SystemExit(f"{row} of {contender} was not measured: run python -m bench --write-docs, then with --units")
    return seconds


def measured(rows: Report, units: Report, curve: Curve) -> list[tuple[Llama, int, float, dict[str, float]]]:
    """Model, context, seconds as measured, and the parts of the prediction."""
    rates = Rates.of(rows, units, curve)
    return [(model, context, _taken(units, row, WEBPTE), rates.parts(model, context)) for model, context, row in CHECKS]


def measured_rows(rows: Report, units: Report, curve: Curve) -> list[tuple[Llama, int, float, float]]:
    """Model, number of rows, and how many times a single row they cost: as measured, and as predicted."""
    rates = Rates.of(rows, units, curve)
    found = []
    for name, seconds in curve.models.items():
        model = CURVES[name]
        context = min(curve.context, model.context - max(seconds))
        one = sum(rates.parts(model, context).values())
        for count, taken in seconds.items():
            predicted = sum(rates.parts(model, context, count).values()) / one
            found.append((model, count, taken / seconds[1], predicted))
    return found


def stored() -> tuple[Report, Report, Curve]:
    """The last results of the bench: whole rows, rows beside the unit, and the curve of few rows."""
    return Report.read(STORED), Report.read(STORED.with_name("units.json")), Curve.read()


def expected(device: str, model: Llama = LLAMA1B, context: int = 512, sequences: int = 1) -> tuple[float, float]:
    """Tokens per second of all sequences, cautious and hopeful. Whichever takes longer counts, reading or computing."""
    found = []
    for share, compute, together, dispatch, readback in zip(
        SHARES, COMPUTE_SHARES, WEIGHT_READS, DISPATCH_MICROSECONDS, READBACK_MICROSECONDS, strict=True
    ):
        weights = model.weights * BYTES_PER_WEIGHT * -(-sequences // together)
        nbytes = weights + sequences * model.cache_bytes(context)
        flops = 2 * sequences * (model.weights + model.attention(context))
        working = max(nbytes / (share * DEVICES[device] * 1e9), flops / (compute * TERAFLOPS[device] * 1e12))
        found.append(sequences / (working + (model.dispatches * dispatch + readback) * 1e-6))
    return found[0], found[1]


def markdown(rows: Report, units: Report, curve: Curve) -> str:
    rates = Rates.of(rows, units, curve)
    checks = [
        f"| {model.name} at {context} | {model.weights / 1e6:.1f} M | {model.dispatches} | "
        + " | ".join(f"{1e3 * parts[part]:.2f}" for part in ("weights", "attention", "dispatches", "call"))
        + f" | {1e3 * sum(parts.values()):.2f} | {1e3 * taken:.2f} | {sum(parts.values()) / taken:.2f} |"
        for model, context, taken, parts in measured(rows, units, curve)
    ]
    devices = [
        f"| {name} | {bandwidth} | {low:.0f} to {high:.0f} |"
        for name, bandwidth in DEVICES.items()
        for low, high in [expected(name)]
    ]
    further = [
        f"| {model.name} | {count} | {taken:.2f} | {count / taken:.2f} | {predicted:.2f} | {predicted / taken:.2f} |"
        for model, count, taken, predicted in measured_rows(rows, units, curve)
        if count in SHOWN_ROWS
    ]
    batches = [
        f"| {name} | " + " | ".join("%.0f to %.0f" % expected(name, sequences=n) for n in SEQUENCES) + " |"  # noqa: UP031
        for name in DEVICES
    ]
    return PAGE_TEXT.format(
        call=1e6 * rates.call,
        dispatch=1e6 * rates.dispatch,
        weights=1e-9 / rates.weight,
        attention=1e-9 / rates.attention,
        adapter=rows.facts["adapter"],
        checks="\n".join(checks),
        devices="\n".join(devices),
        further=100 * rates.further,
        curve="\n".join(further),
        curve_context=curve.context,
        curve_clock=curve.clock,
        most=MOST_OF_ONE_TILE,
        tile=TILE,
        sequences=" | ".join(map(str, SEQUENCES)),
        batches="\n".join(batches),
        compute=COMPUTE_SHARES,
        together=WEIGHT_READS,
        megabytes=LLAMA1B.weights * BYTES_PER_WEIGHT / 1e6,
        gigaflops=2 * LLAMA1B.weights / 1e9,
        dispatches=LLAMA1B.dispatches,
        published=PUBLISHED,
        shares=SHARES,
        microseconds=DISPATCH_MICROSECONDS,
        chats=chats_section(
            lambda device, sequences: expected(device, sequences=sequences),
            lambda device: (COMPUTE_SHARES[0] * TERAFLOPS[device] * 1e12, COMPUTE_SHARES[1] * TERAFLOPS[device] * 1e12),
            LLAMA1B.weights,
            LLAMA1B.cache_bytes(CONTEXT),
            LLAMA1B.weights * BYTES_PER_WEIGHT,
        ),
        bulk=bulk_section(),
        web=section(),
    )


PAGE_TEXT = """# Scale

This page derives the cost of tokens, chats, batch jobs and page visits from measurements, and predicts it for GPUs.
`python -m bench.scale` writes it from `bench/results.json`, `bench/units.json`, `bench/curve.json`, `bench/page.json`,
`bench/visits.json`, `bench/chats.json` and `bench/bulk.json`.

## Cost of a token

The time of a decoded token has four parts: weights, attention over the cache, dispatches, and the call. These rates
were measured with single kernels on {adapter}, not with models:

| rate | row of the benchmark | value |
|---|---|--:|
| a call | add 8×8 | {call:.0f} µs |
| a dispatch | chain of 200 small ops, no fusion | {dispatch:.1f} µs |
| 4-bit weights | q4 GEMV 4096² | {weights:.2f} G/s |
| multiplications in attention | bare attention, 100 to 900 tokens | {attention:.2f} G/s |

The sum and the measured time, in milliseconds:

| model and context | weights | dispatches | weights | attention | dispatches | call | sum | measured | ratio |
|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|
{checks}

A test requires a ratio between 0.75 and 1.25.

## Cost of further rows

Tokens of a prompt, drafts and several sequences are rows of one pass. A weight is read once for up to {most} rows, then
once for each {tile} rows; each row adds its multiplications. Measured with a single 4-bit layer, a further row costs
{further:.0f} % of the first. Attention grows with the rows, dispatches and the call do not. The head runs for one row.
Relative to a single row, at {curve_context} tokens of context (less for llama256), in {curve_clock}
(`python -m bench.curve`):

| model | rows | measured | tokens in the time of single rows | predicted | ratio |
|---|--:|--:|--:|--:|--:|
{curve}

A test requires a ratio between 0.75 and 1.25 for up to 32 rows. On llvmpipe, every multiplication and addition is a
separate instruction, which limits the gain.

## Prediction for GPUs

Nothing in this section was measured. lavapipe is bound by instructions, a GPU by bandwidth: a token takes the time to
read its bytes. Llama-3.2-1B with 4 bits in groups of 32 has {megabytes:.0f} MB and needs {gigaflops:.1f} GFLOP and
{dispatches} dispatches per token. The low estimate uses {shares[0]:.0%} of the published bandwidth and
{microseconds[0]:.0f} µs per dispatch, as published for WebGPU on Vulkan with one pass per dispatch. The high estimate
uses {shares[1]:.0%} and {microseconds[1]:.0f} µs, for dispatches within one pass.

| device | published GB/s | predicted tokens/s at 512 tokens of context |
|---|--:|--:|
{devices}

Several sequences share a pass over the weights. The low estimate reads the weights again for every {together[0]}
sequences and reaches {compute[0]:.0%} of the published f32 rate. The high estimate reads them once and reaches
{compute[1]:.0%}. Tokens per second of all sequences, with 512 tokens of context each, by the number of sequences:

| device | {sequences} |
|---|--:|--:|--:|--:|--:|--:|--:|
{batches}

ExecuTorch's C++ WebGPU backend is published with {published} tokens/s for this model on the M4 Pro, 48 % of its
bandwidth.

The result depends on the share of bandwidth that the 4-bit kernels reach and, below about a billion weights, on the
number of dispatches. `webpte profile` shows both, and `webpte tune` selects kernels.

{chats}
{bulk}
{web}"""


def main() -> None:
    Path(PAGE).write_text(markdown(*stored()), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
