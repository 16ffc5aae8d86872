"""Completion in the shells themselves, for every command and option there is."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache

import pytest

from webpte.cli import COMMANDS, load_command, main
from webpte.cli.completion import completion


@cache
def script(shell):
    return completion(shell)


def bash(words, folder):
    """Return the words that bash offers, the last of these being incomplete."""
    listed = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}; _webpte 2>&1; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{script('bash')}\n{ask}"], capture_output=True, text=True, cwd=folder, check=True
    )
    assert not done.stderr, done.stderr
    return {line for line in done.stdout.splitlines() if line}


@pytest.fixture
def folder(tmp_path):
    for name in ("model.pte", "other model.pte", "weights.ptd", "x.gguf", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "site").mkdir()
    return tmp_path


@pytest.mark.parametrize(("typed", "offered"), [
    ("webpte ins", {"inspect"}),
    ("webpte ", {*COMMANDS, "--help", "--version"}),
    ("webpte --v", {"--version"}),
    ("webpte run ", {"model.pte", "other model.pte", "site"}),
    ("webpte run mo", {"model.pte"}),
    ("webpte export ", {"x.gguf", "site"}),
    ("webpte run model.pte --data ", {"weights.ptd", "site"}),
    ("webpte run model.pte --data=", {"weights.ptd", "site"}),
    ("webpte run model.pte --data=we", {"weights.ptd"}),
    ("webpte run model.pte --fall", {"--fallback"}),
    ("webpte run model.pte --fallback ", {"cpu"}),
    ("webpte run model.pte --repeat ", set()),
    ("webpte bundle model.pte -o ", {"site"}),
    ("webpte export x.gguf --quantize 8", {"8w", "8da4w"}),
    ("webpte completion ", {"bash", "zsh", "fish"}),
    ("webpte inspect model.pte --html no", {"notes.txt"}),
])  # fmt: skip
def test_completion_in_bash(typed, offered, folder):
    words = typed.replace("=", " = ").split(" ")
    assert bash([word for i, word in enumerate(words) if word or i == len(words) - 1], folder) == offered


@pytest.mark.parametrize("command", COMMANDS)
def test_bash_offers_every_option(command, folder):
    expected = {name for action in load_command(command)[1]._actions for name in action.option_strings}
    assert bash(["webpte", command, "-"], folder) == expected


def test_bash_is_asked_by_the_shell_itself(folder):
    """`complete` knows the function under the command's name."""
    ask = f"{script('bash')}\ncomplete -p webpte"
    done = subprocess.run(["bash", "--norc", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout == "complete -F _webpte webpte\n"


# What is typed is echoed, and after it comes the rest, which nothing before holds.
ZSH = """
zmodload zsh/zpty
zpty -b shell zsh -f -i
zpty -w shell 'PS1=; autoload -Uz compinit; compinit -u -D; source {script}; cd {folder}; echo READY-$((1 + 1))'
zpty -r -m shell line '*READY-2*'
zpty -w -n shell $'{typed}\\t'
zpty -r -m shell line '*{rest}*' && print found
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
@pytest.mark.parametrize(("typed", "rest"), [
    ("webpte insp", "ect"),
    ("webpte run mod", "el.pte"),
    ("webpte run model.pte --data w", "eights.ptd"),
    ("webpte run model.pte --fallback ", "cpu"),
    ("webpte run model.pte --rep", "eat"),
    ("webpte completion f", "ish"),
])  # fmt: skip
def test_completion_in_zsh(typed, rest, folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("zsh") / "_webpte"
    path.write_text(script("zsh"))
    ask = ZSH.format(script=path, folder=folder, typed=typed, rest=rest)
    done = subprocess.run(["zsh", "-f", "-c", ask], capture_output=True, text=True, timeout=60)
    assert done.stdout == "found\n", done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_completion_in_zsh_is_autoloadable():
    subprocess.run(["zsh", "-n", "-c", script("zsh")], check=True)


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.parametrize(("typed", "offered"), [
    ("webpte insp", {"inspect"}),
    ("webpte run mod", {"model.pte"}),
    ("webpte run model.pte --data wei", {"weights.ptd"}),
    ("webpte run model.pte --fallback ", {"cpu"}),
    ("webpte run model.pte --rep", {"--repeat"}),
    ("webpte completion f", {"fish"}),
    ("webpte bundle model.pte -o si", {"site/"}),
])  # fmt: skip
def test_completion_in_fish(typed, offered, folder):
    ask = f"{script('fish')}\ncomplete --do-complete '{typed}'"
    done = subprocess.run(["fish", "--no-config", "-c", ask], capture_output=True, text=True, cwd=folder, check=True)
    assert {line.split("\t")[0] for line in done.stdout.splitlines()} == offered and not done.stderr


def test_completion_bash_prints_script(capsys):
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == script("bash")
