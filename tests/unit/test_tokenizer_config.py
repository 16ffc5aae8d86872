"""Special tokens and chat templates beside tokenizer.json, and fields of them that are not applied."""

from __future__ import annotations

import json

from webpte.checkpoints.tokenizer_config import read_chat_template, read_special_tokens

VOCABULARY = {"<s>": 1, "</s>": 2}


def special_tokens(folder, **fields):
    (folder / "tokenizer_config.json").write_text(json.dumps(fields))
    return read_special_tokens(folder, VOCABULARY)


def test_special_tokens_are_read_without_a_warning(tmp_path, caplog):
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": {"content": "<s>"}, "pad_token": null}')
    added = {"1": {"content": "<s>", "special": True}, "2": {"content": "</s>"}}
    fields = {"eos_token": "</s>", "add_bos_token": True, "added_tokens_decoder": added, "model_max_length": 10**30}
    assert special_tokens(tmp_path, **fields) == {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True}
    assert not caplog.records


def test_added_tokens_that_the_tokenizer_lacks_are_named(tmp_path, caplog):
    added = {"1": {"content": "<s>"}, "3": {"content": "<tool>"}, "5": {"content": "</s>"}}
    special_tokens(tmp_path, added_tokens_decoder=added, split_special_tokens=True, newest_field=1)
    (record,) = caplog.records
    lines = record.getMessage().splitlines()[1:]
    names = [line.split(" = ")[0].strip() for line in lines]
    assert names == ["added_tokens_decoder", "split_special_tokens", "newest_field"]
    assert '{"3": "<tool>", "5": "</s>"}' in lines[0]


def test_chat_template_of_a_list_is_the_default(tmp_path, caplog):
    templates = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    special_tokens(tmp_path, chat_template=templates)
    assert read_chat_template(tmp_path) == "d"
    assert "tool_use" in caplog.text
    caplog.clear()
    special_tokens(tmp_path, chat_template="one")
    assert read_chat_template(tmp_path) == "one" and not caplog.records
    special_tokens(tmp_path)
    assert read_chat_template(tmp_path) is None
