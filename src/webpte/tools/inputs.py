"""Inputs of a method from what a person types: files, images, shapes, numbers.

They are given in order, by position, `0=tokens.npy`, or by the name that `webpte inspect` shows, `tokens=tokens.npy`.

    x.npy                 an array
    all.npz               several inputs: keys are names, or end in a number, which is the position; others are taken
                          in order
    all.npz:mask          one array of it
    photo.png             an image, resized to the input's bound, RGB (or grey for one channel), from 0 to 1
    photo.png:-1..1       the same, from -1 to 1
    photo.png:imagenet    the same, less ImageNet's mean and divided by its deviation
    1x16:random           a shape and what to fill it with: random, zeros, ones, arange, a number, or 0..99 for
                          random numbers of that range; without a shape, the input's bound
    3                     a number; fills an input that is a tensor

`random` is normally distributed for floats, and 0 or 1 for integers: right for masks, positions and token ids alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..container.near import alike
from ..errors import InputError, UnsupportedError
from ..graph import DType
from ..runtime import ArgumentInfo

Array = np.ndarray[Any, Any]
IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif")
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # mean and deviation of red, green and blue
_DTYPES: dict[str, np.dtype[Any]] = {d.short: d.held for d in DType if d is not DType.WIDE_FLOAT16}
_SUFFIXED = re.compile(rf"(.+(?:\.npz|{'|'.join(map(re.escape, IMAGES))})):(.+)", re.IGNORECASE)
_POSITION = re.compile(r"(?:in|input)?(\d+)")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")
_FILL = re.compile(rf"(?:(?P<shape>\d+(?:x\d+)*):)?(?P<fill>random|zeros|ones|arange|{_RANGE.pattern}|{_NUMBER})")

_NEITHER = "is no .npy, .npz or image file, no number, and no shape such as 1x16:random"


@dataclass(frozen=True)
class InputValue:
    """An input and where it came from."""

    value: Any
    source: str


def make_inputs(arguments: Sequence[ArgumentInfo], specs: Sequence[str] = (), seed: int = 0) -> list[InputValue]:
    """A value for every input. What `specs` leaves out is random at its bound, from a fixed seed."""
    given: dict[int, InputValue] = {}
    for spec in specs:
        position, text = _split(spec, [argument.name for argument in arguments])
        if position is None and text.endswith(".npz"):
            given.update(_several(text, arguments))
            continue
        if position is None:
            position = next((i for i in range(len(arguments)) if i not in given), len(arguments))
        if position >= len(arguments):
            raise InputError(
                f"--input {spec} is input {position}; the method has {len(arguments)} inputs, from 0 on",
                code="unknown_input",
            )
        given[position] = _one(text, arguments[position], position, seed)
    for position, argument in enumerate(arguments):
        if position not in given:
            given[position] = default_input(argument, position, seed)
    return [given[position] for position in range(len(arguments))]


def check_specs(specs: Sequence[str]) -> None:
    """What can be told of them before a program is loaded: that they can be read at all."""
    for spec in specs:
        name, equals, rest = spec.partition("=")
        named = equals and (name.isidentifier() or _POSITION.fullmatch(name))
        text = rest if named else spec
        path = found[1] if (found := _SUFFIXED.fullmatch(text)) else text
        if path.lower().endswith((".npy", ".npz", *IMAGES)):
            if not os.path.exists(path):
                raise InputError(
                    f"--input {spec}: {path} cannot be read: it is not there{alike(path)}", code="unreadable"
                )
        elif not _FILL.fullmatch(text):
            raise InputError(f"--input {spec}: {text!r} {_NEITHER}", code="invalid_value")


def at_shapes(arguments: Sequence[ArgumentInfo], shapes: Sequence[Sequence[int]]) -> list[ArgumentInfo]:
    """The inputs as if these were their bounds."""
    pairs = zip(arguments, shapes, strict=True)
    return [info if info.bound is None else replace(info, bound=tuple(dims)) for info, dims in pairs]


def default_input(argument: ArgumentInfo, position: int, seed: int) -> InputValue:
    """Random at the bound; a single integer is 0, because it is usually a position."""
    if argument.kind == "none":
        return InputValue(None, "none")
    single = argument.bound is None or all(size == 1 for size in argument.bound)
    if single and (argument.kind == "int" or (argument.dtype or "").startswith(("i", "u"))):
        return _filled("0", argument, position, seed)
    return _filled("random", argument, position, seed)


def _split(spec: str, names: Sequence[str]) -> tuple[int | None, str]:
    """`1=x.npy` is (1, "x.npy"). A path may hold "=" too."""
    name, equals, rest = spec.partition("=")
    if not equals:
        return None, spec
    if name in names:
        return names.index(name), rest
    if found := _POSITION.fullmatch(name):
        return int(found[1]), rest
    if name.isidentifier():
        raise InputError(
            f"--input {spec}: there is no input {name!r}; the inputs are {', '.join(names) or 'none'}",
            code="unknown_input",
        )
    return None, spec


def _one(text: str, argument: ArgumentInfo, position: int, seed: int) -> InputValue:
    path, suffix = found.groups() if (found := _SUFFIXED.fullmatch(text)) else (text, "")
    if path.endswith(".npy"):
        return _converted(_read(path), argument, path)
    if path.endswith(".npz"):
        return _converted(_from_archive(path, suffix), argument, text)
    if path.lower().endswith(IMAGES):
        return InputValue(read_image(path, suffix or "0..1", argument, position), text)
    if _FILL.fullmatch(text):
        return _filled(text, argument, position, seed)
    raise InputError(f"input {position}: {text!r} {_NEITHER}", code="invalid_value")


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
    """`kind` is NumPy's letter: integers are drawn with both ends of a range."""
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
        raise InputError(f"input {position} is a single {argument.kind}; give a number, not {fill!r}") from None
    return bool(number) if argument.kind == "bool" else number


def _dtype(argument: ArgumentInfo, position: int) -> np.dtype[Any]:
    found = _DTYPES.get(argument.dtype or "")
    if found is None:
        raise InputError(f"input {position} is declared {argument.dtype}, which NumPy cannot hold")
    return found


def _read(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise InputError(f"{path} cannot be read: it is not there{alike(path)}", code="unreadable") from error
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _from_archive(path: str, key: str) -> Array:
    with _read(path) as archive:
        if not key and len(archive.files) == 1:
            key = archive.files[0]
        if key not in archive.files:
            raise InputError(
                f"{path} holds {', '.join(archive.files)}; choose one: {path}:{archive.files[0]}", code="ambiguous_file"
            )
        return np.asarray(archive[key])


def _several(path: str, arguments: Sequence[ArgumentInfo]) -> dict[int, InputValue]:
    """The arrays of an archive by position. What `webpte run --save` wrote comes back as the inputs it had."""
    with _read(path) as archive:
        keys = [key for key in archive.files if not re.fullmatch(r"out\d+", key)]
        names = [argument.name for argument in arguments]
        numbers = [re.search(r"(\d+)$", key) for key in keys]
        positions = [int(n[1]) for n in numbers if n] if all(numbers) else list(range(len(keys)))
        if set(keys) <= set(names):
            positions = [names.index(key) for key in keys]
        if len(set(positions)) != len(keys) or max(positions, default=0) >= len(arguments):
            raise InputError(
                f"{path} holds {', '.join(keys)}; the method has {len(arguments)} inputs", code="wrong_count"
            )
        return {
            p: _converted(np.asarray(archive[key]), arguments[p], f"{path}:{key}")
            for p, key in zip(positions, keys, strict=True)
        }


def _converted(array: Array, argument: ArgumentInfo, source: str) -> InputValue:
    """A file's array in the declared dtype, where that is of the same kind: NumPy makes float64 unless told not to."""
    if argument.bound is None:
        return InputValue(array.item() if array.size == 1 else array, source)
    wanted = _DTYPES.get(argument.dtype or "") or array.dtype
    if array.dtype == wanted or not np.can_cast(array.dtype, wanted, "same_kind"):
        return InputValue(array, source)
    return InputValue(array.astype(wanted), f"{source}, converted from {array.dtype}")


def read_image(path: str | os.PathLike[str], scale: str, argument: ArgumentInfo, position: int) -> Array:
    """An image at an input's bound: (N, C, H, W), (C, H, W), or channels last; a batch that may be smaller has one."""
    bound = argument.bound or ()
    channels_last = len(bound) >= 3 and bound[-1] in (1, 3) and bound[-3] not in (1, 3)
    if len(bound) not in (3, 4) or (bound[-1] if channels_last else bound[-3]) not in (1, 3):
        raise InputError(
            f"input {position} is {argument}; an image needs 3 or 4 dims, of which one is 1 or 3 channels",
            code="not_an_image_input",
        )
    height, width = bound[-3:-1] if channels_last else bound[-2:]
    channels = bound[-1] if channels_last else bound[-3]
    pixels = _pixels(path, "RGB" if channels == 3 else "L", (width, height)).reshape(height, width, channels)
    values = _scaled(pixels, scale, _dtype(argument, position))  # (H, W, C)
    image = values if channels_last else values.transpose(2, 0, 1)  # (C, H, W)
    if len(bound) == 3:
        return np.ascontiguousarray(image)
    count = 1 if argument.dynamic and argument.dynamic[0] else bound[0]
    return np.repeat(image[None], count, axis=0)  # (N, ...)


def _pixels(path: str | os.PathLike[str], mode: str, size: tuple[int, int]) -> Array:
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError("images as inputs need the pillow package: pip install pillow") from error
    try:
        with Image.open(path) as image:
            return np.asarray(image.convert(mode).resize(size, Image.Resampling.BILINEAR))
    except OSError as error:
        raise InputError(f"{os.fspath(path)} cannot be read as an image: {error}", code="unreadable") from error


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
            f"{scale!r} is no range of pixel values; use one such as -1..1 or 0..255, or imagenet for colours",
            code="pixel_range",
        )
    low, high = float(limits[1]), float(limits[2])
    return (low + unit * (high - low)).astype(dtype)
