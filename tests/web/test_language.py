"""The language parts of the web player in Node give the results of their native counterparts."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.harness.node import ask_node, run_node_tests
from tests.support.models.tiny_llm import write_tokenizer
from tests.support.models.tokenizers import byte_fallback, byte_level
from webpte.llm.engine.stop_strings import StopStringBuffer
from webpte.llm.prompts import SpecialTokens, encode_prompt, render_chat
from webpte.llm.sampling import LogitsProcessor, pack
from webpte.llm.settings import sampling_params_from
from webpte.llm.tokenizer import TextStream, Tokenizer

TEXTS = [
    "",
    "hello the name is blue",
    "<|im_end|>\n<|im_end|>x</s> </s>",
    "naïve 北京 e\u0301 \u200d👩‍👩‍👧 \ufeff\u2028",
    "  leading\ttabs\r\n\r\n trailing  ",
    'a"b\\c\x00\x7f',
    "12345 2026",
    "a" * 300,
    "<0x41>▁name",
]


def _json(tokenizer: Tokenizer) -> Any:
    return json.loads(tokenizer.backend_tokenizer.to_str())


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory) -> dict[str, Tokenizer]:
    from tokenizers import processors

    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    write_tokenizer(path)
    framed = byte_level()
    end = framed.token_id("<|im_end|>")
    framed.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|im_end|> $A <|im_end|>", special_tokens=[("<|im_end|>", end)]
    )
    return {
        "byte-level": byte_level(),
        "byte-fallback": byte_fallback(),
        "characters": Tokenizer.load(path),
        "framed": framed,
    }


@pytest.mark.parametrize("name", ["byte-level", "byte-fallback", "characters", "framed"])
def test_tokens_of_texts(tokenizers, name):
    tokenizer = tokenizers[name]
    texts = [text for text in TEXTS if name != "characters" or text.isascii()]
    end = tokenizer.token_id("<|im_end|>")
    config = {"bos_token": {"content": "<|im_end|>"}, "add_bos_token": True, "pad_token": None}
    fields = {"tokenizer": _json(tokenizer), "texts": texts, "config": config, "eos": [5]}
    result = ask_node("language.mjs", "encode", fields)
    assert result["plain"] == [tokenizer.encode(text, parse_special=True) for text in texts]
    assert result["full"] == [tokenizer.encode(text, add_special=True, parse_special=True) for text in texts]
    special = SpecialTokens({"bos_token": "<|im_end|>"}, add_bos=True)
    assert result["prompt"] == [encode_prompt(tokenizer, special, text) for text in texts]
    assert result["parsed"] == [encode_prompt(tokenizer, special, text, parse_special=True) for text in texts]
    assert result["texts"] == {"bos_token": "<|im_end|>", "eos_token": tokenizer.token_text(5)}
    ends = [end, tokenizer.token_id("</s>"), 5]
    assert sorted(result["ends"]) == sorted({number for number in ends if number is not None})


@pytest.mark.parametrize("name", ["byte-level", "byte-fallback", "characters"])
def test_text_comes_out_as_natively(tokenizers, name):
    tokenizer, chance = tokenizers[name], random.Random(1)
    size = len(_json(tokenizer)["model"]["vocab"]) + 1
    known = [number for number in range(size) if tokenizer.token_text(number) is not None]
    sequences = [tokenizer.encode(text) for text in TEXTS if name != "characters" or text.isascii()]
    sequences += [chance.choices(known, k=30) for _ in range(40)]
    result = ask_node("language.mjs", "stream", {"tokenizer": _json(tokenizer), "sequences": sequences})
    for tokens, pieces in zip(sequences, result, strict=True):
        stream = TextStream(tokenizer)
        assert pieces == [*(stream.push(token) for token in tokens), stream.flush()]


@pytest.mark.parametrize("name", ["byte-level", "byte-fallback", "characters"])
def test_tokens_have_the_same_bytes(tokenizers, name):
    tokenizer = tokenizers[name]
    result = ask_node("language.mjs", "bytes", {"tokenizer": _json(tokenizer), "count": 400})
    assert result == [None if text is None else list(text) for text in tokenizer.token_bytes(400)]


def test_tokens_without_bytes_of_their_own_are_refused(tokenizers):
    described = _json(tokenizers["characters"])
    for decoder in ({"type": "WordPiece", "prefix": "##", "cleanup": True}, None):
        result = ask_node("language.mjs", "bytes", {"tokenizer": {**described, "decoder": decoder}, "count": 9})
        assert result["code"] == "unsupported" and (decoder["type"] if decoder else "none") in result["error"]


CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are helpful<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
GENERATION = (
    "{%- for m in messages %}\n    {% if m.role == 'assistant' %}\n{% generation %}\n{{ m.content | trim }}"
    "{{ eos_token }}\n{%- endgeneration %}\n    {% else %}\n[INST] {{ m.content }} [/INST]\n"
    "    {% endif %}\n{% endfor %}"
)
TOOLS = (
    "{{- bos_token }}{% set ns = namespace(n=0) %}{% for m in messages if m.role != 'system' %}{% set ns.n = ns.n + 1 "
    "%}{{ ns.n ~ ':' ~ m.content|upper }}{% endfor %}{% if tools is none and not documents %}-{% endif %}"
    "{{ messages|length }}{{ messages[-1].content.split(' ')[0] }}{{ {'a': [1, true, none]}|tojson }}"
)


def test_templates_render_as_natively():
    messages = [
        {"role": "system", "content": "Be brief. <|im_end|>"},
        {"role": "user", "content": "What's 'this'?\n"},
        {"role": "assistant", "content": "  北 ok "},
        {"role": "user", "content": "go on"},
    ]
    texts = {"bos_token": "<s>", "eos_token": "</s>"}
    days = "{{ strftime_now('%d %b %B %Y %A %a %H%%') }}{% for i in range(3) %}{{ i }}{% endfor %}"
    cases = [(t, some, texts) for t in (CHATML, GENERATION, TOOLS, days) for some in (messages, messages[1:])]
    assert ask_node("language.mjs", "render", cases) == [render_chat(*case) for case in cases]


def test_templates_and_messages_that_do_not_fit_are_refused():
    cases: list[Any] = [
        ("{{ raise_exception('roles must alternate') }}", [], {}),
        ("x", [{"role": "user"}], {}),
        ("x", {"role": "user"}, {}),
        ("{% for %}", [], {}),
    ]
    result = ask_node("language.mjs", "render", cases)
    assert [answer["code"] for answer in result] == ["input"] * 4
    assert "roles must alternate" in result[0]["error"] and "messages[0]" in result[1]["error"]
    for case in cases:
        with pytest.raises(webpte.Error):
            render_chat(*case)


def test_stop_strings_are_held_back_as_natively():
    chance, cases, expected = random.Random(2), [], []
    for _ in range(200):
        stop = ["".join(chance.choices("ab<>", k=chance.randint(1, 4))) for _ in range(chance.randint(0, 3))]
        pieces = ["".join(chance.choices("ab<>", k=chance.randint(0, 4))) for _ in range(8)]
        cases.append([stop, pieces])
        hold = StopStringBuffer(stop)
        out = [hold.push(piece) for piece in pieces if not hold.matched]
        if not hold.matched:
            out.append(hold.flush(""))
        expected.append({"out": out, "found": hold.matched})
    assert ask_node("language.mjs", "hold", cases) == expected


def test_choices_are_packed_as_natively():
    chance, vocabulary = random.Random(3), 2000
    for number in range(12):
        rows, answers, choices = chance.choice((1, 2, 4)), [], []
        for _ in range(chance.randint(1, rows)):
            settings: dict[str, Any] = {"seed": chance.randint(0, 2**31 - 1)}
            settings |= {"temperature": chance.random() * 2, "top_k": chance.randint(0, 50)}
            settings |= {"top_p": 0.5 + chance.random() / 2, "min_p": chance.random()}
            if number % 3:
                penalties = ("presence_penalty", "frequency_penalty")
                settings |= {name: chance.random() - 0.5 for name in penalties}
                settings["repetition_penalty"] = chance.choice((1.0, 1.3))
                biased = sorted(chance.sample(range(vocabulary), 3))  # the order in which JavaScript has integers
                settings["logit_bias"] = {str(token): chance.random() for token in biased}
            prompt = chance.choices(range(vocabulary), k=chance.choice((5, 90, 700)))
            tokens = chance.choices(range(vocabulary), k=chance.choice((0, 3, 300)))
            mask = np.frombuffer(chance.randbytes(4 * 63), np.int32) if number % 4 == 2 else None
            bits = None if mask is None else mask.tolist()
            answers.append({"settings": settings, "prompt": prompt, "tokens": tokens, "mask": bits})
            biases = {int(token): bias for token, bias in settings.get("logit_bias", {}).items()}
            processor = LogitsProcessor(sampling_params_from({**settings, "logit_bias": biases}, vocabulary), prompt)
            for token in tokens:
                processor.add(token)
            choices.append(processor.params(len(tokens), mask=mask))
        idle = [LogitsProcessor(sampling_params_from({})).params(0)] * (rows - len(choices))
        words, adjustments, features = pack([*choices, *idle])
        room = rows * 8 + 16384
        fields = {"vocabulary": vocabulary, "rows": rows, "room": room, "answers": answers}
        result = ask_node("language.mjs", "pack", fields)
        assert (result["adjustments"], result["features"]) == (adjustments, features)
        assert len(result["words"]) == (room if features else len(words))
        assert result["words"][: len(words)] == words.tolist() and not any(result["words"][len(words) :])


def test_language_engine_in_node():
    run_node_tests("engine.test.mjs")
