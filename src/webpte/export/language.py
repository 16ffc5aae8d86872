"""What turns text into tokens and back, of a checkpoint."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ..tools.evaluation.windows import TextTokens
from .family import Checkpoint


def write_language(source: Checkpoint, target: Path) -> None:
    """Beside a program."""
    texts = {"tokenizer.json": source.tokenizer, "chat_template.jinja": source.chat_template}
    config: dict[str, Any] = dict(source.special_tokens)
    if source.tool_format is not None:
        config["tool_format"] = source.tool_format.to_json()
    if config:
        texts["tokenizer_config.json"] = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    for name, text in texts.items():
        if text is not None:
            target.with_name(f"{target.stem}.{name}").write_text(text, encoding="utf-8")


def text_tokens(source: Checkpoint, text: str) -> TextTokens:
    """Return a text as the program of a checkpoint will read it."""
    from ..tools.evaluation.programs import tokens_beside

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.pte"
        write_language(source, target)
        return tokens_beside(target, text, source.bos_id, source.eos_ids)
