"""Several kernels for one computation: the name of each, its requirements and the configuration of its dispatch.

    TILE = Variant("tile", ANYWHERE, 8)
    BROADCAST = Variant("broadcast", Requirements(subgroup=4), 16)

    rows = cx.variant("product", shape, cpu=(BROADCAST, TILE), gpu=(TILE,)).config

Every variant is correct on a device that meets its requirements. The choice between them affects speed and the last
bits: a variant declares the order in which it adds up a row. The rows of a language model may lie beside any others, so
these choose only among variants of one order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from ..wgsl import Caps

KernelConfig = TypeVar("KernelConfig", covariant=True)


class TuningKey(NamedTuple):
    """A computation that several kernels can do: `webpte tune` measures which is the fastest."""

    family: str
    shape: tuple[object, ...]
    names: tuple[str, ...]  # of the variants, the default first

    @property
    def key(self) -> str:
        """Return the string under which a choice is stored between runs."""
        return f"{self.family} {' '.join(map(str, self.shape))}"


@dataclass(frozen=True, slots=True)
class Requirements:
    """The capabilities of a device and the properties of a problem that a variant requires to be correct."""

    subgroup: int = 0  # minimum invocations of every subgroup
    workgroup: int = 0  # minimum invocations that a workgroup can have
    work: Callable[[Any], bool] | None = None  # predicate of the value that the lowering passes as `work`
    half_products: bool = False  # products may be computed in f16
    feature: str = ""  # of the device, besides

    def met(self, caps: Caps, work: object = None) -> bool:
        """Return whether the device and the problem meet all requirements."""
        if caps.subgroup < self.subgroup or caps.workgroup(self.workgroup) < self.workgroup:
            return False
        if self.half_products and (caps.exact or "shader-f16" not in caps.features):
            return False
        if self.feature and self.feature not in caps.features:
            return False
        return self.work is None or self.work(work)


ANYWHERE = Requirements()


@dataclass(frozen=True, slots=True)
class Variant(Generic[KernelConfig]):
    """One of several kernels, or one way to divide the work among the invocations of a kernel."""

    name: str  # stored by `webpte tune`
    requirements: Requirements
    config: KernelConfig  # the sizes of its dispatch, or a function that computes them for a device and a shape
    # How a row is added up. All variants of an order give it the same bits, for any number of rows and any values of
    # the others. Empty: not declared, so its bits may depend on the rows beside it.
    order: str = ""


def usable(variants: Iterable[Variant[KernelConfig]], caps: Caps, work: object = None) -> list[Variant[KernelConfig]]:
    """Return the variants whose requirements are met, in order."""
    return [variant for variant in variants if variant.requirements.met(caps, work)]


def of_one_order(variants: Sequence[Variant[KernelConfig]]) -> list[Variant[KernelConfig]]:
    """Return the variants that add up a row like the first that declares how; all if none does."""
    order = next((variant.order for variant in variants if variant.order), "")
    return [variant for variant in variants if variant.order == order]


def choose(
    family: str, shape: tuple[object, ...], variants: Sequence[Variant[KernelConfig]], tuning: Mapping[str, str]
) -> tuple[TuningKey, Variant[KernelConfig]]:
    """Return the tuning key and the variant to run: the one that was measured the fastest, else the first."""
    by_name = {variant.name: variant for variant in reversed(variants)}  # of two with the same name, the first
    key = TuningKey(family, shape, tuple(dict.fromkeys(variant.name for variant in variants)))
    return key, by_name.get(tuning.get(key.key, ""), variants[0])
