"""From a template and its parameters to WGSL text, a uniform block and a pipeline key."""

from .caps import (
    AMD,
    APPLE,
    ARM,
    BROWSER_LIMITS,
    FEW_REGISTERS,
    INTEL,
    MANY_REGISTERS,
    VENDOR_REGISTERS,
    Caps,
    Grid,
    grid_for,
)
from .flags import check_flags
from .kernel import Kernel, home_of, read_cached, render, uses_f16, uses_subgroups, write_cached
from .uniforms import Live, LiveInt, Uniforms, dims4, dims8, f32, i32, u32, words

__all__ = [
    "AMD",
    "APPLE",
    "ARM",
    "BROWSER_LIMITS",
    "FEW_REGISTERS",
    "INTEL",
    "MANY_REGISTERS",
    "VENDOR_REGISTERS",
    "Caps",
    "Grid",
    "Kernel",
    "Live",
    "LiveInt",
    "Uniforms",
    "check_flags",
    "dims4",
    "dims8",
    "f32",
    "grid_for",
    "home_of",
    "i32",
    "read_cached",
    "render",
    "u32",
    "uses_f16",
    "uses_subgroups",
    "words",
    "write_cached",
]
