"""The questions that models are asked, and how answers are judged."""

from __future__ import annotations

import pytest

from tests.studies.questions.__main__ import judged
from tests.studies.questions.asking import is_right
from tests.studies.questions.questions import QUESTIONS, Question


def test_questions_are_forty_without_their_answers():
    assert len(QUESTIONS) == len({question.text for question in QUESTIONS}) == 40
    reports = [question.text for question in QUESTIONS if is_right(question, question.text)]
    assert not reports


@pytest.mark.parametrize(
    ("accepted", "answer", "right"),
    [
        ("4|four", "The answer is 4.", True),
        ("4|four", "Four legs.", True),
        ("4|four", "There are 14 of them, or 4000.", False),
        ("H2O|H₂O", "It is H₂O.", True),
        ("Paris", "Parisian streets", False),
        ("Paris", "", False),
    ],
)
def test_is_right_accepts_answer_among_words(accepted, answer, right):
    assert is_right(Question("?", accepted), answer) is right


def test_judged_compares_with_reference(capsys):
    reference = [True] * 10 + [False] * 5
    assert judged(reference, [True] * 9 + [False] + [True] * 5) == 0
    assert "answers 9 of the 10 that the first answers, 90%" in capsys.readouterr().out
    assert judged(reference, [True] * 8 + [False] * 2 + [True] * 5) == 1
