"""Parse the inputs of a method from a command line: files, images, shapes, numbers.

Inputs are given in order, by position, `0=tokens.npy`, or by the name that `webpte inspect` shows, `tokens=tokens.npy`.

    x.npy                 an array
    all.npz               several inputs: keys are names, or end in a position, or else are in order
    all.npz:mask          one array of the archive
    photo.png             an image, resized to the input's bound, RGB (grey for one channel), from 0 to 1
    photo.png:-1..1       the same, from -1 to 1
    photo.png:imagenet    the same, normalized with ImageNet's mean and standard deviation
    1x16:random           a shape and its content: random, zeros, ones, arange, a number, or 0..99 for random numbers
                          of that range; without a shape, the input's bound
    3                     a number; fills a tensor input

`random` is normally distributed for floats, and 0 or 1 for integers, which suits masks, positions and token ids.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..container.files import similar_paths
from ..errors import InputError
from ..graph import DType
from ..image_files import open_image_file
from ..runtime import ArgumentInfo
from ..text import plural
from ..typing import Array

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff")
BILINEAR = 2  # PIL's number
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and deviation of red, green and blue
_DTYPES: dict[str, np.dtype[Any]] = {d.short: d.held for d in DType if d is not DType.WIDE_FLOAT16}
_SUFFIXED = re.compile(rf"(.+(?:\.npz|{'|'.join(map(re.escape, IMAGES))})):(.+)", re.IGNORECASE)
_POSITION = re.compile(r"(?:in|input)?(\d+)")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")
_FILL = re.compile(rf"(?:(?P<shape>\d+(?:x\d+)*):)?(?P<fill>random|zeros|ones|arange|{_RANGE.pattern}|{_NUMBER})")

_EXPECTED = "a .npy, .npz or image file, a number, or a shape such as 1x16:random"


@dataclass(frozen=True)
class InputValue:
    """The value of an input and its source."""

    value: Any
    source: str
    default: bool = False  # whether no spec was given for it


def make_inputs(
    arguments: Sequence[ArgumentInfo], specs: Sequence[str] = (), seed: int = 0, max_dim: int | None = None
) -> list[InputValue]:
    """Return a value for every input. Inputs without a spec are random at their bound, from a fixed seed.

    With `max_dim`, their dynamic dims have the size that a dim with the same bound has in an input with a spec, or
    else at most `max_dim`.
    """
    values: dict[int, InputValue] = {}
    for spec in specs:
        position, text = _split(spec, [argument.name for argument in arguments])
        if position is None and text.endswith(".npz"):
            values.update(_several(text, arguments))
            continue
        if position is None:
            position = next((i for i in range(len(arguments)) if i not in values), len(arguments))
        if position >= len(arguments):
            raise InputError(
                f"{spec} is for input {position}; the method has {_positions(len(arguments))}",
                argument="--input",
                code="unknown_input",
            )
        values[position] = _parse_value(text, arguments[position], position, seed)
    sizes = _dynamic_sizes(arguments, values)
    for position, argument in enumerate(arguments):
        if position not in values:
            info = argument if max_dim is None else _with_sizes(argument, sizes, max_dim)
            values[position] = replace(default_input(info, position, seed), default=True)
    return [values[position] for position in range(len(arguments))]


def _positions(count: int) -> str:
    return plural(count, "input") + (f" (0 to {count - 1})" if count > 1 else " (0)" if count else "")


def _dynamic_sizes(arguments: Sequence[ArgumentInfo], values: Mapping[int, InputValue]) -> dict[int, int]:
    """Return bound -> size of the dynamic dims of the inputs that have a value."""
    sizes: dict[int, int] = {}
    for position, item in values.items():
        info, shape = arguments[position], getattr(item.value, "shape", ())
        if info.bound is not None and info.dynamic is not None and len(shape) == len(info.bound):
            sizes |= {bound: size for bound, size, may in zip(info.bound, shape, info.dynamic, strict=True) if may}
    return sizes


def _with_sizes(info: ArgumentInfo, sizes: Mapping[int, int], max_dim: int) -> ArgumentInfo:
    if info.bound is None or info.dynamic is None:
        return info
    pairs = zip(info.bound, info.dynamic, strict=True)
    return replace(info, bound=tuple(sizes.get(b, min(b, max_dim)) if may else b for b, may in pairs))


def check_specs(specs: Sequence[str]) -> None:
    """Raise an InputError for specs that cannot be parsed, before a program is loaded."""
    for spec in specs:
        name, equals, rest = spec.partition("=")
        named = equals and (name.isidentifier() or _POSITION.fullmatch(name))
        text = rest if named else spec
        path = match[1] if (match := _SUFFIXED.fullmatch(text)) else text
        if path.lower().endswith((".npy", ".npz", *IMAGES)):
            if not os.path.exists(path):
                raise InputError(
                    f"cannot read {path}: it does not exist{similar_paths(path)}",
                    argument=f"--input {spec}",
                    code="unreadable",
                )
        elif not _FILL.fullmatch(text):
            raise InputError(argument=f"--input {spec}", expected=_EXPECTED, got=repr(text), code="invalid_value")


def at_shapes(arguments: Sequence[ArgumentInfo], shapes: Sequence[Sequence[int]]) -> list[ArgumentInfo]:
    """Return the inputs with these shapes as their bounds."""
    pairs = zip(arguments, shapes, strict=True)
    return [info if info.bound is None else replace(info, bound=tuple(dims)) for info, dims in pairs]


def default_input(argument: ArgumentInfo, position: int, seed: int) -> InputValue:
    """Return random values at the bound. A single integer is 0, because it usually is a position."""
    if argument.kind == "none":
        return InputValue(None, "none")
    single = argument.bound is None or all(size == 1 for size in argument.bound)
    if single and (argument.kind == "int" or (argument.dtype or "").startswith(("i", "u"))):
        return _filled("0", argument, position, seed)
    return _filled("random", argument, position, seed)


def _split(spec: str, names: Sequence[str]) -> tuple[int | None, str]:
    """Return the position and the value of a spec: `1=x.npy` is (1, "x.npy"). A path may contain "="."""
    name, equals, rest = spec.partition("=")
    if not equals:
        return None, spec
    if name in names:
        return names.index(name), rest
    if match := _POSITION.fullmatch(name):
        return int(match[1]), rest
    if name.isidentifier():
        raise InputError(
            argument=f"--input {spec}",
            expected=f"the name of an input ({', '.join(names) or 'the method has none'})",
            got=repr(name),
            code="unknown_input",
        )
    return None, spec


def _parse_value(text: str, argument: ArgumentInfo, position: int, seed: int) -> InputValue:
    path, suffix = match.groups() if (match := _SUFFIXED.fullmatch(text)) else (text, "")
    if path.endswith(".npy"):
        return _converted(_read(path), argument, path)
    if path.endswith(".npz"):
        return _converted(_from_archive(path, suffix), argument, text)
    if path.lower().endswith(IMAGES):
        return InputValue(read_image(path, suffix or "0..1", argument, position), text)
    if _FILL.fullmatch(text):
        return _filled(text, argument, position, seed)
    raise InputError(argument=f"input {position}", expected=_EXPECTED, got=repr(text), code="invalid_value")


def _filled(text: str, argument: ArgumentInfo, position: int, seed: int) -> InputValue:
    match = _FILL.fullmatch(text)
    assert match is not None
    if argument.bound is None:
        return InputValue(_number(match["fill"], argument, position), text)
    shape = tuple(map(int, match["shape"].split("x"))) if match["shape"] else argument.bound
    fill, dtype = match["fill"], _dtype(argument, position)
    source = f"{'x'.join(map(str, shape)) or 'scalar'}:{fill}"
    if fill == "random" or _RANGE.fullmatch(fill):
        drawn = _drawn(fill, shape, dtype.kind, np.random.default_rng([seed, position]))
        return InputValue(drawn.astype(dtype), f"{source}, seed {seed}")
    if fill == "arange":
        return InputValue(np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype), source)
    number = {"zeros": 0.0, "ones": 1.0}.get(fill)
    return InputValue(np.full(shape, float(fill) if number is None else number).astype(dtype), source)


def _drawn(fill: str, shape: tuple[int, ...], kind: str, generator: np.random.Generator) -> Array:
    """Return random numbers. `kind` is NumPy's letter; ranges of integers include both ends."""
    if limits := _RANGE.fullmatch(fill):
        low, high = float(limits[1]), float(limits[2])
        return (
            generator.uniform(low, high, shape) if kind == "f" else generator.integers(int(low), int(high) + 1, shape)
        )
    return generator.standard_normal(shape) if kind == "f" else generator.integers(0, 2, shape)


def _number(fill: str, argument: ArgumentInfo, position: int) -> Any:
    if fill == "random":
        fill = "0"
    try:
        number = int(fill) if argument.kind == "int" else float(fill)
    except ValueError:
        raise InputError(
            argument=f"input {position}", expected=f"a number ({argument.kind})", got=repr(fill), code="not_a_number"
        ) from None
    return bool(number) if argument.kind == "bool" else number


def _dtype(argument: ArgumentInfo, position: int) -> np.dtype[Any]:
    dtype = _DTYPES.get(argument.dtype or "")
    if dtype is None:
        raise InputError(
            argument=f"input {position}", expected="a dtype that NumPy has", got=argument.dtype, code="dtype"
        )
    return dtype


def _read(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"cannot read {path}: it does not exist{similar_paths(path)}", code="unreadable") from error
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"cannot read {path}: {error}", code="unreadable") from error


def _from_archive(path: str, key: str) -> Array:
    with _read(path) as archive:
        if not key and len(archive.files) == 1:
            key = archive.files[0]
        if key not in archive.files:
            raise InputError(
                f"{path} has {plural(len(archive.files), 'array')}: {', '.join(archive.files)}",
                hint=f"Choose one, such as {path}:{archive.files[0]}." if archive.files else "",
                code="ambiguous_file",
            )
        return np.asarray(archive[key])


def _several(path: str, arguments: Sequence[ArgumentInfo]) -> dict[int, InputValue]:
    """Return the arrays of an archive by position. The outputs that `webpte run --save` writes are left out."""
    with _read(path) as archive:
        keys = [key for key in archive.files if not re.fullmatch(r"out\d+", key)]
        names = [argument.name for argument in arguments]
        numbers = [re.search(r"(\d+)$", key) for key in keys]
        positions = [int(n[1]) for n in numbers if n] if all(numbers) else list(range(len(keys)))
        if set(keys) <= set(names):
            positions = [names.index(key) for key in keys]
        if len(set(positions)) != len(keys) or max(positions, default=0) >= len(arguments):
            raise InputError(
                f"{path} has {', '.join(keys) or 'no arrays'}; the method has {_positions(len(arguments))}",
                code="wrong_count",
            )
        return {
            p: _converted(np.asarray(archive[key]), arguments[p], f"{path}:{key}")
            for p, key in zip(positions, keys, strict=True)
        }


def _converted(array: Array, argument: ArgumentInfo, source: str) -> InputValue:
    """Return an array in the declared dtype if that is of the same kind: NumPy writes float64 by default."""
    if argument.bound is None:
        return InputValue(array.item() if array.size == 1 else array, source)
    declared = _DTYPES.get(argument.dtype or "") or array.dtype
    if array.dtype == declared or not np.can_cast(array.dtype, declared, "same_kind"):
        return InputValue(array, source)
    return InputValue(array.astype(declared), f"{source}, converted from {array.dtype}")


def read_image(path: str | os.PathLike[str], scale: str, argument: ArgumentInfo, position: int) -> Array:
    """Return an image at an input's bound: (N, C, H, W), (C, H, W), or channels last. A dynamic batch has size 1."""
    bound = argument.bound or ()
    channels_last = len(bound) >= 3 and bound[-1] in (1, 3) and bound[-3] not in (1, 3)
    if len(bound) not in (3, 4) or (bound[-1] if channels_last else bound[-3]) not in (1, 3):
        raise InputError(
            argument=f"input {position}",
            expected="3 or 4 dims with 1 or 3 channels, for an image",
            got=argument,
            code="not_an_image_input",
        )
    height, width = bound[-3:-1] if channels_last else bound[-2:]
    channels = bound[-1] if channels_last else bound[-3]
    opened = open_image_file(path, f"input {position}", "RGB" if channels == 3 else "L")
    pixels = np.asarray(opened.resize((width, height), BILINEAR)).reshape(height, width, channels)
    values = _scaled(pixels, scale, _dtype(argument, position))  # (H, W, C)
    image = values if channels_last else values.transpose(2, 0, 1)  # (C, H, W)
    if len(bound) == 3:
        return np.ascontiguousarray(image)
    count = 1 if argument.dynamic and argument.dynamic[0] else bound[0]
    return np.repeat(image[None], count, axis=0)  # (N, ...)


def _scaled(pixels: Array, scale: str, dtype: np.dtype[Any]) -> Array:
    if dtype.kind in "iu":
        return pixels.astype(dtype)
    unit = pixels.astype(np.float32) / 255
    if scale == "imagenet" and pixels.shape[-1] == 3:
        mean, deviation = (np.asarray(x, np.float32) for x in IMAGENET)
        return ((unit - mean) / deviation).astype(dtype)
    limits = _RANGE.fullmatch(scale)
    if limits is None:
        raise InputError(
            argument="pixel range",
            expected="a range such as -1..1 or 0..255, or imagenet for RGB images",
            got=repr(scale),
            code="pixel_range",
        )
    low, high = float(limits[1]), float(limits[2])
    return (low + unit * (high - low)).astype(dtype)
