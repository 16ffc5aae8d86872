"""Print what a shell needs to complete commands, options, choices and files. For bash, zsh and fish.

bash: eval "$(webpte completion bash)" in ~/.bashrc
zsh: webpte completion zsh > FOLDER/_webpte, FOLDER one of $fpath
fish: webpte completion fish > ~/.config/fish/completions/webpte.fish
"""

from __future__ import annotations

import argparse

from .shells import SHELLS, completion


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("shell", choices=tuple(SHELLS), metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def run(arguments: argparse.Namespace) -> None:
    print(completion(arguments.shell), end="")
