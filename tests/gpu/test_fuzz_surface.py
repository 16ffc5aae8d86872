"""Every public function and method, called with wrong types and values: a `webpte.Error`, soon, and all still works.

What is called is found by signatures, so that a new function is covered without being listed here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.counting import counting_pte
from tests.support.harness.fake_runner import FakeLLM
from tests.support.harness.named import X, Y, named_pte
from tests.support.harness.work import counted_calls
from webpte.runtime import executorch

MAX_CALLS = 2_000_000  # of functions, by a refusal: about a second of Python
TRIES = 2  # the first call may import packages


class Stranger:
    """A value of a type that no function accepts."""


# Wrong for most parameters. Where one is right the call may succeed: what counts is that nothing else is raised.
VALUES: list[Any] = [
    Stranger(), None, True, -1, 10**30, 0.5, float("nan"), "nonsense", "", "a\0b", b"\xff", [], [Stranger()],
    ["nonsense"],
    {"nonsense": Stranger()}, (-1,), np.zeros((0, 3)), np.array(["x"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    with webpte.load(counting_pte(folder / "p.pte")) as program:
        return webpte.bundle(program, folder / "site")


@pytest.fixture
def things(tmp_path, site) -> Iterator[dict[str, Any]]:
    """Yield one of each class, and right values for parameters by their names."""
    path = named_pte(tmp_path / "p.pte")
    with webpte.load(path) as program:
        method = program.method()
        method.save(tmp_path / "plan", [(X.shape, Y.shape)])
        method.snapshot(tmp_path / "state")
        face = webpte.Runtime.get().load_program(path)
        with webpte.open_plan(tmp_path / "plan", [path]) as plan, face._program, webpte.load(site) as bundled:
            loaded = face.load_method("forward")
            yield {
                "Bundle": bundled,
                "Program": program, "Method": method, "SavedPlan": plan, "Runtime": webpte.Runtime.get(),
                "RuntimeProgram": face, "RuntimeMethod": loaded, "MethodMeta": loaded.metadata,
                "BackendRegistry": webpte.Runtime.get().backend_registry,
                "TensorInfo": loaded.metadata.input_tensor_meta(0),
                "source": path, "data": path, "folder": tmp_path / "plan", "path": tmp_path / "state",
                "name": "forward",
                "program": program, "args": [X, Y], "steps": [[X, Y]], "feed": {}, "outputs": [0], "inputs": [X, Y],
                "llm": FakeLLM(), "method_name": "forward", "index": 0, "backend_name": "VulkanBackend", "self": None,
                "etdump_path": "a", "debug_buffer_path": "b",
            }  # fmt: skip


def public() -> list[tuple[str, str]]:
    """Functions of `webpte`, and methods of its classes, by class and name."""
    results = [("", name) for name in webpte.__all__ if isinstance(getattr(webpte, name), FunctionType)]
    faces = (executorch.RuntimeProgram, executorch.RuntimeMethod, executorch.MethodMeta, executorch.BackendRegistry)
    for cls in (webpte.Program, webpte.Bundle, webpte.Method, webpte.SavedPlan, webpte.Runtime, *faces):
        names = [n for n, member in inspect.getmembers(cls) if inspect.isroutine(member)]
        results += [(cls.__name__, n) for n in names if not n.startswith("_")]
    return [*results, ("Method", "__call__")]


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def arguments(
    function: Callable[..., Any], wrong: str, value: Any, right: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return those of a call with one wrong value; what is required beside it is right, if it is known."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in parameters(function):
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += [value] if parameter.name == wrong else right.get(parameter.name, [])
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= {"nonsense": value} if parameter.name == wrong else {}
        elif parameter.name == wrong:
            named[parameter.name] = value
        elif parameter.default is parameter.empty:
            named[parameter.name] = right.get(parameter.name, value)
    if positional and named and parameters(function)[0].kind is not inspect.Parameter.VAR_POSITIONAL:
        return [*named.values(), *positional], {}
    return positional, named


def refusal(function: Callable[..., Any], wrong: str, value: Any, right: dict[str, Any]) -> str | None:
    """The message of a call that was refused; None if it was not. Any other exception passes through."""
    for _ in range(TRIES):
        positional, named = arguments(function, wrong, value, right)
        with counted_calls() as work:
            try:
                function(*positional, **named)
                message = None
            except webpte.Error as error:
                message = str(error)
        if work.calls <= MAX_CALLS or message is None:
            return message
    raise AssertionError(f"it took {work.calls:,} calls to refuse {wrong}={value!r}: {message}")


@pytest.mark.parametrize(("owner", "name"), public(), ids=lambda part: str(part))
def test_wrong_values_are_refused_by_name(owner, name, things, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    function = getattr(things[owner], name) if owner else getattr(webpte, name)
    problems = []
    for parameter in parameters(function):
        for value in VALUES:
            try:
                message = refusal(function, parameter.name, value, things)
            except Exception as error:
                problems.append(f"{parameter.name}={value!r:.60}: {type(error).__name__}: {error}")
                continue
            if not isinstance(value, Stranger):
                continue
            known = (
                parameter.name if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) else "input"
            )
            if message is not None and "is a bundle" in message:
                continue  # it does not do that at all
            if message is None or (known not in message and "nonsense" not in message):
                problems.append(f"{parameter.name}: a stranger is not refused by that name: {message}")
    assert not problems, "\n".join(problems)
    with webpte.load(tmp_path / "p.pte") as program:
        assert np.array_equal(program.method()(X, Y)[0], X + Y)
    if name not in ("close", "run", "__call__", "execute", "run_steps", "start_steps", "follow_steps", "restore"):
        assert np.array_equal(things["Method"](X, Y)[0], X + Y), "the method has changed"
