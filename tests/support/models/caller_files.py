"""The files of the tiny model that calls tools: program, tokenizer, chat template, tool format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.support.export.exporting import export
from tests.support.models.tokenizers import byte_level

CONTEXT = 2048
SPECIALS = ("<|im_start|>", "<tool_call>", "</tool_call>", "<|tools|>")
TOOL_FORMAT = {"shape": "object", "begin": "<tool_call>", "end": "</tool_call>"}
CHAT_TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n{% if tools %}<|tools|>{% endif %}"
)


def write_caller(folder: Path, name: str = "caller") -> Path:
    """The path of the program, everything beside it."""
    from tokenizers import AddedToken

    from tests.support.models.caller import caller

    tokenizer = byte_level()
    tokenizer.backend_tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIALS])

    def number(text: str) -> int:
        token = tokenizer.token_id(text)
        assert token is not None
        return token

    exported = export(
        caller,
        vocabulary=tokenizer.backend_tokenizer.get_vocab_size(),
        context=CONTEXT,
        shown=number("<|tools|>"),
        call=number("<tool_call>"),
        called=number("</tool_call>"),
        quote=number('"'),
        end=number("<|im_end|>"),
    )
    program = folder / f"{name}.pte"
    shutil.copy(exported.path, program)
    tokenizer.backend_tokenizer.save(str(folder / f"{name}.tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "tool_format": TOOL_FORMAT}
    (folder / f"{name}.tokenizer_config.json").write_text(json.dumps(config))
    (folder / f"{name}.chat_template.jinja").write_text(CHAT_TEMPLATE)
    return program
