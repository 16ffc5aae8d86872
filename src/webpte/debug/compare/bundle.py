"""Compare a bundle with its program, its variants with each other, or programs with their expected outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...device import adapter_caps
from ...errors import FormatError, InputError
from ...llm import LLM
from ...plan.value_json import dtype_from_json
from ...progress import OnProgress, Progress, ignore
from ...runtime import Bundle, Method, load, load_source
from ...runtime.saved_plan import lacking
from ...typing import PathLike
from ..inputs import InputValue, at_shapes, make_inputs
from .reports import CompareReport, Comparison, EndReport, Tolerance, difference

PROMPT_TOKENS = (1, 7, 40)  # of each prompt
ANSWER_TOKENS = 16
END_TO_END = Tolerance(1e-3)  # of whole methods, whose errors add up


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
) -> CompareReport:
    """Compare the outputs of a bundle, run natively, with `against`, its program.

    Without a program, compare each variant that this device can run with the one that it chooses. Without `inputs`, a
    method is called at all its shapes.

    For a language model, the logits after prompts and the generated tokens are compared. Programs of a bundle of kind
    "check" are compared with their expected outputs.
    """
    with load_source(path) as bundle:
        if not isinstance(bundle, Bundle):
            raise InputError(f"{path} is not a bundle", code="not_a_bundle")
        kind = bundle.manifest.kind
        ends = tolerance if tolerance is not None and tolerance != Tolerance() else END_TO_END
        result = Comparison(method, str(against) if against is not None else "its variants", ends.rtol, ends.atol)
        calls: list[list[InputValue]] = []
        if kind == "check":
            result.against = "its expected outputs"
            result.ends += _checks(bundle, progress)
        elif kind == "language":
            result.ends += _texts(path, against, data, seed, ends, progress)
        else:
            calls = _calls(bundle, method, inputs, seed)
            arguments = [[item.value for item in call] for call in calls]
            result.ends += _outputs(bundle, method, arguments, against, data, ends)
        sources = [[item.source for item in call] for call in calls]
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
    """Compare variants, also those for other devices: their numbers differ only by rounding."""
    chosen, caps = bundle.method(name), adapter_caps()
    compared = 0
    for variant in bundle.manifest.methods[name]:
        method = None
        if not lacking(variant.features, variant.min_subgroup_size, variant.limits, caps):
            method = bundle.method(name, variant=variant)
        if method is not None and method is not chosen:
            compared += 1
            yield from _ends(method, chosen, calls, f"{variant}, against the one that runs here", tolerance)
    if not compared:
        raise InputError(
            f"{caps.adapter} can run only one variant of {name}",
            hint="Name a program to compare with: --against model.pte",
            code="no_reference",
        )


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
    """Compare logits as output 0 and tokens, sampled with the same seeds, as output 1."""
    if against is None:
        raise InputError(
            f"{path} is a language model",
            hint="Name the program to compare with: --against model.pte",
            code="no_reference",
        )
    with LLM.load(path, progress=progress) as ours, LLM.load(against, data=data, progress=progress) as theirs:
        random = np.random.default_rng(seed)
        for number, count in enumerate(PROMPT_TOKENS):
            prompt = random.integers(0, ours.vocabulary, min(count, ours.capacity - ANSWER_TOKENS)).tolist()
            logits = [llm.sequence().logits(prompt) for llm in (ours, theirs)]
            yield EndReport(number, 0, str(against), difference(logits[0], logits[1], tolerance))
            options: dict[str, Any] = {"max_new_tokens": ANSWER_TOKENS, "temperature": float(number), "seed": seed}
            answers = [llm.generate(tokens=prompt, **options) for llm in (ours, theirs)]
            tokens = [np.array([piece.token for piece in answer], np.int64) for answer in answers]
            yield EndReport(number, 1, str(against), difference(tokens[0], tokens[1], tolerance))


def _checks(bundle: Bundle, progress: OnProgress) -> Iterator[EndReport]:
    checks = bundle.manifest.data.get("check")
    if not isinstance(checks, list) or not checks:
        raise FormatError(f"{bundle.path} has no programs with expected outputs", code="no_checks")
    for number, check in enumerate(checks):
        progress(Progress("compare", number, len(checks), "programs"))
        try:
            name, tolerance = str(check["method"]), Tolerance(float(check["rtol"]), float(check["atol"]))
            inputs = [bundled_array(bundle, entry) for entry in check["inputs"]]
            expected = [bundled_array(bundle, entry) for entry in check["outputs"]]
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"{bundle.path}: {ascii(check)[:100]} is not a program with expected outputs",
                code="invalid_check",
            ) from error
        method = bundle.method(name)
        for position, (got, want) in enumerate(zip(method.run(inputs), expected, strict=False)):
            yield EndReport(0, position, name, difference(np.asarray(got), want, tolerance))
        method.close()
    progress(Progress("compare", len(checks), len(checks), "programs"))


def bundled_array(bundle: Bundle, entry: Any) -> np.ndarray[Any, Any]:
    """Return an array of the manifest, in a dtype that callers use."""
    file = bundle.open_file(bundle.manifest.file(entry["file"]))
    data = file.view(entry["offset"], entry["bytes"])
    return np.frombuffer(data, dtype_from_json(entry["dtype"]).held).reshape(entry["dims"])
