"""Load models with `transformers` in f32, with attention that decomposes into ops."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError
from ..json_files import read_json_object
from ..suppress_output import suppress_logs


def require_transformers() -> None:
    if find_spec("transformers") is None:
        raise UnsupportedError(
            "exporting this model requires the package transformers",
            code="missing_package",
            hint="Run pip install 'webpte[export]'.",
        )


def read_config(folder: Path, allowed: Collection[str], what: str) -> dict[str, Any]:
    """Return config.json of a model that can be exported as `what`."""
    config = read_json_object(folder / "config.json")
    where = folder / "config.json"
    kind = config.get("model_type")
    if kind not in allowed:
        raise UnsupportedError(
            items=["model_type"],
            argument=f"{where}: model_type",
            expected=f"one of {', '.join(sorted(allowed))} for {what}",
            got=kind,
            code="model_type",
        )
    if config.get("auto_map"):
        raise UnsupportedError(
            f"{where}: auto_map refers to code of the model, which is not run", ["auto_map"], code="model_code"
        )
    if config.get("quantization_config"):
        raise UnsupportedError(
            f"{where}: the weights are already quantized",
            ["quantization_config"],
            code="quantized_checkpoint",
            hint="Export the float model.",
        )
    if (folder / "adapter_config.json").exists():
        raise UnsupportedError(
            f"{folder} has an adapter_config.json", code="adapter", hint="Merge the adapter into the weights first."
        )
    return config


def load_pretrained(auto: str, folder: Path, unused: tuple[str, ...] = (), **options: Any) -> Any:
    """Return the model of a folder, by one of transformers' classes.

    Missing and unknown tensors are refused, except those whose names begin with `unused`.
    """
    with suppress_logs():
        import transformers

        transformers.utils.logging.disable_progress_bar()
        try:
            model, loading = getattr(transformers, auto).from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                attn_implementation="eager",
                dtype="float32",
                output_loading_info=True,
                **options,
            )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise FormatError(f"{folder}: transformers cannot load the model: {error}", code="unreadable") from error
    missing, unknown = (
        sorted(name for name in loading[key] if not str(name).startswith(unused))
        for key in ("missing_keys", "unexpected_keys")
    )
    if missing or unknown or loading["mismatched_keys"]:
        misfit = [str(key) for key in loading["mismatched_keys"]]
        raise FormatError(
            f"{folder} does not hold the model that it describes: missing tensors {missing[:5]}, unknown tensors "
            f"{unknown[:5]}, tensors of other shapes {misfit[:5]}",
            code="tensors",
        )
    return model.eval()
