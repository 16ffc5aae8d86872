"""Read LoRA adapters in PEFT's layout, and fit their matrices to the layers of a program.

A folder has adapter_config.json and adapter_model.safetensors. Their names are those of the modules of the checkpoint.
A program of the builder says which rows of which module each of its layers has, and in which order: `adapter_modules`.
Every tensor of an adapter is applied, or refused by name.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..container.flat import quoted_name
from ..errors import FormatError, InputError, UnsupportedError
from ..json_files import parse_json, read_json_object
from ..typing import PathLike
from .architecture import Architecture
from .recipe import EXPERT, PER_LAYER_EMBEDDING
from .safetensors_file import FloatTensor, read_safetensors
from .shapes import parameter_shapes
from .text_part import text_name
from .weights import EMBEDDING, HEAD, TensorNames, WeightSource, by_layer, map_weights

Array = np.ndarray[Any, Any]
logger = logging.getLogger(__name__)
CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
MAX_RANK = 1024
MAX_ALPHA = 1e6
MAX_SIZE = 1 << 24  # rows or columns of a layer
_PREFIX = "base_model.model."
_TENSOR = re.compile(r"(?P<module>.+)\.lora_(?P<part>[AB])(\.default)?\.weight")
_PLAIN = re.compile(r"[\w.]+")  # a pattern of PEFT that is a name: others are regular expressions, which are not run
# Fields that are something else than a low-rank product if they have a value.
_KINDS = {
    "use_dora": "DoRA, which scales the columns of merged weights",
    "modules_to_save": "whole modules",
    "lora_bias": "biases",
    "trainable_token_indices": "rows of the embedding",
    "target_parameters": "parameters that are not those of linear layers, such as experts",
    "fan_in_fan_out": "transposed weights",
    "alora_invocation_tokens": "an adapter that begins at a token (aLoRA)",
    "layer_replication": "replicated layers",
    "use_qalora": "QALoRA, which pools the inputs",
    "use_bdlora": "block-diagonal matrices",
    "arrow_config": "a mixture of adapters",
}
_INITIAL = (True, False, None, "gaussian", "eva", "orthogonal")  # of the others, the base weights are changed, too
_KNOWN = {
    *_KINDS, "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "corda_config", "ensure_weight_tying",
    "eva_config", "exclude_modules", "inference_mode", "init_lora_weights", "layers_pattern", "layers_to_transform",
    "loftq_config", "lora_alpha", "lora_dropout", "megatron_config", "megatron_core", "peft_type", "peft_version",
    "qalora_group_size", "r", "rank_pattern", "revision", "runtime_config", "target_modules", "task_type",
    "use_rslora",
}  # fmt: skip


@dataclass(frozen=True)
class LowRank:
    """The matrices of an adapter for one layer of a program: its result becomes y + B A x."""

    first: FloatTensor  # (R, K)
    second: FloatTensor  # (rows of the module, R)
    scale: float
    source: WeightSource  # of the layer, in the module

    @property
    def rank(self) -> int:
        return self.first.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the rows and columns of the layer."""
        return self.source.shape

    def down(self) -> Array:
        """Return the first matrix, (R, K)."""
        return self.first.read()

    def up(self) -> Array:
        """Return the second matrix, (R, N), scaled and with its columns in the order of the layer."""
        rows: Array = self.second.read()[self.source.rows()]
        return rows.T * np.float32(self.scale * self.source.factor)


# -- programs ----------------------------------------------------------------------------------------------------------


def adapter_modules(model: Architecture, names: TensorNames) -> bytes:
    """Return which rows of which modules the linear layers of a program have, for the program."""
    sources = map_weights(parameter_shapes(model), model, names)
    layers = {name.removesuffix(".weight"): sources[name] for name in sources if _is_linear(name, sources[name].shape)}
    return json.dumps({name: _numbers(source) for name, source in layers.items()}, separators=(",", ":")).encode()


_TABLES = (EMBEDDING, HEAD, f"{PER_LAYER_EMBEDDING}.weight")  # matrices of tables, not of linear layers


def _is_linear(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a parameter is the matrix of a linear layer. The experts of a layer are one call."""
    return name.endswith(".weight") and len(shape) == 2 and EXPERT not in name and name not in _TABLES


def _numbers(source: WeightSource) -> list[Any]:
    module, rows = source.stored_name.removesuffix(".weight"), source.stored_shape[0]
    return [module, *source.shape, source.first_row, rows, source.heads, source.rotary_width, source.factor]


def _read_modules(data: bytes, where: str) -> dict[str, WeightSource]:
    """Return what `adapter_modules` has written, checked. Earlier versions listed experts and tables, too."""
    try:
        listed = {str(name): numbers for name, numbers in dict(parse_json(data, where)).items()}
        return {name: _source(numbers) for name, numbers in listed.items() if _is_linear(f"{name}.weight", (0, 0))}
    except (ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"{where}: its list of modules is invalid: {error}", code="adapter_modules") from error


def _source(numbers: list[Any]) -> WeightSource:
    module, *sizes, factor = numbers
    rows, columns, first, total, heads, width = sizes
    valid = isinstance(module, str) and all(type(size) is int and 0 <= size <= MAX_SIZE for size in sizes)
    if (
        not valid
        or not math.isfinite(factor)
        or not 0 < rows <= total - first
        or not columns
        or (heads and rows % heads)
    ):
        raise ValueError(f"{numbers!r:.200}")
    if heads and width > rows // heads:
        raise ValueError(f"{width} of {rows // heads} elements of a head rotate")
    return WeightSource(
        module, (rows, columns), first_row=first, stored_rows=total, heads=heads, rotary_width=width, factor=factor
    )


# -- adapters ----------------------------------------------------------------------------------------------------------


def read_adapters(folders: Mapping[str, PathLike], modules: bytes, where: str) -> dict[str, dict[str, LowRank]]:
    """Return the matrices of each adapter by the layers of the program `where`."""
    layers: dict[str, dict[str, WeightSource]] = defaultdict(dict)  # by module
    for name, source in _read_modules(modules, where).items():
        layers[source.stored_name][name] = source
    return {name: _read_adapter(f"adapters[{name!r}]", Path(folder), layers) for name, folder in folders.items()}


def _read_adapter(argument: str, folder: Path, layers: Mapping[str, Mapping[str, WeightSource]]) -> dict[str, LowRank]:
    for name in (CONFIG, TENSORS):
        if not (folder / name).is_file():
            raise InputError(
                argument=argument,
                expected=f"a folder with {CONFIG} and {TENSORS}",
                got=f"{folder}, without {name}",
                code="no_adapter",
                hint="PEFT writes both: model.save_pretrained(folder).",
            )
    config = read_json_object(folder / CONFIG)
    _check_kind(argument, config)
    pairs = _pairs(argument, read_safetensors(folder / TENSORS))
    _check_modules(argument, pairs, layers, config.get("base_model_name_or_path"))
    _check_patterns(argument, config, pairs.values())
    matrices: dict[str, LowRank] = {}
    misfit = []
    for module, (name, first, second) in pairs.items():
        for layer, source in layers[module].items():
            rank = _by_module(argument, config, "r", "rank_pattern", name)
            expected = (rank, source.shape[1]), (source.stored_shape[0], rank)
            if (first.shape, second.shape) != expected:
                misfit.append(f"{name}: expected {_shapes(*expected)}, got {_shapes(first.shape, second.shape)}")
                break
            alpha = _by_module(argument, config, "lora_alpha", "alpha_pattern", name)
            scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
            matrices[layer] = LowRank(first, second, scale, source)
    if misfit:
        lines = "\n".join(f"  {line}" for line in misfit)
        raise InputError(
            f"its matrices do not fit the layers of the model:\n{lines}\n", argument=argument, code="adapter_shape",
            hint=_base(config.get("base_model_name_or_path")),
        )  # fmt: skip
    _check_finite(argument, matrices)
    return matrices


def _check_finite(argument: str, matrices: Mapping[str, LowRank]) -> None:
    """Refuse NaN and infinities, which would be in the logits of every answer."""
    with np.errstate(over="ignore", invalid="ignore"):
        damaged = [name for name, each in matrices.items() for part in (each.down, each.up) if not _is_finite(part())]
    if damaged:
        raise FormatError(
            "\n".join([f"{argument}: expected finite numbers, got NaN or infinities in the matrices of",
                       *by_layer(dict.fromkeys(damaged))]),
            code="adapter_values",
        )  # fmt: skip


def _is_finite(matrix: Array) -> bool:
    return bool(np.isfinite(matrix).all())


def _check_kind(argument: str, config: Mapping[str, Any]) -> None:
    """Refuse everything that is not a low-rank product of linear layers."""
    reasons = [f"{name} ({meaning})" for name, meaning in _KINDS.items() if config.get(name)]
    if (kind := config.get("peft_type")) != "LORA":
        reasons.append(f"peft_type {kind!r:.40}")
    if (bias := config.get("bias", "none")) != "none":
        reasons.append(f"bias {bias!r:.40}")
    if (initial := config.get("init_lora_weights", True)) not in _INITIAL:
        reasons.append(f"init_lora_weights {initial!r:.40} (the base weights change, too)")
    reasons += [f"{name!r:.60} (unknown)" for name, value in config.items() if name not in _KNOWN and value]
    if reasons:
        raise UnsupportedError(
            argument=argument,
            expected="a plain LoRA adapter",
            got=", ".join(reasons),
            items=reasons,
            code="adapter_kind",
            hint="Merge it into its base model with PEFT (merge_and_unload), and export the result.",
        )


class _Pair(NamedTuple):
    """Both matrices of a module, by the name that PEFT gives it."""

    name: str
    first: FloatTensor
    second: FloatTensor


def _pairs(argument: str, tensors: Mapping[str, FloatTensor]) -> dict[str, _Pair]:
    """Return the matrices of each module, by the name that it has in the language model alone."""
    parts: dict[str, dict[str, FloatTensor]] = defaultdict(dict)
    other = []
    for name, tensor in tensors.items():
        match = _TENSOR.fullmatch(name)
        module = "" if match is None else match["module"].removeprefix(_PREFIX)
        if match is None or len(tensor.shape) != 2 or match["part"] in parts[module]:
            other.append(name)
        else:
            parts[module][match["part"]] = tensor
    other += [f"{module}.lora_{part}" for module, both in parts.items() for part in "AB" if both and part not in both]
    pairs: dict[str, _Pair] = {}
    for name, both in parts.items():
        if len(both) == 2 and pairs.setdefault(text_name(name), _Pair(name, both["A"], both["B"])).name != name:
            other.append(name)
    if other:
        raise UnsupportedError(
            "\n".join([f"{argument}: expected a pair of lora_A and lora_B for each layer, got also", *by_layer(other)]),
            other,
            code="adapter_tensors",
        )
    return pairs


_EXPERT = re.compile(r"\.experts(\.|$)")


def _check_modules(argument: str, pairs: Mapping[str, _Pair], layers: Mapping[str, object], base: object) -> None:
    unknown = [pair.name for module, pair in pairs.items() if module not in layers]
    if not unknown and pairs:
        return
    if experts := [name for name in unknown if _EXPERT.search(name)]:
        raise UnsupportedError(
            "\n".join([f"{argument}: adapters of experts are not supported, got", *by_layer(experts)]),
            experts,
            code="adapter_experts",
            hint="Merge it into its base model with PEFT (merge_and_unload), and export the result.",
        )
    kinds = sorted({name.rpartition(".")[2] for name in layers})
    raise InputError(
        argument=argument,
        expected=f"modules of the model's layers ({', '.join(kinds)})",
        got=", ".join(quoted_name(name) for name in unknown[:4]) + (" ..." if unknown[4:] else "") or "none",
        code="adapter_modules",
        hint=_base(base),
    )


def _base(name: object) -> str:
    named = f", {quoted_name(name)}" if isinstance(name, str) and name else ""
    return f"Load the program of the adapter's base model{named}."


def _check_patterns(argument: str, config: Mapping[str, Any], pairs: Iterable[_Pair]) -> None:
    """Refuse regular expressions, and warn of names that no module of the adapter has."""
    names = [f".{pair.name}" for pair in pairs]
    for field in ("rank_pattern", "alpha_pattern"):
        listed = config.get(field) or {}
        if not isinstance(listed, dict):
            raise FormatError(argument=argument, expected=f"an object as {field}", got=type(listed).__name__)
        if others := [pattern for pattern in listed if not _PLAIN.fullmatch(pattern)]:
            raise UnsupportedError(
                argument=argument,
                expected=f"names of modules in {field}",
                got=f"{others[0]!r:.80}",
                code="adapter_pattern",
                hint="Write the name of each module.",
            )
        if unused := [each for each in listed if not any(name.endswith(f".{each}") for name in names)]:
            shown = ", ".join(map(quoted_name, unused[:4])) + (" ..." if unused[4:] else "")
            logger.warning("%s: %s names modules that the adapter does not have: %s", argument, field, shown)


def _by_module(argument: str, config: Mapping[str, Any], field: str, patterns: str, module: str) -> Any:
    """Return a positive number: that of the first pattern that names the module, else that of the field."""
    listed = config.get(patterns) or {}
    named = (number for name, number in listed.items() if f".{module}".endswith(f".{name}"))
    value: Any = next(named, config.get(field))
    kinds, limit = ((int,), MAX_RANK) if field == "r" else ((int, float), MAX_ALPHA)
    if type(value) not in kinds or not 0 < value <= limit:
        expected = f"{'an integer' if field == 'r' else 'a number'} above 0, at most {limit}, for {module}"
        raise FormatError(field, argument=argument, expected=expected, got=f"{value!r:.40}", code="adapter_config")
    return value


def _shapes(first: tuple[int, ...], second: tuple[int, ...]) -> str:
    return f"{list(first)} and {list(second)}"
