"""Calls with integers beyond 32 bits.

A plan assumes that inputs, and results of kernels without a rule, fit the 32 bits of the device. The first call in
which one does not is found before the device reads it. Its method is planned once more with that value beyond 32 bits,
so that the calls outside delegates that read it run on the CPU. Such calls run with that plan, all others with the
first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..container.flat import quoted_name
from ..errors import Error
from ..graph import Graph, keep_out
from ..plan import Planner
from .arguments import OutputTarget
from .converter import BeyondDeviceError
from .executor import Executor
from .kernels import CpuKernels
from .state import MethodState

logger = logging.getLogger(__name__)
MAX_LISTED_CALLS = 3


class _Widened(NamedTuple):
    """The executor of the second plan, and a state that is copied before and after each of its calls."""

    executor: Executor
    state: MethodState


class WideCalls:
    """Runs the calls of a method and its forks, which hold the method's lock."""

    def __init__(self, executor: Executor, kernels: CpuKernels) -> None:
        self._executor = executor
        self._kernels = kernels
        self._beyond: frozenset[int] = frozenset()  # the values that have been beyond 32 bits
        self._widened: _Widened | None = None

    def run(
        self,
        state: MethodState,
        args: Sequence[Any],
        output_ids: Sequence[int],
        targets: Sequence[OutputTarget] = (),
        *,
        strict: bool = False,
    ) -> tuple[Any, ...]:
        """Run a call as Executor.run does. With `strict`, values beyond 32 bits are refused."""
        try:
            return self._executor.run(state, args, output_ids, targets)
        except BeyondDeviceError as error:
            beyond = error
        if hint := self._obstacle(beyond, strict):
            raise self._executor.converter.refusal(beyond, hint)
        while True:  # each turn adds a value
            if beyond.value_id not in self._beyond:
                self._beyond |= {beyond.value_id}
                self.close()
            try:
                return self._run_widened(state, args, output_ids, targets)
            except BeyondDeviceError as error:
                if error.value_id in self._beyond:
                    raise self._refusal(error) from None
                beyond = error

    def close(self) -> None:
        """Release the second plan. The next call that needs it makes it again."""
        widened, self._widened = self._widened, None
        if widened is not None:
            if widened.state.session is not None:
                widened.state.session.close()
            widened.executor.close()

    def _obstacle(self, beyond: BeyondDeviceError, strict: bool) -> str:
        """Return why a call cannot run with a second plan, and a fix; an empty string if it can."""
        if strict:
            return "Call it without strict=True: CPU kernels compute with 64 bits."
        if not isinstance(self._executor.scheduler, Planner):
            return "A saved plan cannot be planned again: load the program, whose CPU kernels compute with 64 bits."
        if beyond.state_written:
            return "The call has changed state on the device already, so it cannot run again on the CPU: call reset()."
        return ""

    def _run_widened(
        self, state: MethodState, args: Sequence[Any], output_ids: Sequence[int], targets: Sequence[OutputTarget]
    ) -> tuple[Any, ...]:
        if self._widened is None:
            self._widened = self._widen()
        executor, own = self._widened
        kept = [(value_id, value_id) for value_id in sorted(self._executor.plan.flow.state & executor.plan.flow.state)]
        own.take(state, kept)
        results = executor.run(own, args, output_ids, targets)
        state.take(own, kept)
        return results

    def _widen(self) -> _Widened:
        planner = self._executor.scheduler
        assert isinstance(planner, Planner)
        widened = planner.widened(self._beyond)
        assert widened.plan.graph.outputs == planner.plan.graph.outputs
        logger.info(
            "%s has values beyond 32 bits: %d of %d calls run on the CPU",
            quoted_name(widened.plan.graph.name),
            sum(widened.plan.cpu_calls.values()),
            len(widened.plan.graph.steps),
        )
        executor = Executor(widened, self._kernels, lazy=True)
        device = self._executor.device
        if not widened.plan.flow.segments or device is None:
            return _Widened(executor, MethodState(widened.plan, None))
        return _Widened(executor, MethodState(widened.plan, executor.open(*device)))

    def _refusal(self, beyond: BeyondDeviceError) -> Error:
        """Return the error for a value that calls read which only the device can run."""
        planner = self._executor.scheduler
        assert isinstance(planner, Planner)
        readers = _readers(planner.source, beyond.value_id, self._kernels)
        calls = [f"{name} ({origin})" for name, origin, _ in readers]
        reason = f" for {', '.join(calls[:MAX_LISTED_CALLS])}, which the GPU runs" if calls else ""
        inside = sorted({name for name, _, delegated in readers if delegated})
        hint = keep_out(inside) if inside else "Pass integers that 32 bits hold."
        return self._executor.converter.refusal(beyond, hint, reason)


def _readers(graph: Graph, value_id: int, kernels: CpuKernels) -> list[tuple[str, str, bool]]:
    """Return the calls that read a value and cannot run on the CPU: name, origin, and whether in a delegate."""
    reading = [call for call in graph.calls if value_id in graph.flatten(call.args)]
    return [(c.name, str(c.origin), not c.kernel) for c in reading if not c.kernel or c.name not in kernels]
