"""Talk to a language model. /help lists the commands of a conversation; Ctrl-C stops an answer.

Alt-Enter, or a backslash at the end of a line, begins another line of the same message. Ctrl-C at the prompt, twice,
leaves with exit code 130. Without a terminal, lines are read from stdin and answers are written as plain text.
"""

from __future__ import annotations

import argparse
import sys

from ...errors import Error, InputError
from ...llm import ContextFullError
from .. import generate, interrupts
from ..generation_options import add_settings, settings
from ..output import say
from .commands import obey
from .conversation import Conversation, Question
from .screen import Display, Lines, open_display, open_lines


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program, or the folder of a bundle")
    parser.add_argument("--system", metavar="TEXT", help="instructions that stand before the conversation")
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    chosen = settings(arguments)
    with generate.open_model(arguments) as llm:
        if llm.template is None:
            raise InputError("the model has no chat template; use webpte generate, which continues a text as it is")
        talk = Conversation(llm, chosen, arguments.system)
        lines = open_lines(talk)
        if lines.interactive:
            interrupts.go_on_after()
            say("/help lists commands; Ctrl-C stops an answer.")
        return _talk(talk, lines, open_display(lines.interactive))


def _talk(talk: Conversation, lines: Lines, show: Display) -> int:
    """Until somebody leaves. Whether all went well matters where nobody is there to see."""
    failed, warned = False, False
    while not talk.over:
        try:
            text = lines.read()
            interrupts.watch_again()  # a prompt with line editing looks after signals itself
            warned = False
        except EOFError:
            break
        except KeyboardInterrupt:  # at the prompt, where it may have been meant for an answer
            if warned or not lines.interactive:
                interrupts.leave()
            warned = True
            interrupts.watch_again()
            say("(Ctrl-C again, /exit or Ctrl-D leaves)")
            interrupts.handled()
            continue
        failed |= not _turn(talk, text, lines, show)
    return 1 if failed and not lines.interactive else 0


def _turn(talk: Conversation, text: str, lines: Lines, show: Display) -> bool:
    """Do what a text says; whether that went well."""
    try:
        question = obey(talk, text)
        if question is not None:
            _answer(talk, question, show)
    except ContextFullError as error:
        say(f"{type(error).__name__}: {error}. /undo takes the last turn back, /reset begins anew", error=True)
        return False
    except Error as error:
        say(f"{type(error).__name__}: {error}", error=True)
        return False
    except KeyboardInterrupt:
        if not lines.interactive:  # nobody is there to go on
            interrupts.leave()
        say("(stopped)")
        interrupts.handled()
    return True


def _answer(talk: Conversation, question: Question, show: Display) -> None:
    """Ask, and show what comes as it comes. What came before Ctrl-C or an error is part of the conversation."""
    answer = talk.ask(question)
    try:
        with show.answer() as shown:
            for piece in answer:
                shown.add(piece.text)
    finally:
        if answer.tokens:
            talk.keep(question, answer.text)
            print(generate.summary(answer.usage), file=sys.stderr, flush=True)
