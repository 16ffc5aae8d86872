"""Images in a terminal chat: added by a command, dropped on the terminal or typed as a path, saved and loaded."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.harness.errors import raises
from tests.support.models.tiny_vlm import picture
from webpte.cli.chat.conversation import Conversation, Question, run_command
from webpte.errors import InputError


@pytest.fixture
def talk():
    return conversation(sees=True)


def conversation(sees: bool) -> Conversation:
    text_model = SimpleNamespace(images=object() if sees else None)
    llm: Any = SimpleNamespace(text_model=text_model, capacity=100)
    return Conversation(llm, {})


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "my cat.png"
    picture(1).save(path)
    return path


def part(path: Any) -> dict[str, str]:
    return {"type": "image", "path": str(path)}


def ask(talk: Conversation, text: str) -> Any:
    question = run_command(talk, text)
    return question.content if isinstance(question, Question) else None


def test_image_command_adds_an_image_to_the_next_question_only(talk, image, capsys):
    assert ask(talk, f"/image {image}") is None
    assert "my cat.png, 56 × 40 pixels" in capsys.readouterr().out
    assert ask(talk, "what is it?") == [part(image), {"type": "text", "text": "what is it?"}]
    assert ask(talk, "and now?") == "and now?"


@pytest.mark.parametrize("form", ["'{}'", '"{}"', "{escaped}", "file://{quoted}"])
def test_path_of_an_image_in_a_message_is_the_image(talk, image, form):
    escaped, quoted = str(image).replace(" ", "\\ "), str(image).replace(" ", "%20")
    word = form.format(image, escaped=escaped, quoted=quoted)
    for text in (f"{word} what's in it?", f"what's in it? {word}"):
        assert ask(talk, text) == [part(image), {"type": "text", "text": "what's in it?"}]
    assert ask(talk, word) is None and talk.images == [str(image)]  # the question follows


def test_path_that_names_no_image_is_text(talk, image, tmp_path):
    (tmp_path / "notes.txt").write_text("")
    for text in (f"see {tmp_path}/missing.png", f"see {tmp_path}/notes.txt", "what's this 'or that'?"):
        assert ask(talk, text) == text
    assert ask(talk, f"/{image}") == str(image)  # two slashes
    blind = conversation(sees=False)
    assert ask(blind, f"see '{image}'") == f"see '{image}'"
    with raises(InputError, "/image", code="no_images"):
        run_command(blind, f"/image {image}")


def test_unreadable_image_is_refused_and_not_added(talk, tmp_path):
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    for text in (f"/image {tmp_path}/a.png", f"/image {tmp_path}/missing.png", f"{tmp_path}/a.png what?"):
        with raises(InputError, "/image", code="unreadable"):
            run_command(talk, text)
    assert talk.images == []


def test_saved_conversation_about_an_image_is_loaded_as_it_was(talk, image, tmp_path):
    question = run_command(talk, f"'{image}' what?")
    assert question is not None
    talk.keep(question, "a cat")
    talk.save(str(tmp_path / "talk.json"))
    other = conversation(sees=True)
    other.load(str(tmp_path / "talk.json"))
    assert other.messages == talk.messages and other.last_question().content == question.content
    wrong: list[Any] = [
        [],
        [{"type": "image"}],
        [{"type": "image", "path": 1}],
        [{"type": "audio", "path": "a"}],
        ["a"],
    ]
    for content in wrong:
        (tmp_path / "talk.json").write_text(json.dumps([{"role": "user", "content": content}]))
        with raises(InputError, code="invalid_message"):
            other.load(str(tmp_path / "talk.json"))
