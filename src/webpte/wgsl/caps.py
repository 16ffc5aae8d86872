"""The limits and features of a device that a plan may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..errors import ShapeError

# The minimum of every WebGPU implementation, which browsers grant by default.
BROWSER_LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "max-storage-buffers-per-shader-stage": 8,
        "max-storage-buffer-binding-size": 128 << 20,
        "max-buffer-size": 256 << 20,
        "max-compute-invocations-per-workgroup": 256,
        "max-compute-workgroup-size-x": 256,
        "max-compute-workgroup-storage-size": 16 << 10,
        "max-compute-workgroups-per-dimension": 65535,
    }
)


MANY_REGISTERS = 128
FEW_REGISTERS = 64
# Shapes (M, N, K) of the products of f16 with sums in f32 that matrix units compute. The second is AMD's and NVIDIA's.
APPLE_MATRIX, INTEL_MATRIX = (8, 8, 8), (8, 16, 16)
MATRIX_SHAPES = (APPLE_MATRIX, (16, 16, 16), INTEL_MATRIX)
AMD, APPLE, ARM, INTEL = 0x1002, 0x106B, 0x13B5, 0x8086  # vendors of PCI
# WebGPU does not report registers: these are by vendor. An invocation on Arm's GPUs has 64. Intel's compiler has
# about 64 for a full subgroup, and compiles a kernel that needs more for a narrower one.
VENDOR_REGISTERS: Mapping[int, int] = MappingProxyType({ARM: FEW_REGISTERS, INTEL: 80})


@dataclass(frozen=True)
class Caps:
    """Limits by their WebGPU names (kebab case) and the set of optional features."""

    limits: Mapping[str, int] = field(default_factory=lambda: BROWSER_LIMITS)
    features: frozenset[str] = frozenset()
    adapter: str = "no adapter"
    kind: str = "gpu"  # or "cpu": a software device, which likes other kernels
    subgroup: int = 0  # invocations that every subgroup has at least; 0 where shaders cannot use subgroups
    registers: int = MANY_REGISTERS  # 32-bit values of an invocation that take neither memory nor narrower subgroups
    vendor: int = 0  # of PCI, for choices between kernels; 0 if it is not known
    exact: bool = False  # products of matrices in f32 only, also where the device has f16

    def limit(self, name: str) -> int:
        return self.limits.get(name, BROWSER_LIMITS[name])

    def within(self, limits: Mapping[str, int]) -> Caps:
        """Return the capabilities reduced to `limits`."""
        return replace(self, limits={**self.limits, **{n: min(v, self.limit(n)) for n, v in limits.items()}})

    @property
    def workgroups_per_dimension(self) -> int:
        return self.limit("max-compute-workgroups-per-dimension")

    def workgroup(self, invocations: int) -> int:
        """Return the number of invocations per workgroup, clamped to the limits of the device."""
        max_invocations = min(
            self.limit("max-compute-invocations-per-workgroup"), self.limit("max-compute-workgroup-size-x")
        )
        return min(invocations, max_invocations)


def matrix_feature(m: int, n: int, k: int) -> str:
    """Return the name in `Caps.features` of matrix units that compute a shape."""
    return f"subgroup-matrix-{m}x{n}x{k}"


Grid = tuple[int, int, int]


def grid_for(threads: int, workgroup: int, per_dimension: int) -> Grid:
    """Return the smallest near-square 2-D grid that covers `threads` invocations.

    Kernels recover the flat index with `thread_index`, which relies on the x extent being full rows.
    """
    groups = -(-threads // workgroup)
    if groups <= per_dimension:
        return (groups, 1, 1)
    rows = -(-groups // per_dimension)
    if rows > per_dimension:
        raise ShapeError(
            f"{threads} invocations need {groups} workgroups of {workgroup}; "
            f"the device allows {per_dimension} x {per_dimension}. Use smaller inputs.",
            code="grid_too_large",
        )
    return (-(-groups // rows), rows, 1)
