"""`webpte generate`, `webpte chat` and `webpte export` as a person uses them, in a real pseudo-terminal."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_but
from tests.support.harness.screen import Screen
from tests.support.harness.terminal import SRC
from tests.support.models.tiny_llm import write_tokenizer
from webpte.cli import generate, main
from webpte.progress import Progress
from webpte.text import sanitize


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    shutil.copy(export("llama").path, folder / "tiny.pte")
    write_tokenizer(folder / "tokenizer.json")
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    return folder / "tiny.pte"


def in_a_child(*arguments):
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = [sys.executable, "-m", "webpte", *map(str, arguments)]
    return subprocess.run(done, capture_output=True, text=True, env=environment, timeout=120)


@pytest.fixture
def command(capsys, monkeypatch):
    """Run a command in this process; return its exit code and its output."""

    def run(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
        capsys.readouterr()
        try:
            code: Any = main([*map(str, arguments)])
        except SystemExit as ended:  # of argparse
            code = ended.code
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, printed.out, printed.err)

    return run


def chat(model, tmp_path, *options):
    command = ["tests.support.harness.patient_cli", "chat", str(model), *options]
    return Screen(command, environment={"XDG_STATE_HOME": str(tmp_path)})


def asked(screen):
    """Return whether it waits for a message."""
    return screen.prompt_line == ">" and "tokens" in screen.lines[-1]


def answering(screen, said, turn):
    """Whether something has come in answer to what was said, or all. Ctrl-C while a line is read takes the line."""
    *before, behind = screen.text.split(f"> {said}")
    read = len(before) == turn and "tokens" not in screen.lines[-1]  # which stands below a prompt
    return screen.text.count(" generated, ") == turn or (read and bool(behind.strip()))


def test_chat(model, tmp_path):
    saved = tmp_path / "talk.json"
    with chat(model, tmp_path, "--max-new-tokens", "5") as screen:
        screen.wait(asked)
        screen.say("hello")
        screen.wait("[5 prompt tokens, ")
        screen.wait(asked)
        assert re.search(r"\d generated, .* tok/s; (length|stop)\]", screen.text)
        screen.say(f"/save {saved}")
        screen.wait("(saved 2 messages to")
        messages = json.loads(saved.read_text())
        assert [m["role"] for m in messages] == ["user", "assistant"] and messages[0]["content"] == "hello"
        screen.say("/reset")
        screen.wait("(started over)")
        screen.say("x" * 80)
        screen.wait("got 80 bytes.")
        screen.wait("/undo removes the last turn")
        screen.say("bye")
        screen.wait("[3 prompt tokens, ")
        screen.say("/exit")
        assert screen.ended() == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(model, tmp_path):
    with chat(model, tmp_path, "--max-new-tokens", "100000", "--temperature", "1") as screen:
        screen.wait(asked)
        for turn in range(1, 3):
            screen.say("ab")
            screen.wait(lambda screen, turn=turn: answering(screen, "ab", turn))
            screen.press("ctrl-c")  # half a second, as `python -m tests.studies soak.signals` watches
            # The tiny model may have filled its context first: then the key finds the prompt.
            screen.wait(asked)
        screen.wait(lambda screen: screen.text.count("(stopped)") + screen.text.count("Ctrl-D leaves)") == 2)
        screen.say("/exit")
        assert screen.ended() == 0


@pytest.mark.parametrize("moment", slow_but(["wgpu", "compile"], ["numpy", "wgpu", "read", "compile", "upload"]))
def test_ctrl_c_while_loading_ends_the_program(model, moment):
    with Screen(["tests.support.harness.interrupted_cli", moment, "chat", str(model)]) as screen:
        assert screen.ended() == 130
        assert "Traceback" not in screen.text


def test_generate_interrupted_prints_partial_text_and_exits_130(model, monkeypatch, capsys):
    printed = []

    def press_ctrl_c_at_the_third(text, **options):
        printed.append(text)
        if len(printed) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(generate, "say", press_ctrl_c_at_the_third)
    assert main(["generate", str(model), "--prompt", "hello", "--raw", "--max-new-tokens", "20"]) == 130
    assert "generated" in capsys.readouterr().err


def test_generate_prints_text_and_rates(model, command):
    done = in_a_child("generate", model, "--prompt", "hello", "--max-new-tokens", "4", "--raw")
    assert done.returncode == 0, done.stderr
    assert "tok/s" in done.stderr and len(done.stdout) >= 1
    again = command("generate", model, "--prompt", "hello", "--max-new-tokens", "4", "--raw", "--json")
    report = json.loads(again.stdout)
    assert sanitize(report["text"]).strip() == done.stdout.strip()  # control characters are for the JSON only
    assert report["usage"]["prompt_tokens"] == 5 and report["usage"]["finish_reason"] in ("length", "stop")


def test_generate_command_draws_how_much_of_the_prompt_is_read(model, command, monkeypatch):
    events: list[Progress] = []
    monkeypatch.setattr(generate, "bars", lambda: contextlib.nullcontext(events.append))
    done = command("generate", model, "--prompt", "hello " * 10, "--max-new-tokens", "2", "--raw")
    assert done.returncode == 0, done.stderr
    read = [(event.done, event.total) for event in events if event.stage == "prompt"]
    assert read and read[-1][0] < read[-1][1] == 60


def test_generate_command_stdin_prompt_and_system(model, command):
    def generated(*options, stdin=""):
        done = command("generate", model, "--max-new-tokens", "2", "--json", *options, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    alone = generated("--prompt", "hello")
    assert alone["usage"]["prompt_tokens"] == 5
    for options in (("--prompt", "-"), ()):
        assert generated(*options, stdin="hello\n")["tokens"] == alone["tokens"]
    assert generated("--system", "be", "--prompt", "hello")["usage"]["prompt_tokens"] == 7


def test_generate_command_penalties_bias_and_logprobs(model, command):
    penalties = ("--repetition-penalty", "1.2", "--presence-penalty", "0.5", "--frequency-penalty", "0.5")
    asked = (
        "--temperature",
        "1",
        "--min-p",
        "0.1",
        "--logit-bias",
        "65=100",
        *penalties,
        "--json",
        "--top-logprobs",
        "2",
    )
    report = json.loads(command("generate", model, "--prompt", "hi", "--max-new-tokens", "3", "--raw", *asked).stdout)
    assert report["tokens"] == [65, 65, 65] and [len(entry["top"]) for entry in report["logprobs"]] == [2, 2, 2]
    wrong = command("generate", model, "--prompt", "hi", "--logit-bias", "A=100")
    assert wrong.returncode == 2 and "expected TOKEN=NUMBER, got 'A=100'" in wrong.stderr


def test_generate_command_prompt_file_one_response_per_line(model, tmp_path, command):
    lines: list[object] = [f"line {n}" for n in range(20)]
    lines += [{"id": "mine", "prompt": "hello", "max_new_tokens": 2}, {"messages": [{"role": "user", "content": "hi"}]}]
    lines += [{"tokens": [1, 2, 3], "seed": 4, "temperature": 0.7}, {"prompt": "x" * 500}]
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    done = command("generate", model, "--file", file, "--max-new-tokens", "5")
    assert done.returncode == 1 and "24 of 24 answers, 1 failed" in done.stderr, done.stderr
    results = {report["id"]: report for report in map(json.loads, done.stdout.splitlines())}
    assert set(results) == {*range(20), "mine", 21, 22, 23}
    assert results["mine"]["usage"]["completion_tokens"] <= 2 and results["mine"]["usage"]["prompt_tokens"] == 5
    assert "ContextFullError" in results[23]["error"] and results[23]["text"] == ""
    alone = command("generate", model, "--prompt", "line 7", "--max-new-tokens", "5", "--json")
    assert results[7]["tokens"] == json.loads(alone.stdout)["tokens"]


def test_ctrl_c_keeps_the_answers_that_are_finished(model, tmp_path, monkeypatch, capsys):
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps(f"line {n}") for n in range(40)))
    real, seen = generate._line_report, []

    def press_ctrl_c_at_the_third(name, answer):
        seen.append(name)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return real(name, answer)

    monkeypatch.setattr(generate, "_line_report", press_ctrl_c_at_the_third)
    assert main(["generate", str(model), "--file", str(file), "--max-new-tokens", "4"]) == 130
    captured = capsys.readouterr()
    assert [json.loads(line)["id"] for line in captured.out.splitlines()] == seen[:2]
    assert "2 of 40 answers" in captured.err


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("{", "invalid_json"),
        ("5", "invalid_prompt"),
        ('{"a": 1}', "invalid_prompt"),
        ('{"prompt": "a", "tokens": []}', "invalid_prompt"),
    ],
)
def test_generate_command_invalid_line_refused_before_loading(line, code, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text(f'"good"\n{line}\n')
    with raises(webpte.InputError, "prompts.jsonl:2", code=code):
        generate.read_prompts(str(file))


def test_generate_command_constraints_are_followed(model, tmp_path, command):
    (tmp_path / "schema.json").write_text('{"enum": ["red", "green"]}')
    (tmp_path / "sums.lark").write_text('start: /[0-9]/ "+" /[0-9]/')
    asked = {
        ("--json-schema", str(tmp_path / "schema.json")): r'"(red|green)"',
        ("--grammar", str(tmp_path / "sums.lark")): r"\d\+\d",
        ("--regex", "[abc]{3}!"): r"[abc]{3}!",
        ("--choices", "yes", "no"): r"yes|no",
    }
    for options, pattern in asked.items():
        arguments = ("generate", model, "--prompt", "hi", "--raw", "--json", "--speculate", "on", *options)
        report = json.loads(command(*arguments).stdout)
        assert re.fullmatch(pattern, report["text"]) and report["usage"]["finish_reason"] == "stop"
    for options, message in {("--json-schema", "nothing.json"): "nothing.json", ("--regex", "(a"): "regex"}.items():
        done = command("generate", model, "--prompt", "hi", *options)
        assert done.returncode == 1 and message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "nothing.pte", "--prompt", "x"], "nothing.pte"),
        (["inspect", __file__], "FormatError"),
        (["export", "nothing.gguf", "-o", "x.pte"], "nothing.gguf"),
    ],
)
def test_errors_are_one_message_and_exit_code_1(arguments, message):
    done = in_a_child(*arguments)
    assert done.returncode == 1
    assert message in done.stderr and "Traceback" not in done.stderr
