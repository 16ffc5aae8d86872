"""What every pass needs: a graph that can be changed, and the roles of the ops that a pass looks for.

    PATTERN = {"product": ("aten.mm.default", "aten.bmm.default"), "sum": ("aten.add.Tensor",)}

A pass names its ops in such a table, once, and gets the role of a call from `roles(PATTERN)`. Everything else that a
pass knows of an op is in the op's registration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from ..graph import Call, Graph, Jump, Null, Origin, Step, TensorSpec, Value, ValueList
from ..graph.graph import flattened
from ..lowering import find, mutated_values

Pattern = Mapping[str, tuple[str, ...]]


def roles(pattern: Pattern) -> dict[str, str]:
    """Return the role of each op by its name."""
    return {name: role for role, names in pattern.items() for name in names}


def role_of(call: Call | None, by_name: Mapping[str, str]) -> str | None:
    """Return the role of a call. A kernel outside delegates has the role of its op."""
    if call is None or not call.kernel or call.name in by_name:
        return None if call is None else by_name.get(call.name)
    op = find(call)
    return None if op is None else next((by_name[name] for name in op.names if name in by_name), None)


class Rewriter:
    """A graph that can be changed. Steps keep their indices; a removed one becomes None."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: list[Value] = list(graph.values)
        self.steps: list[Step | None] = list(graph.steps)
        self.producers: dict[int, list[int]] = defaultdict(list)  # value -> indices of the steps that write it
        self.users: dict[int, list[int]] = defaultdict(list)  # value -> indices of the steps that read it
        for index, step in enumerate(graph.steps):
            if isinstance(step, Jump):
                self.users[step.condition].append(index)
                continue
            for value_id in graph.flatten(step.args):
                self.users[value_id].append(index)
            for value_id in step.outs:
                self.producers[value_id].append(index)
        self.mutated = {v for call in graph.calls for v in mutated_values(call, graph)}  # in place, by any call
        self._inputs = frozenset(graph.inputs)
        self.outputs = frozenset(graph.outputs)
        self._outside = self._inputs | self.outputs

    @property
    def is_straight_line(self) -> bool:
        """Return whether the method has no jumps. Passes skip methods that have some."""
        return not any(isinstance(step, Jump) for step in self.graph.steps)

    def call(self, index: int) -> Call | None:
        """Return the call at a step, or None."""
        step = self.steps[index]
        return step if isinstance(step, Call) else None

    def producer(self, value_id: int) -> tuple[int, Call] | None:
        """Return the one call that writes a value; None for inputs, constants, state and values with several writes."""
        producers = self.producers.get(value_id, [])
        spec = self.values[value_id]
        stored = isinstance(spec, TensorSpec) and spec.stored
        if len(producers) != 1 or stored or value_id in self._inputs or value_id in self.mutated:
            return None
        call = self.call(producers[0])
        return (producers[0], call) if call is not None else None

    def only_user(self, value_id: int) -> tuple[int, Call] | None:
        """Return the one call that reads a value; None if there are more, or the value is an input or output."""
        users = self.users.get(value_id, [])
        if len(users) != 1 or value_id in self._outside or len(self.producers.get(value_id, [])) != 1:
            return None
        call = self.call(users[0])
        return (users[0], call) if call is not None else None

    def arguments(self, call: Call) -> dict[str, int]:
        """Return the arguments of a call by the names of the op's parameters. The op must be registered."""
        op = find(call)
        assert op is not None, call.name
        return op.arguments(call)

    def source(self, call: Call) -> int | None:
        """Return the tensor that a call only reshapes; None if the call does more."""
        op = find(call)
        return (
            None if op is None or op.traits.view is None or len(call.outs) != 1 else op.arguments(call)[op.traits.view]
        )

    def is_immutable(self, value_id: int) -> bool:
        """Return whether a tensor is written at most once, so that its readers may be moved."""
        value = self.values[value_id]
        if not isinstance(value, TensorSpec) or value.mutable or value_id in self.mutated:
            return False
        return len(self.producers.get(value_id, [])) == (0 if value.stored or value_id in self._inputs else 1)

    def add(self, value: Value) -> int:
        """Add a value and return its id."""
        self.values.append(value)
        return len(self.values) - 1

    def make(self, name: str, outs: Iterable[int], origin: Origin, /, **arguments: int | Value | None) -> Call:
        """Return a call of a registered op. Arguments are ids or new values; the others are Null."""
        call = Call(name, (), tuple(outs), origin)
        op = find(call)
        assert op is not None and arguments.keys() <= dict(op.parameters).keys(), name
        values = (arguments.get(parameter) for parameter, _ in op.parameters)
        ids = (v if isinstance(v, int) else self.add(Null() if v is None else v) for v in values)
        return replace(call, args=tuple(ids))

    def replace(self, indices: Iterable[int], call: Call, at: int) -> None:
        """Remove the steps `indices`, and put `call` at step `at`."""
        for index in indices:
            self.drop(index)
        self.steps[at] = call
        for value_id in self.flatten(call.args):
            self.users[value_id].append(at)
        for value_id in call.outs:
            self.producers[value_id].append(at)

    def drop(self, index: int) -> Call:
        """Remove the call at `index`, and return it."""
        call = self.call(index)
        assert call is not None
        for value_id in self.flatten(call.args):
            self.users[value_id].remove(index)
        for value_id in call.outs:
            self.producers[value_id].remove(index)
        self.steps[index] = None
        return call

    def forward(self, index: int, *sources: int) -> None:
        """Remove the call at `index`. Readers of its outputs read `sources` instead."""
        for out, source in zip(self.drop(index).outs, sources, strict=True):
            for user in self.users.pop(out, []):
                reader = self.call(user)
                assert reader is not None
                self.steps[user] = replace(reader, args=tuple(self._substituted(a, out, source) for a in reader.args))
                self.users[source].append(user)

    def drop_unread(self, by_name: Mapping[str, str]) -> None:
        """Remove views and calls with a role, if they change nothing and no call reads their results."""
        for index in reversed(range(len(self.steps))):
            call = self.call(index)
            if call is None or (role_of(call, by_name) is None and self.source(call) is None):
                continue
            op = find(call)
            read = any(self.users.get(out) or out in self.outputs or self.producer(out) is None for out in call.outs)
            if op is not None and not op.traits.mutates and not read:
                self.drop(index)

    def _substituted(self, value_id: int, old: int, new: int) -> int:
        """Return `new` for `old`, else the value itself. Members of a list are replaced in the list."""
        value = self.values[value_id]
        if isinstance(value, ValueList):
            self.values[value_id] = ValueList(tuple(new if member == old else member for member in value.ids))
        return new if value_id == old else value_id

    def flatten(self, ids: Iterable[int]) -> list[int]:
        return flattened(ids, self.values)

    def result(self) -> Graph:
        """Return the rewritten graph."""
        steps = tuple(step for step in self.steps if step is not None)
        return replace(self.graph, values=tuple(self.values), steps=steps)
