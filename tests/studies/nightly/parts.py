"""The parts of a nightly run: what the gate has no time for, each with its limit and its commands.

A command starts with `python`, `bash` or `pytest`. The limit is for all commands of a part together, on two cores.
The workflow gives each part a machine of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

MINUTE = 60  # seconds


@dataclass(frozen=True)
class Part:
    """Commands that run one after the other and give one result."""

    name: str
    limit: float  # seconds
    commands: tuple[tuple[str, ...], ...]


def part(name: str, minutes: float, *commands: str) -> Part:
    return Part(name, minutes * MINUTE, tuple(tuple(command.split(" ")) for command in commands))


def suite(name: str) -> tuple[str, ...]:
    return ("python", "-m", "tests.studies.devices", "--suites", name)


SLOW_TIERS = {
    "unit": 5,
    "process": 15,
    "gpu": 30,
    "contract": 90,
    "serving": 80,
    "web": 40,
    "project": 90,
}  # minutes; others have no slow tests
EXTRAS = {"llm": 20, "tasks": 10, "speech": 10, "server": 10, "batch": 10, "ray": 40, "notebook": 10, "export": 60}
FUZZED = (
    *("container", "delegate", "xnnpack", "tensors", "plan", "plan_xnnpack", "saved", "saved_field", "manifest"),
    *("snapshot", "template"),
)
FUZZ_SECONDS = 300
NETWORKS = (  # of the zoo, each in all modes
    *("whisper", "hifigan", "wav2vec2", "detr", "sam_encoder", "segformer", "unet", "yolo", "yolos", "depth_anything"),
    "clip",
)

PARTS = (
    *(part(f"slow-{tier}", minutes, f"pytest -m slow tests/{tier}") for tier, minutes in SLOW_TIERS.items()),
    # Every suite on every configuration that it makes a difference to.
    Part("devices-cases", 90 * MINUTE, (suite("op cases"),)),
    Part("devices-catalog", 90 * MINUTE, (suite("catalog"),)),
    Part("devices-models", 90 * MINUTE, (suite("models"),)),
    part("zoo", 90, "python -m tests.studies.zoo"),
    *(part(f"network-{name}", 60, f"python -m tests.studies.zoo --networks --only {name}") for name in NETWORKS),
    part(
        "families",
        60,
        "python -m tests.studies.families",
        "python -m tests.studies.families --gguf",
        "python -m tests.studies.families --states",
    ),
    part("compilers", 90, "python -m bench.compilers --all --check"),
    part(
        "translators",
        90,
        "python -m bench.translators.build",
        "pytest tests/contract/test_translators.py",
        "python -m bench.translators --all",
    ),
    part(
        "matrix-units",
        60,
        "python -m bench.compilers.build apple",
        "pytest -m slow tests/web/test_matrix_units.py",
    ),
    part("speech", 90, "python -m tests.studies.speech"),
    part("catalog", 20, "python -m tests.studies.catalog.run"),
    part("random-modules", 60, "python -m tests.studies.random_modules --count 300"),
    part("random-steps", 30, "python -m tests.support.harness.random_steps 2000"),
    part("random-models", 90, "python -m tests.support.harness.random_models 400"),
    part("random-states", 90, "python -m tests.support.harness.random_states 2000"),
    part("properties", 60, "pytest --hypothesis-profile=night -m hypothesis tests/unit tests/gpu"),
    part("special", 30, "python -m tests.studies.special"),
    part("saved-plans", 60, "python -m tests.studies.saved_plans"),
    part("xnnpack", 60, "python -m tests.studies.xnnpack", "python -m tests.studies.xnnpack.zoo"),
    part("xnnpack-programs", 60, "python -m tests.studies.xnnpack.programs"),
    part("large", 15, "python -m tests.studies.large vocabulary --bits 4"),
    part("soak-threads", 60, "python -m tests.studies.soak.threads", "python -m tests.studies.soak.pair"),
    part("soak-loss", 40, "python -m tests.studies.soak.loss"),
    part(
        "soak-decode",
        60,
        "python -m tests.studies.soak.decode",
        "python -m tests.studies.soak.decode --family lfm2",
        "python -m tests.studies.soak.decode --family qwen3_5",
    ),
    part("soak-interrupts", 40, "python -m tests.studies.soak.interrupts"),
    part("soak-signals", 60, "python -m tests.studies.soak.signals --count 200"),
    part("serving-kills", 30, "python -m tests.serving kills --rounds 10"),
    part("serving-load", 40, "python -m tests.serving load --requests 600"),
    part("serving-abuse", 20, "python -m tests.serving abuse --seconds 300"),
    part("serving-schemas", 30, "python -m tests.serving schemas --schemas 40"),
    part(
        "bulk",
        50,
        *(f"python -m tests.studies.bulk {proof} --tiny" for proof in ("hand", "actors", "driver")),
        *(f"python -m tests.studies.bulk within --signal {name}" for name in ("KILL", "INT")),
    ),
    part("fuzz", 60, *(f"python -m tests.studies.fuzz {target} --seconds {FUZZ_SECONDS}" for target in FUZZED)),
    part("fuzz-files", 60, "python -m tests.studies.fuzz files --count 20000"),
    part("fuzz-leaves", 60, "python -m tests.studies.fuzz leaves"),
    part("fuzz-executorch", 30, "python -m tests.studies.fuzz.against_executorch"),
    part("mutants", 90, "python -m tests.studies.mutants"),
    *(part(f"oldest-{extra}", minutes, f"bash .ci/versions oldest {extra}") for extra, minutes in EXTRAS.items()),
    *(part(f"newest-{extra}", minutes, f"bash .ci/versions newest {extra}") for extra, minutes in EXTRAS.items()),
    part("executorch-releases", 90, "python -m tests.studies.versions --discard"),
    part("newest-executorch", 60, "bash .ci/versions unbounded export"),
    part("docs", 15, "bash .ci/docs"),
    part("release", 15, "bash .ci/release build/nightly-release"),
)

# Programs under tests/ that no part runs, and why.
LEFT_OUT = {
    "tests.studies.batching": "times a real model; tests/contract/test_batching.py compares the tokens of a tiny one",
    "tests.studies.in_page": "needs a real language model in Chromium; tests/web runs a tiny one",
    "tests.studies.nightly": "runs the parts",
    "tests.studies.questions": "asks a real language model questions with known answers",
    "tests.studies.schemas": "times a real language model; the part serving-schemas checks the answers of a tiny one",
    "tests.studies.soak.forks": "needs the sizes of a real language model",
    "tests.studies.speculation": "times a real model; tests/contract/test_steering.py compares tokens of a tiny one",
}
