"""Chat with a language model. /help lists commands; Ctrl-C stops an answer.

Alt-Enter, or a backslash at the end of a line, starts another line of the same message. Ctrl-C at the prompt, twice,
exits with code 130. Without a terminal, each line of stdin is a message and answers are plain text.
"""

from __future__ import annotations

import argparse
import sys

from ...errors import Error, InputError
from ...llm import ContextFullError
from .. import generate, interrupts
from ..generation_options import adapter_settings, add_settings, settings
from ..output import say
from ..parsing import add_program
from .conversation import Conversation, Question, run_command
from .screen import Display, Lines, open_display, open_lines


def configure(parser: argparse.ArgumentParser) -> None:
    add_program(parser, model=True)
    parser.add_argument("--system", metavar="TEXT", help="the system message")
    add_settings(parser)


def run(arguments: argparse.Namespace) -> int:
    options = settings(arguments, **adapter_settings(arguments))
    with generate.open_model(arguments) as llm:
        if llm.template is None:
            raise InputError(
                "the model has no chat template",
                hint="Use webpte generate, which continues a text as it is.",
                code="no_chat_template",
            )
        talk = Conversation(llm, options, arguments.system)
        lines = open_lines(talk)
        if lines.interactive:
            interrupts.go_on_after()
            say("/help lists commands; Ctrl-C stops an answer.")
        return _talk(talk, lines, open_display(lines.interactive))


def _talk(talk: Conversation, lines: Lines, display: Display) -> int:
    """Read and answer messages until the end. Return 1 if one has failed and input is not interactive."""
    failed, warned = False, False
    while not talk.over:
        try:
            text = lines.read()
            interrupts.watch_again()  # a prompt with line editing handles signals itself
            warned = False
        except EOFError:
            break
        except KeyboardInterrupt:  # at the prompt: possibly meant for the answer before it
            if warned or not lines.interactive:
                interrupts.leave()
            warned = True
            interrupts.watch_again()
            say("(press Ctrl-C again, or /exit or Ctrl-D, to leave)")
            interrupts.handled()
            continue
        failed |= not _turn(talk, text, lines, display)
    return 1 if failed and not lines.interactive else 0


def _turn(talk: Conversation, text: str, lines: Lines, display: Display) -> bool:
    """Run a command or answer a question. Return whether it succeeded."""
    try:
        question = run_command(talk, text)
        if question is not None:
            _answer(talk, question, display)
    except ContextFullError as error:
        say(f"{error} /undo removes the last turn, /reset starts over", error=True)
        return False
    except Error as error:
        say(str(error), error=True)
        return False
    except KeyboardInterrupt:
        if not lines.interactive:
            interrupts.leave()
        say("(stopped)")
        interrupts.handled()
    return True


def _answer(talk: Conversation, question: Question, display: Display) -> None:
    """Generate an answer and display it. The text before Ctrl-C or an error becomes part of the conversation."""
    answer = talk.ask(question)
    try:
        with display.answer() as view:
            answer.report_prompt(view.read_prompt)
            for piece in answer:
                if piece.reasoning:
                    view.think(piece.reasoning)
                view.add(piece.text)
    finally:
        if answer.tokens:
            talk.keep(question, answer.text, answer.reasoning)
            print(generate.summary(answer.usage), file=sys.stderr, flush=True)
