"""What is counted of a device's work."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class Counters:
    """What was done on a device since it was opened. Tests and `bench` compare two snapshots."""

    buffers: int = 0
    bind_groups: int = 0
    pipelines: int = 0
    shader_modules: int = 0
    passes: int = 0
    dispatches: int = 0
    submits: int = 0
    uniform_bytes: int = 0
    constant_bytes: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    wait_seconds: float = 0.0  # waiting for results and copying them

    def snapshot(self) -> Counters:
        return Counters(**asdict(self))

    def since(self, earlier: Counters) -> Counters:
        before = asdict(earlier)
        return Counters(**{name: value - before[name] for name, value in asdict(self).items()})
