"""`python -m tests.studies xnnpack.speed [--sides 224 96] [--tokens 128] [--llm FILE ...]`: webpte beside the
executorch wheel.

Programs for XNNPACK: MobileNetV2 in f32 and int8 for images of these sides, a block of BERT for as many tokens, and a
step of one token of programs that `export_llm` wrote. Weights are random, except those of language models. Calls of the
two alternate, and medians are printed, with dispatches and the times that bench.cost_model predicts if a multiply-add
is an instruction, and four of them are one in int8 layers of all channels.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

import webpte
from bench.cost_model import CARDS, Parameters, Work, fit, predict
from tests.studies.xnnpack.exporting import export
from tests.studies.xnnpack.zoo import compare
from tests.studies.zoo.building import Case, case
from webpte.debug.profile.profile import DispatchTime, profile

# expansion, channels, blocks, stride
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
POSITION = 32  # of the token of a language model
PREDICTED = ("M2", "RX 7900 XTX", "Arc 140V (Lunar Lake)", "Adreno 740")


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [convolution, nn.BatchNorm2d(outputs)]


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        grown = [*_conv(inputs, hidden, 1), nn.ReLU6()] if expansion > 1 else []
        middle = [*_conv(hidden, hidden, 3, stride, hidden), nn.ReLU6()]
        self.layers = nn.Sequential(*grown, *middle, *_conv(hidden, outputs, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_conv(3, 32, 3, 2), nn.ReLU6()]
        inputs = 32
        for expansion, outputs, count, stride in STAGES:
            for number in range(count):
                layers.append(Bottleneck(inputs, outputs, stride if number == 0 else 1, expansion))
                inputs = outputs
        self.features = nn.Sequential(*layers, *_conv(inputs, 1280, 1), nn.ReLU6())
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def mobilenet(side: int) -> Case:
    torch.manual_seed(0)
    return case(MobileNetV2().eval(), [(torch.randn(1, 3, side, side),) for _ in range(2)])


class BertBlock(nn.Module):
    """A layer of BERT base."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        weights = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        x = self.first(x + self.out((weights @ v).transpose(1, 2).flatten(2)))
        return self.second(x + self.narrow(nn.functional.gelu(self.wide(x))))


def bert(tokens: int) -> Case:
    torch.manual_seed(0)
    return case(BertBlock().eval(), [(torch.randn(1, tokens, 768),) for _ in range(2)])


def _measure(path: Path, inputs: list[np.ndarray], rounds: int) -> tuple[float, float, list[DispatchTime]]:
    """Return the median milliseconds of webpte and of the wheel, and webpte's dispatches."""
    from executorch.extension.pybindings import portable_lib

    wheel, tensors = portable_lib._load_for_executorch(str(path)), [torch.from_numpy(array) for array in inputs]
    times: dict[str, list[float]] = {"webpte": [], "wheel": []}
    with webpte.load(path) as program:
        method = program.method("forward")
        runs = {"webpte": lambda: method(*inputs), "wheel": lambda: wheel.forward(tensors)}
        for run in runs.values():
            run()
        for _ in range(rounds):
            for name, run in runs.items():
                start = time.perf_counter()
                run()
                times[name].append((time.perf_counter() - start) * 1e3)
        dispatches = profile(method, inputs, repeat=1, roofline=False).dispatches
    here, there = (statistics.median(values) for values in times.values())
    return here, there, dispatches


def _predicted(dispatches: list[DispatchTime], card: str, parameters: Parameters) -> float:
    """Return milliseconds: each dispatch takes as long as its memory traffic or its instructions."""

    def seconds(dispatch: DispatchTime) -> float:
        packed = "int8_convolution" in dispatch.kernel
        instructions = (dispatch.flops or 0) / 2 / (4 if packed else 1)
        return predict(Work(dispatch.bytes / 1e9, 1, instructions), CARDS[card], parameters)

    return 1e3 * sum(map(seconds, dispatches))


def _report(path: Path, inputs: list[np.ndarray], rounds: int, parameters: Parameters) -> str:
    here, there, dispatches = _measure(path, inputs, rounds)
    cards = ", ".join(f"{card} {_predicted(dispatches, card, parameters):.2f} ms" for card in PREDICTED)
    touched = sum(dispatch.bytes for dispatch in dispatches) / 1e6
    return (
        f"webpte {here:.1f} ms, wheel {there:.1f} ms (medians, n = {rounds}); {len(dispatches)} dispatches, "
        f"{touched:.1f} MB; predicted: {cards}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.studies xnnpack.speed")
    parser.add_argument("--sides", type=int, nargs="*", default=[224, 96])
    parser.add_argument("--tokens", type=int, nargs="*", default=[128])
    parser.add_argument("--llm", type=Path, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    parameters = fit()
    programs = [
        (f"MobileNetV2 {mode} {side}", mobilenet(side), mode) for side in args.sides for mode in ("f32", "int8")
    ]
    programs += [(f"BERT block f32 {tokens}", bert(tokens), "f32") for tokens in args.tokens]
    for name, example, mode in programs:
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = Path(folder, "program.pte")
            export(example, mode, path)
            worst = compare(path, example)
            report = _report(path, [example.steps[0][0].numpy()], args.rounds, parameters)
        print(f"{name}: {report}; {worst:.2g} relative", flush=True)
    for path in args.llm:
        import executorch.extension.llm.custom_ops.custom_ops
        import executorch.kernels.quantized  # noqa: F401  # both register the kernels of such programs

        step = [np.array([[7]]), np.array([POSITION])]
        print(f"{path.stem}: {_report(path, step, args.rounds, parameters)}", flush=True)


if __name__ == "__main__":
    main()
