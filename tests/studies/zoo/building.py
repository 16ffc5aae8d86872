"""What the functions in `programs/` are written with.  Part of every program's cache key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

Inputs = tuple[Any, ...]


@dataclass
class Case:
    """A module, and calls of it.  State carries over from one call to the next."""

    module: nn.Module
    steps: list[Inputs]  # the bound first; the second is what is traced with; then smaller ones
    dims: tuple[Any, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of VulkanPartitioner
    keep_out: dict[str, Any] = field(default_factory=dict)  # its block lists
    skip_dim_order: bool = False
    webgpu: bool = False  # WebGPUPartitioner instead of VulkanPartitioner
    constants: dict[str, Any] = field(default_factory=dict)  # methods that return a constant


def program(function: Callable | None = None, *, tolerance: float = 2e-5) -> Callable:
    """Marks a program: a function that returns a Case, or one for each method.  index.py reads it without running it.

    `tolerance` bounds the largest error of a floating output, relative to the output's largest value.
    """
    return function if function is not None else lambda decorated: decorated


def case(module: nn.Module | Callable, steps: list[Inputs], *dims: Any, as_is: bool = False, **more: Any) -> Case:
    """`dims` are the dynamic ones, by input.  A function becomes a module, and a module is put in eval mode."""
    built = module if isinstance(module, nn.Module) else Of.arity(module)
    return Case(built if as_is else built.eval(), steps, dims or None, **more)


class Of(nn.Module):
    """A function as a module.  The exporter takes `*args` for one argument, hence a class per number of inputs."""

    def __init__(self, function: Callable) -> None:
        super().__init__()
        self.function = function

    @staticmethod
    def arity(function: Callable) -> nn.Module:
        return (Of, OfTwo, OfThree)[len(inspect.signature(function).parameters) - 1](function)

    def forward(self, x):
        return self.function(x)


class OfTwo(Of):
    def forward(self, x, y):  # type: ignore[override]
        return self.function(x, y)


class OfThree(Of):
    def forward(self, x, y, z):  # type: ignore[override]
        return self.function(x, y, z)


class Module(nn.Module):
    """A module made of its parts: `Module(forward, linear=nn.Linear(2, 3))` calls `forward(self, x)`."""

    def __init__(self, function: Callable, **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


class ModuleOfTwo(Module):
    def forward(self, x, y):  # type: ignore[override]
        return self.function(self, x, y)


class ModuleOfThree(Module):
    def forward(self, x, y, z):  # type: ignore[override]
        return self.function(self, x, y, z)


def module(function: Callable, **parts: Any) -> nn.Module:
    return (Module, ModuleOfTwo, ModuleOfThree)[len(inspect.signature(function).parameters) - 2](function, **parts)
