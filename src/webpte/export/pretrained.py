"""Load models with `transformers` in f32, with attention that decomposes into ops."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import FormatError, UnsupportedError
from .hugging_face import read_json
from .suppress_output import suppress_logs


def require_transformers() -> None:
    if find_spec("transformers") is None:
        raise UnsupportedError("exporting this model needs transformers: pip install 'webpte[export]'")


def read_config(folder: Path, allowed: Collection[str], what: str) -> dict[str, Any]:
    """config.json of a model that may be exported as `what`; others are refused by name."""
    config = read_json(folder / "config.json")
    where = folder / "config.json"
    kind = config.get("model_type")
    if kind not in allowed:
        raise UnsupportedError(
            f"{where}: model_type is {kind}; exported as {what} are {', '.join(sorted(allowed))}", ["model_type"]
        )
    if config.get("auto_map"):
        raise UnsupportedError(f"{where}: auto_map names code of the model's own, which is not run", ["auto_map"])
    if config.get("quantization_config"):
        raise UnsupportedError(f"{where}: the weights are quantised already: export the float model",
                               ["quantization_config"])  # fmt: skip
    if (folder / "adapter_config.json").exists():
        raise UnsupportedError(f"{folder} has an adapter_config.json: merge the adapter into the weights first")
    return config


def load_pretrained(auto: str, folder: Path, unused: tuple[str, ...] = (), **options: Any) -> Any:
    """The model by one of transformers' Auto classes. Tensors that it lacks or leaves over are refused, but for those
    whose names begin with `unused`."""
    with suppress_logs():
        import transformers

        transformers.utils.logging.disable_progress_bar()
        try:
            model, told = getattr(transformers, auto).from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                attn_implementation="eager",
                dtype="float32",
                output_loading_info=True,
                **options,
            )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise FormatError(f"{folder} cannot be loaded by transformers: {error}") from error
    missing, strange = (
        sorted(name for name in told[key] if not str(name).startswith(unused))
        for key in ("missing_keys", "unexpected_keys")
    )
    if missing or strange or told["mismatched_keys"]:
        misfit = [str(key) for key in told["mismatched_keys"]]
        raise FormatError(
            f"{folder} does not hold the model it describes: missing {missing[:5]}, unknown {strange[:5]}, of other "
            f"shapes {misfit[:5]}"
        )
    return model.eval()
