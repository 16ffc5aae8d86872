"""A bundle against its program, its variants against each other, or programs against the answers they come with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...device import adapter_caps
from ...errors import FormatError, InputError
from ...llm import LLM
from ...progress import OnProgress, Progress, ignore
from ...runtime import Bundle, Method, load, load_source
from ...runtime.saved_plan import lacking
from ..inputs import InputValue, at_shapes, make_inputs
from .capture import PathLike
from .measure import Tolerance, difference
from .reports import Comparison, EndReport

PROMPTS = (1, 7, 40)  # tokens
ANSWER = 16  # tokens
ENDS = Tolerance(1e-3)  # of whole methods, whose errors add up


def compare_bundle(
    path: PathLike,
    data: Iterable[PathLike] = (),
    *,
    method: str = "forward",
    inputs: Sequence[Sequence[str]] = ((),),
    seed: int = 0,
    against: PathLike | None = None,
    tolerance: Tolerance | None = None,
    progress: OnProgress = ignore,
) -> dict[str, Any]:
    """Compare what a bundle gives, played natively, with `against`, its program; without one, each of its variants that
    this device can run with the one that it takes. Unless `inputs` are given, a method is called at all its shapes.

    Of a language model, the logits behind prompts are compared, and the tokens of answers. Programs of a bundle of kind
    check are compared with their answers.
    """
    with load_source(path) as bundle:
        if not isinstance(bundle, Bundle):
            raise InputError(f"{path} is not a bundle")
        kind = bundle.manifest.kind
        ends = tolerance if tolerance is not None and tolerance != Tolerance() else ENDS
        result = Comparison(method, str(against) if against is not None else "its variants", ends.rtol, ends.atol)
        calls: list[list[InputValue]] = []
        if kind == "check":
            result.against = "the answers of its programs"
            result.ends += _checks(bundle, progress)
        elif kind == "language":
            result.ends += _texts(path, against, data, seed, ends, progress)
        else:
            calls = _calls(bundle, method, inputs, seed)
            arguments = [[given.value for given in call] for call in calls]
            result.ends += _outputs(bundle, method, arguments, against, data, ends)
        sources = [[given.source for given in call] for call in calls]
        return {"file": str(path), "adapter": adapter_caps().adapter, "inputs": sources, **result.data(), "repro": None}


def _outputs(
    bundle: Bundle,
    name: str,
    calls: Sequence[Sequence[Any]],
    against: PathLike | None,
    data: Iterable[PathLike],
    tolerance: Tolerance,
) -> Iterator[EndReport]:
    if against is None:
        yield from _variants(bundle, name, calls, tolerance)
    else:
        with load(against, data) as program:
            yield from _ends(bundle.method(name), program.method(name), calls, str(against), tolerance)


def _calls(bundle: Bundle, method: str, specs: Sequence[Sequence[str]], seed: int) -> list[list[InputValue]]:
    infos = bundle.method(method).inputs
    shapes = bundle.shapes(method)
    if not any(specs) and shapes:
        return [make_inputs(at_shapes(infos, call), (), seed) for call in shapes]
    return [make_inputs(infos, call, seed) for call in specs]


def _variants(bundle: Bundle, name: str, calls: Sequence[Sequence[Any]], tolerance: Tolerance) -> Iterator[EndReport]:
    """Of one kind of device on another, too: all give the same numbers, but for rounding."""
    chosen, caps = bundle.method(name), adapter_caps()
    found = 0
    for variant in bundle.manifest.methods[name]:
        method = None
        if not lacking(variant.features, variant.subgroup, variant.limits, caps):
            method = bundle.method(name, variant=variant)
        if method is not None and method is not chosen:
            found += 1
            yield from _ends(method, chosen, calls, f"{variant}, against the one that runs here", tolerance)
    if not found:
        raise InputError(f"{caps.adapter} runs one variant of {name}; name what to compare with: --against model.pte")


def _ends(
    ours: Method, theirs: Method, calls: Sequence[Sequence[Any]], against: str, tolerance: Tolerance
) -> Iterator[EndReport]:
    for method in (ours, theirs):
        method.reset()
    for number, call in enumerate(calls):
        for position, (got, want) in enumerate(zip(ours.run(call), theirs.run(call), strict=True)):
            yield EndReport(number, position, against, difference(np.asarray(got), np.asarray(want), tolerance))


def _texts(
    path: PathLike,
    against: PathLike | None,
    data: Iterable[PathLike],
    seed: int,
    tolerance: Tolerance,
    progress: OnProgress,
) -> Iterator[EndReport]:
    """Logits as output 0, tokens as output 1. These are drawn by the same seeds."""
    if against is None:
        raise InputError(f"{path} is a language model: name the program to compare with, --against model.pte")
    with LLM.load(path, progress=progress) as ours, LLM.load(against, data=data, progress=progress) as theirs:
        random = np.random.default_rng(seed)
        for number, count in enumerate(PROMPTS):
            prompt = random.integers(0, ours.vocabulary, min(count, ours.capacity - ANSWER)).tolist()
            logits = [llm.sequence().logits(prompt) for llm in (ours, theirs)]
            yield EndReport(number, 0, str(against), difference(logits[0], logits[1], tolerance))
            drawn: dict[str, Any] = {"max_new_tokens": ANSWER, "temperature": float(number), "seed": seed}
            answers = [llm.generate(tokens=prompt, **drawn) for llm in (ours, theirs)]
            tokens = [np.array([piece.token for piece in answer], np.int64) for answer in answers]
            yield EndReport(number, 1, str(against), difference(tokens[0], tokens[1], tolerance))


def _checks(bundle: Bundle, progress: OnProgress) -> Iterator[EndReport]:
    checks = bundle.manifest.data.get("check")
    if not isinstance(checks, list) or not checks:
        raise FormatError(f"{bundle.manifest.folder} has no programs with answers")
    for number, check in enumerate(checks):
        progress(Progress("compare", number, len(checks), "programs"))
        try:
            name, tolerance = str(check["method"]), Tolerance(float(check["rtol"]), float(check["atol"]))
            given, wanted = ([_array(bundle, entry) for entry in check[part]] for part in ("inputs", "outputs"))
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{bundle.manifest.folder}: {ascii(check)[:100]} is no program with answers") from error
        method = bundle.method(name)
        for position, (got, want) in enumerate(zip(method.run(given), wanted, strict=False)):
            yield EndReport(0, position, name, difference(np.asarray(got), want, tolerance))
        bundle.discard(method)
    progress(Progress("compare", len(checks), len(checks), "programs"))


def _array(bundle: Bundle, entry: Any) -> np.ndarray[Any, Any]:
    return bundle.array(entry["file"], entry["offset"], entry["bytes"], entry["dtype"], entry["dims"])
