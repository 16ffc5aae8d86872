"""Print what a shell needs to complete commands, options, choices and files. For bash, zsh and fish.

bash: eval "$(webpte completion bash)" in ~/.bashrc
zsh: webpte completion zsh > FOLDER/_webpte, FOLDER one of $fpath
fish: webpte completion fish > ~/.config/fish/completions/webpte.fish
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from . import COMMANDS, load_command

# What a value is, by the name that help gives it: a pattern of files, or a folder. All else is typed.
FILES = {
    "PTE": "*.pte",
    "PTD": "*.ptd",
    "NPZ": "*.npz",
    "JSONL": "*.jsonl",
    "JSON": "*.json",
    "PNG": "*",
    "OUT": "*",
    "FILE": "*",
}
FOLDER = "DIR"
PROGRAMS = {"export": "*.gguf", "completion": ""}  # what the first argument is; else a program


@dataclass(frozen=True)
class CompletionOption:
    """An option of a command. `files` is a pattern, "/" for folders and "" for what is no file."""

    names: Sequence[str]
    help: str
    takes: bool
    choices: Sequence[str]
    files: str


@dataclass(frozen=True)
class CompletionCommand:
    name: str
    help: str
    options: Sequence[CompletionOption]
    choices: Sequence[str]  # for its argument
    files: str | None  # likewise; None if it has none


def commands() -> list[CompletionCommand]:
    return [_command(name, summary) for name, summary in COMMANDS.items()]


def _command(name: str, summary: str) -> CompletionCommand:
    actions = load_command(name)[1]._actions
    options = [_option(action) for action in actions if action.option_strings]
    first = next((action for action in actions if not action.option_strings), None)
    files = None if first is None else PROGRAMS.get(name, "*.pte")
    return CompletionCommand(name, summary, options, _texts(first.choices) if first is not None else (), files)


def _option(action: argparse.Action) -> CompletionOption:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    files = "/" if metavar == FOLDER else FILES.get(metavar, "")
    help_text = (action.help or "").replace("%%", "%")
    return CompletionOption(action.option_strings, help_text, action.nargs != 0, _texts(action.choices), files)


def _texts(choices: object) -> list[str]:
    return [str(choice) for choice in choices] if isinstance(choices, Sequence) else []


# -- bash ----------------------------------------------------------------------------------------------------------

BASH = """\
# Completion of webpte for bash; made by `webpte completion bash`.
_webpte_files() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -d -- "$cur"))
    [[ -z $1 ]] || COMPREPLY+=($(compgen -f -X "!$1" -- "$cur"))
    [[ $1 != '*' ]] || COMPREPLY=($(compgen -f -- "$cur"))
    compopt -o filenames 2> /dev/null
}
_webpte() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= i
    # --option=value comes as three words
    if [[ $cur == = ]]; then cur=
    elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} != -* ]]; then
            command=${COMP_WORDS[i]}
            break
        fi
    done
    case $command in
    '')
        COMPREPLY=($(compgen -W %(commands)s -- "$cur"))
        return ;;
    esac
    case "$command $prev" in
%(values)s
    esac
    if [[ $cur == -* ]]; then
        case $command in
%(options)s
        esac
        return
    fi
    case $command in
%(arguments)s
    esac
}
complete -F _webpte webpte
"""


def _bash(found: Sequence[CompletionCommand]) -> str:
    values, options, arguments = [], [], []
    for command in found:
        for option in command.options:
            if option.takes:
                cases = " | ".join(shlex.quote(f"{command.name} {name}") for name in option.names)
                values.append(f"    {cases}) {_bash_reply(option.choices, option.files)}; return ;;")
        names = " ".join(name for option in command.options for name in option.names)
        options.append(f"        {command.name}) {_bash_reply(names.split(), '')} ;;")
        if command.files is not None:
            arguments.append(f"    {command.name}) {_bash_reply(command.choices, command.files)} ;;")
    words = " ".join([*(command.name for command in found), "--help", "--version"])
    parts = {"values": values, "options": options, "arguments": arguments}
    return BASH % {"commands": shlex.quote(words), **{name: "\n".join(lines) for name, lines in parts.items()}}


def _bash_reply(choices: Sequence[str], files: str) -> str:
    if choices:
        return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(choices))} -- "$cur"))'
    return f"_webpte_files {shlex.quote('' if files == '/' else files)}" if files else ":"


# -- zsh -----------------------------------------------------------------------------------------------------------

ZSH = """\
#compdef webpte
# Completion of webpte for zsh; made by `webpte completion zsh`.
_webpte() {
    local -a commands
    commands=(
%(commands)s
    )
    if ((CURRENT == 2)); then
        _describe -t commands command commands
        _arguments '--help[show help]' '--version[show the version]'
        return
    fi
    local command=$words[2]
    shift words
    ((CURRENT--))
    case $command in
%(cases)s
    esac
}
if [[ $funcstack[1] == _webpte ]]; then _webpte "$@"; else compdef _webpte webpte; fi
"""


def _zsh(found: Sequence[CompletionCommand]) -> str:
    named = [f"        {shlex.quote(f'{command.name}:{command.help}')}" for command in found]
    return ZSH % {"commands": "\n".join(named), "cases": "\n".join(map(_zsh_case, found))}


def _zsh_case(command: CompletionCommand) -> str:
    lines = [f"    {command.name})", "        _arguments -S \\"]
    for option in command.options:
        told = _zsh_text(option.help)
        value = f":{option.names[-1].lstrip('-')}:{_zsh_value(option.choices, option.files)}" if option.takes else ""
        lines += [f"            {shlex.quote(f'*{name}[{told}]{value}')} \\" for name in option.names]
    if command.files is not None:
        lines.append(f"            {shlex.quote(f'1:file:{_zsh_value(command.choices, command.files)}')} \\")
    return "\n".join([*lines, "            && return ;;"])


def _zsh_text(text: str) -> str:
    return "".join(f"\\{c}" if c in "[]:\\" else c for c in text)


def _zsh_value(choices: Sequence[str], files: str) -> str:
    if choices:
        return f"({' '.join(choices)})"
    if files in ("", "/", "*"):
        return {"": " ", "/": "_files -/", "*": "_files"}[files]
    return f'_files -g "{files}"'


# -- fish ----------------------------------------------------------------------------------------------------------


def _fish(found: Sequence[CompletionCommand]) -> str:
    lines = ["# Completion of webpte for fish; made by `webpte completion fish`.", "complete -c webpte -f"]
    for command in found:
        told = _fish_text(command.help)
        lines.append(f"complete -c webpte -n __fish_use_subcommand -a {command.name} -d {told}")
    for command in found:
        seen = f"complete -c webpte -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            flags = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            lines.append(f"{seen} {flags}{_fish_value(option)} -d {_fish_text(option.help)}")
        if command.choices:
            lines.append(f"{seen} -a {_fish_text(' '.join(command.choices))}")
        elif command.files is not None:
            lines.append(f"{seen} -F")
    return "\n".join(lines) + "\n"


def _fish_value(option: CompletionOption) -> str:
    if not option.takes:
        return ""
    if option.choices:
        return f" -x -a {_fish_text(' '.join(option.choices))}"
    if option.files == "/":
        return " -x -a '(__fish_complete_directories)'"
    return " -r -F" if option.files else " -x"


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS: dict[str, Callable[[Sequence[CompletionCommand]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def completion(shell: str) -> str:
    """The script for a shell."""
    return SHELLS[shell](commands())


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def run(arguments: argparse.Namespace) -> None:
    print(completion(arguments.shell), end="")
