"""Chat templates in the style of well-known models render as in transformers; BOS comes once, where it should."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.models import talker
from tests.support.models.tiny_llm import write_tiny_llm
from webpte.checkpoints.checkpoint import read_checkpoint, write_tokenizer_files
from webpte.checkpoints.config import Fields
from webpte.checkpoints.gguf_tokenizer import special_tokens as gguf_special_tokens
from webpte.checkpoints.tokenizer_config import read_special_tokens as folder_special_tokens
from webpte.llm import LLM, Tokenizer
from webpte.llm.prompts import encode_prompt, read_special_tokens, render_chat

LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" + system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
"""
MISTRAL = """{%- if messages[0]["role"] == "system" %}{%- set system = messages[0]["content"] %}
{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system is defined %}{{- "[INST] " + system + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- else %}{{- " " + message["content"]|trim + eos_token }}{%- endif %}
{%- endfor %}
"""
SMOLLM2 = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\\nYou are a helpful AI assistant<|im_end|>\\n' }}{% endif %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""
GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}
{% endif %}
{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}
{% set role = message['role'] %}{% endif %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}
"""
QWEN = """{%- if tools %}{{- '<|im_start|>system\\n# Tools' }}
{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and not (message.content.startswith('<tool_response>')) %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" and '</think>' in message.content %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
    {%- else %}{%- set content = message.content %}{%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
"""
PHI = """{% for message in messages %}
{% if message['role'] == 'system' %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}
{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}
{% elif message['role'] == 'assistant' %}{% generation %}{{'<|assistant|>\\n' + message['content'] + '<|end|>\\n'}}
{% endgeneration %}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}
"""
TEMPLATES = {"Llama 3": LLAMA3, "Mistral": MISTRAL, "SmolLM2": SMOLLM2, "Gemma": GEMMA, "Qwen": QWEN, "Phi": PHI}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
TALKS = [
    [{"role": "user", "content": " What is the capital of France? "}],
    [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "<think>hm</think>\n\nhello <b> & é "},
        {"role": "user", "content": "and now?"},
    ],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
]


def transformers_tokenizer(template):
    from tokenizers import Tokenizer as Inner
    from tokenizers import models
    from transformers import PreTrainedTokenizerFast

    inner = Inner(models.WordLevel({text: number for number, text in enumerate(SPECIAL.values())}, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=template, **SPECIAL)


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("talk", TALKS, ids=["one turn", "three turns", "a system message"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_render_as_transformers_renders_them(name, talk, add_generation_prompt):
    options = {"tokenize": False, "add_generation_prompt": add_generation_prompt}
    if name == "Gemma" and talk[0]["role"] == "system":
        with raises(webpte.InputError, "System role not supported"):
            render_chat(TEMPLATES[name], talk, SPECIAL)
        return
    want = transformers_tokenizer(TEMPLATES[name]).apply_chat_template(talk, **options)
    assert render_chat(TEMPLATES[name], talk, SPECIAL, add_generation_prompt) == want


# -- beside the program ------------------------------------------------------------------------------------------------


def write_special_tokenizer(path: Path, processor: str | None) -> None:
    """Words, and a post-processor that puts BOS before every text."""
    from tokenizers import AddedToken, models, pre_tokenizers, processors
    from tokenizers import Tokenizer as Inner

    words = ["<unk>", "<s>", "</s>", "hello", "world"]
    tokenizer = Inner(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in words[:3]])
    if processor is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=processor, special_tokens=[("<s>", 1), ("</s>", 2)]
        )
    tokenizer.save(str(path))


@pytest.mark.parametrize(
    ("processor", "config", "text", "want"),
    [
        (None, {}, "hello world", [3, 4]),
        (None, {"bos_token": "<s>", "add_bos_token": False}, "hello world", [3, 4]),
        (None, {"bos_token": "<s>", "add_bos_token": True}, "hello world", [1, 3, 4]),
        (None, {"bos_token": {"content": "<s>"}, "add_bos_token": True}, "<s> hello", [1, 3]),
        ("<s> $A", {"bos_token": "<s>"}, "hello world", [1, 3, 4]),
        ("<s> $A", {"bos_token": "<s>", "add_bos_token": True}, "hello", [1, 3]),
        ("<s> $A", {"bos_token": "<s>"}, "<s> hello", [1, 3]),
        ("<s> $A </s>", {"bos_token": "<s>"}, "hello", [1, 3]),
        ("<s> $A", {}, "", []),
    ],
)
def test_encode_prompt_adds_bos_once_if_model_asks(tmp_path, processor, config, text, want):
    write_special_tokenizer(tmp_path / "tokenizer.json", processor)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer.load(tmp_path / "tokenizer.json")
    special = read_special_tokens(tmp_path / "tokenizer_config.json", tokenizer, None, ())
    assert encode_prompt(tokenizer, special, text) == want


@pytest.mark.parametrize("contents", ["", "[]", "[" * 100_000, "5"])
def test_special_tokens_invalid_config_raises(tmp_path, contents):
    write_special_tokenizer(tmp_path / "tokenizer.json", None)
    (tmp_path / "tokenizer_config.json").write_text(contents)
    with raises(webpte.FormatError, "tokenizer_config.json"):
        read_special_tokens(tmp_path / "tokenizer_config.json", Tokenizer.load(tmp_path / "tokenizer.json"), None, ())


def test_chat_second_turn_of_template_with_eos_has_one_bos(tmp_path):
    """The names come from the numbers in the program, or from the file beside it."""
    folder = write_tiny_llm(tmp_path)
    (folder / "chat_template.jinja").write_text(MISTRAL.replace("[INST]", "").replace("[/INST]", ""))
    for config, bos, eos in ((None, chr(1), chr(2)), ({"bos_token": "^", "eos_token": "$"}, "^", "$")):
        if config is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
        with LLM.load(folder / "tiny.pte") as llm:
            rendered = llm.render(TALKS[1])
            assert rendered.startswith(bos) and eos in rendered
            generation = llm.generate(TALKS[1][:1], max_new_tokens=2)
            generation.result()
            assert generation.prompt[0] == ord(bos) and generation.prompt.count(ord(bos)) == 1


def test_export_writes_the_names_beside_the_program(tmp_path):
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"bos_token": {"content": "<old>"}, "pad_token": "<p>"})
    )
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True, "model_max_length": 5})
    )
    result = folder_special_tokens(tmp_path, {})
    assert result == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<p>", "add_bos_token": True}
    talker.write_checkpoint(tmp_path / "talker")
    source = replace(read_checkpoint(tmp_path / "talker"), chat_template=None, special_tokens=result)
    write_tokenizer_files(source, tmp_path / "out.pte")
    assert json.loads((tmp_path / "out.tokenizer_config.json").read_text()) == result
    assert not (tmp_path / "out.chat_template.jinja").exists()


def test_gguf_files_name_tokens_by_number():
    def named(values):
        return gguf_special_tokens(Fields("x.gguf", values))

    tokens = ["a", "<s>", "</s>"]
    numbers = {"tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2}
    values = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens, **numbers}
    assert named(values) == {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": False}
    assert named({**values, "tokenizer.ggml.pre": "llama-bpe"})["add_bos_token"] is True
    assert named({**values, "tokenizer.ggml.model": "llama"})["add_bos_token"] is True
    said = {**values, "tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False}
    assert named(said)["add_bos_token"] is False
