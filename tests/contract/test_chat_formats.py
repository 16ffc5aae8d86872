"""Check what an export records of a chat format: the tokens that end an answer, and the syntax of tool calls."""

from __future__ import annotations

import json

import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.models.talker import CHARACTERS, write_checkpoint
from webpte.checkpoints.checkpoint import read_checkpoint, write_tokenizer_files
from webpte.checkpoints.families import families
from webpte.checkpoints.family import end_ids, tool_format
from webpte.llm import Tokenizer, ToolCall, ToolFormat, parse_tool_calls
from webpte.llm.prompts import read_special_tokens

# What templates of a family say of tools, in a sentence of ours, and a call as its models write it.
TALK = {
    "llama": ('{"name": function, "parameters": dictionary}', '{"name": "now", "parameters": {"zone": "UTC"}}'),
    "mistral": ("[TOOL_CALLS]", '[TOOL_CALLS] [{"name": "now", "arguments": {"zone": "UTC"}, "id": "abc123def"}]'),
    "phi3": ("<|tool|>", '<|tool_call|>[{"name": "now", "arguments": {"zone": "UTC"}}]<|/tool_call|>'),
    "granite": ("<|tool_call|>", '<|tool_call|>[{"name": "now", "arguments": {"zone": "UTC"}}]'),
    "qwen2": ("<tool_call>", '<tool_call>\n{"name": "now", "arguments": {"zone": "UTC"}}\n</tool_call>'),
    "qwen3": (
        "<tool_call>",
        '<think>\n\n</think>\n\n<tool_call>\n{"name": "now", "arguments": {"zone": "UTC"}}\n</tool_call>',
    ),
    "smollm3": ("<tool_call>", '<tool_call>{"name": "now", "arguments": {"zone": "UTC"}}</tool_call>'),
    "qwen3_5": (
        "<tool_call> <function=",
        "<tool_call>\n<function=now>\n<parameter=zone>\nUTC\n</parameter>\n</function>\n</tool_call>",
    ),
    "ministral3": ("[TOOL_CALLS] [ARGS]", '[TOOL_CALLS]now[ARGS]{"zone": "UTC"}'),
    "apertus": ("<|tools_prefix|>", '<|tools_prefix|>[{"now": {"zone": "UTC"}}]<|tools_suffix|>'),
    "seed_oss": (
        "<seed:tool_call> <function=",
        "<seed:tool_call>\n<function=now>\n<parameter=zone>UTC</parameter>\n</function>\n</seed:tool_call>",
    ),
    "olmo3": ("<function_calls>", '<function_calls>now(zone="UTC")</function_calls>'),
    "gemma4": ("<|tool_call>call:", '<|tool_call>call:now{zone:<|"|>UTC<|"|>}<tool_call|>'),
    "lfm2": ("<|tool_list_start|>", '<|tool_call_start|>[now(zone="UTC")]<|tool_call_end|>'),
}


@pytest.mark.parametrize("family", TALK)
def test_tool_format_parses_call_of_family(family):
    sign, said = TALK[family]
    result = tool_format(families()[family].tool_formats, f"{{% if tools %}}{sign}{{% endif %}}")
    assert result is not None
    assert parse_tool_calls(said, result).calls == (ToolCall("now", {"zone": "UTC"}),)


@pytest.mark.parametrize(("family", "padding"), [("qwen3_5", "\n"), ("seed_oss", "")])
def test_raw_argument_loses_only_the_padding_of_its_family(family, padding):
    sign, said = TALK[family]
    result = tool_format(families()[family].tool_formats, sign)
    assert result is not None and result.padding == padding
    text = said.replace(f"{padding}UTC{padding}", f"{padding}\nx\n{padding}")
    assert parse_tool_calls(text, result).calls == (ToolCall("now", {"zone": "\nx\n"}),)


@pytest.mark.parametrize(
    "arguments",
    [
        '{a:<|"|><|"|>}',
        '{a:<|"|>{b:1},[\n"c\\d"<|"|>,b:[]}',
        '{a:[1,-2.5e3,true,null,{b:false,c:<|"|>d<|"|>}],e:{f:{}}}',
    ],
)
def test_calls_of_gemma_4_equal_transformers(arguments):
    parsers = pytest.importorskip("transformers.utils.chat_parsing.content_parsers")
    dialect = {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]}  # of its server, for Gemma 4
    (format,) = families()["gemma4"].tool_formats.values()
    assert format is not None
    (call,) = parse_tool_calls(f"<|tool_call>call:now{arguments}<tool_call|>", format).calls
    assert call.arguments == parsers.parse_content(arguments, "json", dialect)


def test_families_name_end_tokens():
    assert all(family.end_tokens for family in families().values())


@pytest.mark.parametrize("template", [None, "{{ messages }}", "[TOOL_CALLS]name[CALL_ID]1[ARGS]"])
def test_tool_format_unknown_template_is_none(template):
    formats = families()["mistral"].tool_formats
    assert tool_format(formats, template) is None
    assert tool_format(families()["llama"].tool_formats, "{{ messages }}") is None


def test_checkpoint_end_ids_from_all_files(tmp_path):
    write_checkpoint(tmp_path)
    reports = CHARACTERS.index("~")
    assert read_checkpoint(tmp_path).eos_ids == (reports,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, reports, 7]}))
    assert read_checkpoint(tmp_path).eos_ids == (reports, 5, 7)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": 5}))
    assert read_checkpoint(tmp_path).eos_ids == (reports, 5)


@pytest.mark.parametrize("ends", [-1, "2", [3, None], True, 2.5])
def test_checkpoint_end_id_invalid_is_refused(tmp_path, ends):
    write_checkpoint(tmp_path)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    with raises(webpte.FormatError, "eos_token_id", repr(None if isinstance(ends, list) else ends)):
        read_checkpoint(tmp_path)


def test_end_ids_of_family_only_if_in_tokenizer(tmp_path):
    write_checkpoint(tmp_path)
    text = (tmp_path / "tokenizer.json").read_text()
    assert end_ids("here", [4], ("~", "<|eot_id|>"), text) == (4, CHARACTERS.index("~"))
    with raises(webpte.FormatError, "here: ", "tokenizer.json"):
        end_ids("here", [], (), "{}")


def test_metadata_written_next_to_program_is_read_back(tmp_path):
    write_checkpoint(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config["chat_template"] += "{% if tools %}<tool_call>{% endif %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    write_tokenizer_files(read_checkpoint(tmp_path), tmp_path / "model.pte")
    words = Tokenizer.load(tmp_path / "model.tokenizer.json")
    result = read_special_tokens(tmp_path / "model.tokenizer_config.json", words, None, ())
    assert result.tool_format == ToolFormat("object", "<tool_call>", "</tool_call>")
    assert result.texts["eos_token"] == "~"
