"""`webpte.bundle`: a program as static files that any web server can host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import DeviceError, Error, InputError, UnsupportedError
from ..graph import TensorSpec
from ..llm.metadata import tokenizer_beside
from ..plan.segments import INSTALL_TORCH, ON_CPU
from ..progress import CancelToken, OnProgress, cancellable, ignore
from ..runtime import Program
from ..runtime.checks import (
    check_bool,
    check_int,
    check_numbers,
    check_optional_path,
    check_path,
    check_shapes,
    check_str,
    wrong_argument,
)
from ..typing import PathLike
from ..version import DOCUMENTATION
from .methods import MethodWriter, Shapes, extents, planned_at
from .program_kinds import (
    ImageOptions,
    encoder_part,
    encoder_shapes,
    find_encoder,
    image_part,
    is_image,
    language_parts,
)
from .site import Site

SEQUENCES = 4
MAX_SEQUENCES_LIMIT = 16


def bundle(
    program: Program,
    path: PathLike,
    *,
    name: str | None = None,
    tokenizer: PathLike | None = None,
    sequences: int = SEQUENCES,
    shapes: Mapping[str, Iterable[Shapes]] | None = None,
    labels: PathLike | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    matrix_units: bool = False,
    progress: OnProgress = ignore,
    cancel: CancelToken | None = None,
) -> Path:
    """Write a program as static files: any web server can host them, and their page runs it on the visitor's GPU.

    A language model and an encoder of texts need their `tokenizer.json`, beside the program or given. Up to `sequences`
    conversations are computed at once. Any other program runs at the `shapes` of its methods, each the dims of every
    input; unless given, at the largest and the smallest. Of a vision program, `labels` is a file with a line for each
    class, and `mean` and `std` normalize its images. With `matrix_units`, further plans are for GPUs whose matrix units
    the player may use, an experimental feature of Dawn and Chrome. What cannot run in a page is refused.
    """
    progress = cancellable(progress, cancel)
    if not isinstance(program, Program):
        raise wrong_argument("program", "a webpte.Program, as returned by webpte.load", program)
    if check_int(sequences, "sequences", 1) > MAX_SEQUENCES_LIMIT:
        raise InputError(
            argument="sequences",
            expected=f"1 to {MAX_SEQUENCES_LIMIT} conversations",
            got=sequences,
            code="invalid_number",
        )
    folder, texts = check_path(path, "path"), check_optional_path(tokenizer, "tokenizer")
    named, source = None if name is None else check_str(name, "name", "my model"), Path(program.path)
    tokens = Path(texts) if texts is not None else tokenizer_beside(source)
    shapes_by_method = _shapes(shapes)
    listing = check_optional_path(labels, "labels")
    options = ImageOptions(
        None if listing is None else Path(listing), check_numbers(mean, "mean"), check_numbers(std, "std")
    )
    check_bool(matrix_units, "matrix_units")
    site = Site(folder)
    try:
        if tokens is not None and takes_tokens(program):
            kind, parts = _language(
                site,
                program,
                tokenizer=tokens,
                sequences=sequences,
                shapes=shapes_by_method,
                options=options,
                progress=progress,
                matrix_units=matrix_units,
            )
        else:
            kind, parts = _other(site, program, tokens, shapes_by_method, options, progress, matrix_units)
        site.finish(kind, {"name": named or source.stem, **parts})
        return site.path
    finally:
        site.abandon()


def _shapes(shapes: object) -> dict[str, list[Shapes]]:
    if shapes is None:
        return {}
    if not isinstance(shapes, Mapping):
        example = '{"forward": [[(1, 8)]]}'
        raise wrong_argument("shapes", f"a mapping of method names to calls, such as {example}, or None", shapes)
    return {
        check_str(name, "shapes", "forward"): list(check_shapes(calls, f"shapes[{name!r}]"))
        for name, calls in shapes.items()
    }


def _language(
    site: Site,
    program: Program,
    tokenizer: Path,
    sequences: int,
    shapes: Mapping[str, Any],
    options: ImageOptions,
    progress: OnProgress,
    matrix_units: bool,
) -> tuple[str, dict[str, Any]]:
    if named := [*(["shapes"] if shapes else []), *options.names_set]:
        raise InputError(
            f"{program.path} is a language model; {', '.join(named)} do not apply to it", code="not_applicable"
        )
    (parts,) = _refusing_together(
        program, [lambda: language_parts(site, program, tokenizer, sequences, progress, matrix_units)]
    )
    return "language", parts


def _other(
    site: Site,
    program: Program,
    tokenizer: Path | None,
    shapes: dict[str, list[Shapes]],
    options: ImageOptions,
    progress: OnProgress,
    matrix_units: bool,
) -> tuple[str, dict[str, Any]]:
    """Return the kind of bundle that a program becomes, and its manifest entry."""
    names = [name for name in program.method_names if program.graph(name).steps]
    if unknown := sorted(set(shapes) - set(names)):
        raise InputError(
            argument="shapes",
            expected=f"methods of the program ({', '.join(names)})",
            got=", ".join(unknown),
            code="unknown_method",
        )
    encoder = find_encoder(program) if tokenizer is not None else None

    def add(name: str) -> None:
        if name not in shapes:
            texts = encoder if name == "forward" else None
            shapes[name] = extents(program, name) if texts is None else encoder_shapes(program, texts)
        methods.add(name, program.fingerprint(name), lambda caps: planned_at(program, name, caps, shapes[name]))

    methods = MethodWriter(site, progress, len(names), matrix_units=matrix_units)
    _refusing_together(program, [functools.partial(add, name) for name in names])
    parts = {"methods": methods.written(), "shapes": shapes}
    if encoder is not None and tokenizer is not None:
        part = encoder_part(site, program, encoder, tokenizer, shapes["forward"])
        return "encoder", {**parts, "encoder": part}
    if is_image(program):
        return "image", {**parts, "image": image_part(site, program, options, shapes["forward"])}
    if options.names_set:
        raise InputError(
            f"{', '.join(options.names_set)}: the program does not take an image of f32 (1, 3, height, width)",
            code="not_applicable",
        )
    return "program", parts


def _refusing_together(program: Program, jobs: Iterable[Callable[[], Any]]) -> list[Any]:
    """Return the jobs' results. If jobs fail, raise one error with all reasons."""
    done, refused = [], []
    for job in jobs:
        try:
            done.append(job())
        except (UnsupportedError, DeviceError) as error:
            refused.append(error)
    if refused:
        raise _refusal(program, refused)
    return done


def _refusal(program: Program, refused: Sequence[Error]) -> UnsupportedError:
    items = [item for error in refused for item in getattr(error, "items", ())]
    lines = [f"{program.path} cannot run in a page, which has what every browser grants and no CPU kernels:"]
    reasons = {error.reason for error in refused}
    code = reasons.pop() if len(reasons) == 1 else "several"
    # A page has no CPU kernels, so those of torch and the fallback are left out of the advice.
    lines += [line for error in refused for line in str(error).splitlines() if line not in (INSTALL_TORCH, ON_CPU)]
    lines.append(f"Replace these ops in the module, or register ops with kernels: {DOCUMENTATION}/extending.html.")
    return UnsupportedError("\n".join(lines), items, code=code)


def takes_tokens(program: Program) -> bool:
    """Return whether `forward` takes tokens (1, n) and a position (1), as a language model with a cache does."""
    if "forward" not in program.method_names:
        return False
    graph = program.graph("forward")
    dims = [value.dims for i in graph.inputs if isinstance(value := graph.values[i], TensorSpec)]
    return len(dims) == len(graph.inputs) == 2 and len(dims[0]) == 2 and dims[1] == (1,)
