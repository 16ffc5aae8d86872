"""Read the files beside tokenizer.json: special tokens and chat templates. Fields that are not applied are named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import FormatError
from ..fields import FieldRule, ReadFields
from ..json_files import read_json_object
from ..llm.prompts import default_template

CONFIG, TOKENS_MAP = "tokenizer_config.json", "special_tokens_map.json"
# What tokenizer.json has itself, what callers of transformers set, and the origin of the file.
_IGNORED = {
    "add_prefix_space", "chat_template", "additional_special_tokens", "auto_map", "backend",
    "clean_up_tokenization_spaces", "device_map", "do_lower_case", "errors", "extra_special_tokens", "from_slow",
    "is_local", "legacy",
    "local_files_only", "max_length", "model_input_names", "model_max_length", "model_specific_special_tokens",
    "name_or_path", "pad_to_multiple_of", "pad_token_type_id", "padding", "padding_side", "processor_class",
    "return_tensors", "return_token_type_ids", "sp_model_kwargs", "spaces_between_special_tokens",
    "special_tokens_map_file", "stride", "tokenizer_class", "tokenizer_file", "transformers_version",
    "truncation_side", "truncation_strategy", "unsloth_fixed", "use_default_system_prompt",
}  # fmt: skip
_ADDED = "added_tokens_decoder"
_RULES = {
    "split_special_tokens": FieldRule((False,), "special tokens in texts are split"),
    _ADDED: FieldRule((), "tokens that tokenizer.json does not have"),
}


def read_chat_template(folder: Path) -> str | None:
    """Return the chat template of a folder: a file, or a field of tokenizer_config.json."""
    beside = folder / "chat_template.jinja"
    if beside.exists():
        return read_text(beside)
    config = folder / CONFIG
    template = read_json_object(config).get("chat_template") if config.exists() else None
    return default_template(template, str(config))


def read_special_tokens(folder: Path, vocabulary: Mapping[str, int]) -> dict[str, str | bool]:
    """Return the special tokens by name. transformers stores them in either file, as strings or as objects.

    `vocabulary` is that of tokenizer.json.
    """
    tokens: dict[str, str | bool] = {}
    for path in (folder / TOKENS_MAP, folder / CONFIG):
        values = read_json_object(path) if path.exists() else {}
        fields = ReadFields(str(path), {**values, _ADDED: _absent(values.get(_ADDED), vocabulary)})
        for key in [key for key in values if key.endswith("_token")]:
            value = fields.get(key)
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str | bool):
                tokens[key] = text
        fields.warn_unread(_IGNORED.__contains__, _RULES)
    return tokens


def _absent(added: object, vocabulary: Mapping[str, int]) -> dict[str, object]:
    """Return the added tokens that tokenizer.json does not have, or has with other numbers."""
    listed = added if isinstance(added, dict) else {}
    texts = {number: token.get("content") if isinstance(token, dict) else token for number, token in listed.items()}
    return {number: text for number, text in texts.items() if str(vocabulary.get(str(text))) != str(number)}


def read_text(path: Path) -> str:
    """Return the text of a file in UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} cannot be read: {error}", code="unreadable") from error
