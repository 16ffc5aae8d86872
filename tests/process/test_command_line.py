"""Exit codes, closed pipes, colors, and suggestions for misspelled words."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from rich.cells import cell_len

from tests.support.harness.children import ROOT, SRC
from tests.support.harness.gate import slow_but
from tests.support.harness.terminal import run_in_terminal
from webpte.cli import COMMANDS, load_command, main
from webpte.debug import doctor

MODEL = str(ROOT / "docs" / "demo" / "model.pte")
WEBPTE = [sys.executable, "-m", "webpte"]
BROWSER = ("--limits", "browser")


def piped(*arguments, environment=None):
    """Run a command whose reader has closed the pipe before the first output."""
    reader, writer = os.pipe()
    os.close(reader)
    full = os.environ | {"PYTHONPATH": str(SRC)} | (environment or {})
    try:
        return subprocess.run([*WEBPTE, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, env=full)
    finally:
        os.close(writer)


@pytest.mark.parametrize("arguments", [
    ("inspect", MODEL), ("inspect", MODEL, "--json"), ("check", MODEL, *BROWSER), ("check", MODEL, *BROWSER, "--json"),
    ("--help",), ("run", "--help"), ("--version",),
], ids=" ".join)  # fmt: skip
@pytest.mark.parametrize("unbuffered", slow_but([""], ["", "1"]))  # containers often set it
def test_pipe_closed_by_reader_exits_zero(arguments, unbuffered):
    done = piped(*arguments, environment={"PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr) == (0, "")


def test_output_closed_by_head_ends_without_error():
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    shell = f"set -o pipefail; {sys.executable} -m webpte inspect {MODEL} --json | head -n 1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{\n", "")


@pytest.mark.parametrize(("variables", "colored"), [
    ({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True),
])  # fmt: skip
def test_check_color_only_on_terminals_and_by_option(variables, colored):
    code, screen = run_in_terminal([*WEBPTE, "check", MODEL, *BROWSER], 80, environment=variables)
    assert code == 0 and b"no problems" in screen
    assert (b"\x1b[" in screen) is colored


def test_unencodable_text_printed_with_replacement():
    environment = os.environ | {"PYTHONPATH": str(SRC), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*WEBPTE, "check", "é.pte"], capture_output=True, env=environment)
    assert done.returncode == 1 and b"?.pte: cannot be read" in done.stderr and b"Traceback" not in done.stderr


def mistyped(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_mistyped_command_option_choice_suggests_match(capsys, tmp_path):
    assert "Did you mean inspect?" in mistyped(capsys, "inspct", "x.pte")
    assert "Did you mean --repeat?" in mistyped(capsys, "run", "x.pte", "--repaet", "3")
    assert "Did you mean --json?" in mistyped(capsys, "doctor", "--jsn")
    assert "webpte run --help lists them" in mistyped(capsys, "run", "x.pte", "--zzz")
    assert "webpte inspect model.pte" in mistyped(capsys, "model.pte")
    assert "Did you mean 8da4w?" in mistyped(capsys, "export", "x", "-o", "y", "--quantize", "8d4w")
    assert "Did you mean" not in mistyped(capsys, "zzzzzz")


def test_help_lists_commands_and_exit_codes(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and all(name in shown for name in COMMANDS)
    assert all(f"\n  {code} " in shown for code in (0, 1, 2, 130))


def test_main_no_arguments_prints_help(capsys):
    assert main([]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("usage: webpte ") and not shown.err
    assert all(name in shown.out for name in COMMANDS)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0 and len(lines) > 5
    assert [line for line in lines if cell_len(line) > 80] == []


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("generate", "--temperature", "-1"),
        ("chat", "--top-p", "7"),
        ("generate", "--logit-bias", "3=1000"),
        ("generate", "--stop", ""),
        ("serve", "--port", "99999"),
        ("serve", "--max-queue", "abc"),
    ],
)
def test_invalid_option_is_named_once(command, option, value, capsys):
    with pytest.raises(SystemExit):
        main([command, "model.pte", option, value])
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith(f"webpte {command}: error: argument {option}: expected ")
    assert message.count(option.strip("-")) == 1


@pytest.mark.parametrize("arguments", [
    ("run", "x.pte", "--repea", "3"), ("batch", "x.pte", "in.csv", "out", "--colum", "a"), ("doctor", "--js"),
    ("--vers",),
], ids=" ".join)  # fmt: skip
def test_option_abbreviated_is_refused(arguments, capsys):
    wrong = next(word for word in arguments if word.startswith("--"))
    assert wrong in mistyped(capsys, *arguments)


class TestPrompt:
    """The prompt of `generate` is an argument or an option, before or after other options."""

    @pytest.mark.parametrize("arguments", [
        ("m.pte", "hello"), ("m.pte", "--prompt", "hello"), ("m.pte", "--raw", "hello"), ("--raw", "m.pte", "hello"),
        ("m.pte", "hello", "--raw"),
    ], ids=" ".join)  # fmt: skip
    def test_generate_options_accepted_in_any_position(self, arguments):
        command, parser = load_command("generate")
        options = parser.parse(arguments)
        command.check_options(options)
        assert (options.file, options.prompt) == ("m.pte", "hello")

    @pytest.mark.parametrize("arguments", [
        ("a", "--prompt", "b"), ("a", "--file", "x.jsonl"), ("--prompt", "a", "--file", "x.jsonl"), ("a", "b"), ("",),
    ], ids=" ".join)  # fmt: skip
    def test_generate_exclusive_options_are_refused(self, arguments, capsys):
        mistyped(capsys, "generate", "m.pte", *arguments)


def test_input_file_missing_error_suggests_name(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tickets.parquet").touch()
    (tmp_path / "m.pte").touch()
    assert main(["batch", "m.pte", "ticket.parquet", "out"]) == 1
    assert capsys.readouterr().err == "InputError: IN: ticket.parquet does not exist; did you mean tickets.parquet?\n"


def test_python_m_webpte_runs_command():
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    done = subprocess.run([*WEBPTE, "--version"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout.startswith("webpte ")


UNWRITABLE = {
    "inspect": ("--html", "{}/no/x.html"),
    "run": ("--save", "{}/no/x.npz"),
    "profile": ("--trace", "{}/no/x.json"),
    "bench": ("--plot", "{}/no/x.png"),
    "compare": ("--repro", "{}/no/folder"),
    "bundle": ("-o", "{}/no/site"),
    "export": ("-o", "{}/no/x.pte"),
}


@pytest.mark.parametrize("command", UNWRITABLE)
def test_output_unwritable_refused_before_reading_input(command, tmp_path, capsys):
    """The program is not there either, and no one has looked for it yet."""
    option, place = UNWRITABLE[command]
    assert main([command, "nothing.pte", option, place.format(tmp_path)]) == 1
    shown = capsys.readouterr().err
    assert f"folder {tmp_path}/no" in shown and "nothing.pte" not in shown


def test_self_test_with_a_log_that_is_not_utf8_is_read(monkeypatch):
    script, real = "import sys; sys.stderr.buffer.write(b'caf\\xe9'); sys.exit(1)", subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda command, **options: real([sys.executable, "-c", script], **options))
    assert doctor.run_self_test()["problem"] == "the process ended with 1: caf\ufffd"
