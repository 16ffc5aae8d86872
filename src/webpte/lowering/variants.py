"""Several kernels for one kind of work: what each is called, what it needs, and what its dispatch is built from.

    TILE = Variant("tile", ANYWHERE, 8)
    BROADCAST = Variant("broadcast", Needs(subgroup=4), 16)

    rows = cx.variant("product", shape, cpu=(BROADCAST, TILE), gpu=(TILE,)).form

All variants of a job are right on every device that has what they need; which one runs is a matter of speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from ..wgsl import Caps

Form = TypeVar("Form", covariant=True)


class Job(NamedTuple):
    """Work that several kernels can do."""

    family: str
    shape: tuple[object, ...]
    names: tuple[str, ...]  # of the variants, the default first

    @property
    def key(self) -> str:
        """How a choice is remembered between runs."""
        return f"{self.family} {' '.join(map(str, self.shape))}"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a device must offer, and what must be true of the work, for a variant to be right."""

    subgroup: int = 0  # invocations that every subgroup has at least
    workgroup: int = 0  # invocations that a workgroup can have
    work: Callable[[Any], bool] | None = None  # asked about what the lowering passes as `work`

    def met(self, caps: Caps, work: object = None) -> bool:
        """Whether the device offers all of it and the work is such."""
        if caps.subgroup < self.subgroup or caps.workgroup(self.workgroup) < self.workgroup:
            return False
        return self.work is None or self.work(work)


ANYWHERE = Needs()


@dataclass(frozen=True, slots=True)
class Variant(Generic[Form]):
    """One kernel of several, or one way to lay it over the work."""

    name: str  # what `webpte tune` remembers
    needs: Needs
    form: Form  # the numbers of its dispatch, or a rule that gives them for a device and a shape


def usable(variants: Iterable[Variant[Form]], caps: Caps, work: object = None) -> list[Variant[Form]]:
    """Those whose needs are met, in order."""
    return [variant for variant in variants if variant.needs.met(caps, work)]


def choose(
    family: str, shape: tuple[object, ...], variants: Sequence[Variant[Form]], tuning: Mapping[str, str]
) -> tuple[Job, Variant[Form]]:
    """The job, and which of the variants does it: what was measured, else the first."""
    named = {variant.name: variant for variant in reversed(variants)}  # of two with a name, the first
    job = Job(family, shape, tuple(dict.fromkeys(variant.name for variant in variants)))
    return job, named.get(tuning.get(job.key, ""), variants[0])
