"""Wrong calls of the language model surface, and of `generate` and `chat`: none of them loads a model first."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.harness.fake_runner import FakeLLM
from tests.support.harness.wrong_calls import Wrong, check
from webpte import CancelToken
from webpte.cli import generate
from webpte.errors import Error, FormatError, InputError
from webpte.llm import LLM, ConstraintError, ContextFullError, Tokenizer, model

MODEL = str(Path(__file__).parents[2] / "docs" / "demo" / "model.pte")
HELLO = [{"role": "user", "content": "hello"}]
llm = FakeLLM()
llm.text_model.template = "{{ messages[0].content }}"
talk = llm.sequence()


def ask(argument, kind=InputError, **settings):
    return Wrong(lambda: llm.generate(**{"prompt": "hi", **settings}), argument, kind)


def load(argument, kind=InputError, source=MODEL, **options):
    return Wrong(lambda: LLM.load(source, **options), argument, kind)


SETTINGS = [
    ask("max_new_tokens", max_new_tokens=0),
    ask("max_new_tokens", max_new_tokens="many"),
    ask("max_new_tokens", max_new_tokens=None),
    ask("max_new_tokens", max_new_tokens=2.5),
    ask("temperature", temperature=-1),
    ask("temperature", temperature="hot"),
    ask("temperature", temperature=math.nan),
    ask("top_k", top_k=-1),
    ask("top_k", top_k=1.5),
    ask("top_p", top_p=0),
    ask("top_p", top_p=1.1),
    ask("min_p", min_p=-0.1),
    ask("repetition_penalty", repetition_penalty=0),
    ask("presence_penalty", presence_penalty=1000),
    ask("frequency_penalty", frequency_penalty="x"),
    ask("logit_bias", logit_bias=[1]),
    ask("logit_bias", logit_bias={1: 1e9}),
    ask("logit_bias", logit_bias={5000: 1}),
    ask("seed", seed=-1),
    ask("seed", seed=2**40),
    ask("stop", stop=None),
    ask("stop", stop=[""]),
    ask("stop", stop=7),
    ask("logprobs", logprobs=1),
    ask("top_logprobs", top_logprobs=100),
    ask("tokens_per_submit", tokens_per_submit=0),
    ask("speculate", speculate="on"),
    ask("json_schema", ConstraintError, json_schema="{"),
    ask("json_schema", ConstraintError, json_schema=[1]),
    ask("json_schema", ConstraintError, json_schema={"a": object()}),
    ask("regex", regex=""),
    ask("regex", regex=5),
    ask("grammar", grammar=b"x"),
    ask("choices", choices="yes"),
    ask("choices", choices=[]),
    ask("choices", choices=[1]),
    ask("regex and choices", regex="a", choices=["a"]),
    ask("tempurature", tempurature=1),
    ask("max_tokens", max_tokens=1),
]
PROMPTS = [
    Wrong(lambda: llm.generate(), "prompt", InputError),
    Wrong(lambda: llm.generate(5), "prompt", InputError),  # type: ignore[arg-type]
    Wrong(lambda: llm.generate(b"hi"), "prompt", InputError),  # type: ignore[arg-type]
    Wrong(lambda: llm.generate(""), "prompt", InputError),
    Wrong(lambda: llm.generate("hi", tokens=[1]), "tokens", InputError),
    Wrong(lambda: llm.generate(tokens=[]), "prompt", InputError),
    Wrong(lambda: llm.generate(tokens="abc"), "tokens", InputError),  # type: ignore[arg-type]
    Wrong(lambda: llm.generate(tokens=[1.5]), "tokens[0]", InputError),  # type: ignore[list-item]
    Wrong(lambda: llm.generate(tokens=[-1]), "tokens[0]", InputError),
    Wrong(lambda: llm.generate(tokens=[1, 10**6]), "tokens[1]", InputError),
    Wrong(lambda: llm.generate(tokens=[1] * 100), "prompt", ContextFullError),
    Wrong(lambda: llm.generate([{"role": "user"}]), "messages[0]", InputError),
    Wrong(lambda: llm.generate([*HELLO, "hi"]), "messages[1]", InputError),  # type: ignore[list-item]
    Wrong(lambda: llm.generate("hi", cancel=True), "cancel", InputError),  # type: ignore[arg-type]
    Wrong(lambda: talk.generate("hi", cancel="now"), "cancel", InputError),  # type: ignore[arg-type]
    Wrong(lambda: talk.generate(temperature=-1), "temperature", InputError),
    Wrong(lambda: llm.render("hi"), "messages", InputError),  # type: ignore[arg-type]
    Wrong(lambda: llm.render([{}]), "messages[0]", InputError),
    Wrong(lambda: llm.generate_many("hi"), "prompts", InputError),
    Wrong(lambda: llm.generate_many(5), "prompts", InputError),  # type: ignore[arg-type]
    Wrong(lambda: llm.generate_many({"prompt": "hi"}), "prompts", InputError),
    Wrong(lambda: llm.generate_many(["hi"], in_order="yes"), "in_order", InputError),  # type: ignore[arg-type]
    Wrong(lambda: llm.generate_many(["hi"], progress=3), "progress", InputError),  # type: ignore[arg-type]
    Wrong(lambda: llm.generate_many(["hi"], cancel=3), "cancel", InputError),  # type: ignore[arg-type]
    Wrong(lambda: llm.generate_many(["hi"], top_p=7), "top_p", InputError),
    Wrong(lambda: talk.rewind(-1), "rewind", InputError),
    Wrong(lambda: talk.rewind(10), "rewind", InputError),
    Wrong(lambda: talk.rewind("all"), "rewind", InputError),  # type: ignore[arg-type]
    Wrong(lambda: talk.logits([]), "logits", InputError),
    Wrong(lambda: talk.logits([10**6]), "tokens[0]", InputError),
    Wrong(lambda: talk.logits([1] * 1000), "tokens", ContextFullError),
    Wrong(lambda: talk.snapshot(5), "path", InputError),  # type: ignore[arg-type]
    Wrong(lambda: talk.restore(None), "path", InputError),  # type: ignore[arg-type]
    Wrong(lambda: talk.restore("missing.state"), "missing.state"),
    Wrong(lambda: talk.restore(__file__), "test_wrong_llm_calls.py", FormatError),
    Wrong(lambda: Tokenizer.load("missing.json"), "missing.json"),
    Wrong(lambda: Tokenizer.load(__file__), "test_wrong_llm_calls.py", FormatError),
]
LOADS = [
    load("path", source=5),
    load("path", source=b"bytes"),
    load("path", source=""),
    load("missing.pte", FormatError, source="missing.pte"),
    load("test_wrong_llm_calls.py", FormatError, source=__file__),
    load("tokenizer", tokenizer=5),
    load("missing.json", Error, tokenizer="missing.json"),
    load("model.pte", FormatError, tokenizer=MODEL),
    load("data", data="weights.ptd"),
    load("data", data=[5]),
    load("missing.ptd", Error, data=["missing.ptd"]),
    load("kv_cache", kv_cache="f8"),
    load("kv_cache", kv_cache=16),
    load("recover", recover="yes"),
    load("max_sequences", max_sequences=0),
    load("max_sequences", max_sequences="many"),
    load("max_queue_size", max_queue_size=0),
    load("max_queue_size", max_queue_size=1.5),
    load("fallback", fallback="gpu"),
    load("limits", limits={"nope": 3}),
    load("passes", passes=["nope"]),
    load("tune", tune="of"),
    load("memory", memory=-1),
    load("memory", memory="1 GB"),
    load("progress", progress=5),
    load("cancel", cancel=5),
]


def command(*arguments, named=None, kind=InputError):
    return Wrong(("generate", MODEL, *arguments), named or arguments[0], kind)


COMMANDS = [
    command("--temperature", "-1", "--prompt", "x"),
    command("--temperature", "hot", "--prompt", "x"),
    command("--max-new-tokens", "0", "--prompt", "x"),
    command("--max-new-tokens", "1.5", "--prompt", "x"),
    command("--top-k", "-3", "--prompt", "x"),
    command("--top-p", "0", "--prompt", "x"),
    command("--min-p", "2", "--prompt", "x"),
    command("--repetition-penalty", "0", "--prompt", "x"),
    command("--presence-penalty", "1e9", "--prompt", "x"),
    command("--frequency-penalty", "nan", "--prompt", "x"),
    command("--seed", "-1", "--prompt", "x"),
    command("--stop", "", "--prompt", "x"),
    command("--logit-bias", "A=1", "--prompt", "x"),
    command("--logit-bias", "1=1e9", "--prompt", "x"),
    command("--kv-cache", "f8", "--prompt", "x"),
    command("--speculate", "maybe", "--prompt", "x"),
    command("--top-logprobs", "99", "--json", "--prompt", "x"),
    command("--top-logprobs", "2", "--prompt", "x"),
    command("--prompt", "", named="PROMPT"),
    command("--prompt", "x", "--file", "y.jsonl", named="--file"),
    command("--system", "be", "--raw", "--prompt", "x"),
    command("--file", "missing.jsonl", named="missing.jsonl"),
    command("--file", __file__, named="test_wrong_llm_calls.py:1"),
    command("--json", "--file", "y.jsonl"),
    command("--regex", "(a", "--prompt", "x", named="regex", kind=ConstraintError),
    command("--json-schema", "missing.json", "--prompt", "x", named="missing.json"),
    command("--json-schema", __file__, "--prompt", "x", named="json_schema", kind=ConstraintError),
    command("--grammar", __file__, "--prompt", "x", named="grammar", kind=ConstraintError),
    command("--choices", "", "--prompt", "x", named="choices"),
    command("--regex", "a", "--choices", "a", "--prompt", "x", named="--choices"),
    command("--nonsense", "--prompt", "x"),
    Wrong(("generate",), "file"),
    Wrong(("generate", MODEL), "stdin", InputError),
    Wrong(("chat",), "file"),
    Wrong(("chat", MODEL, "--temperature", "-1"), "--temperature"),
    Wrong(("chat", MODEL, "--top-p", "x"), "--top-p"),
    Wrong(("chat", MODEL, "--prompt", "x"), "--prompt"),
    Wrong(("chat", MODEL, "--max-new-tokens", "0"), "--max-new-tokens"),
]
ALL = [*SETTINGS, *PROMPTS, *LOADS, *COMMANDS]


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch):
    def loaded(*arguments, **options):
        pytest.fail("a model was loaded before the arguments were looked at")

    monkeypatch.setattr(model, "load_runner", loaded)
    monkeypatch.setattr(generate, "open_model", loaded)


@pytest.mark.parametrize("wrong", ALL, ids=lambda wrong: str(wrong).replace(MODEL, "model.pte"))
def test_llm_wrong_call_error_names_argument(wrong):
    check(wrong)


def test_llm_wrong_calls_table_is_long():
    assert len(ALL) >= 120


def test_llm_after_wrong_calls_still_generates():
    for wrong in SETTINGS + PROMPTS:
        with pytest.raises(wrong.kind):
            wrong.call()
    assert len(llm.generate("hi", max_new_tokens=3, cancel=CancelToken()).result()) == 3
    assert len(talk.generate("hi", max_new_tokens=3).result()) == 3


def test_prompt_from_stdin_invalid_text_is_refused(monkeypatch):
    bad = SimpleNamespace(isatty=lambda: False, buffer=SimpleNamespace(read=lambda: b"\xff\xfe"))
    monkeypatch.setattr("sys.stdin", bad)
    check(Wrong(("generate", MODEL, "--prompt", "-"), "stdin", InputError))
    check(Wrong(("generate", MODEL, "--file", "-"), "stdin", InputError))
    empty = SimpleNamespace(isatty=lambda: False, buffer=SimpleNamespace(read=lambda: b"\n"))
    monkeypatch.setattr("sys.stdin", empty)
    check(Wrong(("generate", MODEL), "stdin", InputError))
    check(Wrong(("generate", MODEL, "--file", "-"), "--file", InputError))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    check(Wrong(("generate", MODEL), "PROMPT", InputError))


def test_prompt_file_invalid_line_is_named(tmp_path):
    file = tmp_path / "prompts.jsonl"
    for line in ("{", "5", json.dumps({"a": 1}), json.dumps({"prompt": "a", "tokens": []})):
        file.write_text(f'"good"\n{line}\n')
        check(Wrong(("generate", MODEL, "--file", str(file)), "prompts.jsonl:2", InputError))
