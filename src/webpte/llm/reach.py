"""How far back a state can go on from.

A KV cache of the whole context keeps every position: a sequence can go on behind any of its tokens. A ring keeps the
latest positions only, and a recurrent state nothing but the last one. What cannot be gone on from is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..errors import FormatError
from ..fusion import roles
from ..graph import ITEM, ROTARY_ATTENTION, Call, Graph, SymInt
from ..plan import Plan
from ..runtime import Program
from .metadata import metadata, numbers

METHOD = "get_state_reach"  # of a program, which returns the two numbers
# What reads and writes caches whose row p is position p, where the position is the one that is given. Whatever else
# keeps something may keep it otherwise.
PATTERN = {
    "attention": ("sdpa_with_kv_cache.default", "custom_sdpa.default", "update_cache.default", ROTARY_ATTENTION),
    "position": ("et_vk.select_as_symint.default", ITEM, "aten.select_copy.int", "aten.view_copy.default"),
}
ROLES = roles(PATTERN)


class Reach(NamedTuple):
    """What a state of tokens that were computed one behind the other still holds."""

    needed: int  # positions right before a token that computing it reads
    held: int  # latest positions that there are

    def forgotten(self, end: int) -> int:
        """The first position that is still there once those before `end` were written, one by one."""
        return max(0, end - self.held)

    def reaches(self, count: int, kept_from: int) -> bool:
        """Whether a token can be computed behind the first `count`, where positions from `kept_from` on are held."""
        return kept_from <= max(0, count - self.needed)


NOTHING_BACK = Reach(0, 0)  # a state that is that of its last token


def reach_of(program: Program, plan: Plan) -> Reach | None:
    """Of a program's state: as it says itself, None for all positions; a state that is not understood has none."""
    if METHOD in program.method_names:
        told = numbers(metadata(program, METHOD, ()))
        if len(told) != 2 or min(told) < 0:
            raise FormatError(f"{METHOD} gives {list(told)}; positions that are needed and held, [n, m], are wanted")
        return Reach(*told)
    return None if _is_by_position(plan.graph, plan.flow.state) else NOTHING_BACK


def _is_by_position(graph: Graph, state: frozenset[int]) -> bool:
    users = [call for call in graph.calls if not state.isdisjoint([*graph.flatten(call.args), *call.outs])]
    makers = {out: call for call in graph.calls for out in call.outs}
    return all(ROLES.get(call.name) == "attention" for call in users) and all(
        _is_given(graph, makers, value_id)
        for call in users
        for value_id in call.args
        if isinstance(graph.values[value_id], SymInt)
    )


def _is_given(graph: Graph, makers: Mapping[int, Call], value_id: int) -> bool:
    """Whether a number is the position itself, and not one that was computed from it."""
    while (call := makers.get(value_id)) is not None and ROLES.get(call.name) == "position":
        value_id = call.args[0]
    return value_id in graph.inputs
