"""Run every example as its docstring describes, on programs of its own export script."""

from __future__ import annotations

import ast
import functools
import re

import numpy as np
import pytest

from tests.support.harness import shown_examples
from tests.support.harness.gate import slow_but
from tests.support.models import example_models
from tests.support.models.example_models import EXAMPLES, run_script
from tests.support.models.smollm import smollm2


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run an example of `shown_examples` once; return its folder and its output."""

    @functools.cache
    def get(name):
        (example,) = (example for example in shown_examples.ALL if example.name == name)
        folder = tmp_path_factory.mktemp(name)
        return folder, example.run(folder)

    return get


@pytest.mark.slow
def test_semantic_search_example_finds_related_sentences(ran):
    _, result = ran("semantic_search")
    best = dict(re.findall(r"^(\S.*\?)\n  0\.\d\d  (.*)$", result, re.MULTILINE))
    assert best == {
        "How do I keep warm at night?": "Extra blankets are in the wardrobe.",
        "How do I get on the internet?": "The password for the wireless network is on the back of your key card.",
        "I feel ill, who can help?": "The doctor on duty can be reached by telephone.",
        "What can vegetarians eat here?": "We have dishes without meat and without milk.",
        "What will the weather be like?": "Thunderstorms are expected in the afternoon.",
        "Where can I get money?": "Cash machines are next to the post office.",
    }


@pytest.mark.slow
def test_semantic_search_answers_a_question_of_the_command_line():
    folder = example_models.semantic_search()
    asked = run_script(folder, EXAMPLES / "semantic_search" / "search.py", "minilm.pte", "May my puppy run free?")
    assert asked.splitlines()[1].endswith("Dogs must be kept on a lead in the park.")


def test_face_detection_finds_the_faces_that_were_drawn(ran):
    folder, result = ran("face_detection")
    rows = re.findall(r"(\d+)% sure, from \((\d+), (\d+)\) to \((\d+), (\d+)\)", result)
    assert (folder / "marked.png").read_bytes() != (folder / "faces.png").read_bytes()
    assert len(rows) == len(result.splitlines()) == 3 and all(int(row[0]) >= 80 for row in rows)
    boxes = np.array(sorted([int(side) for side in row[1:]] for row in rows))
    drawn = np.array(sorted(face[:3] for face in faces_drawn()))  # left, top, size: hair and neck included
    centers = (boxes[:, :2] + boxes[:, 2:]) / 2
    assert np.abs(centers - (drawn[:, :2] + drawn[:, 2:] * [0.5, 0.53])).max() < 10
    assert (np.abs((boxes[:, 3] - boxes[:, 1]) / drawn[:, 2] - 0.75) < 0.1).all()


def faces_drawn():
    source = ast.parse((EXAMPLES / "face_detection" / "draw.py").read_text())
    (faces,) = [n.value for n in source.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "FACES"]
    return ast.literal_eval(faces)


@pytest.mark.slow
def test_example_image_without_faces_prints_nothing(tmp_path):
    from PIL import Image

    stripes = np.zeros((120, 160, 3), np.uint8)
    stripes[:, ::8] = 255
    Image.fromarray(stripes).save(tmp_path / "stripes.png")
    arguments = (example_models.face_detection(), "stripes.png", "marked.png")
    assert run_script(tmp_path, EXAMPLES / "face_detection" / "detect.py", *arguments) == ""


@pytest.mark.slow
def test_example_own_op_output(ran):
    _, said = ran("own_op")
    assert re.search(r"before: 1 op of forward cannot run:\n  audio::snake\.out", said)
    assert said.endswith("after: 1 submit, result (3, 4)\nalso: (64, 4)\nalso: (1, 4)\n")


EAGER = """
import sys
sys.path.insert(0, sys.argv[1])
import export, numpy as np, snake, torch, webpte

torch.manual_seed(0)
module = export.Wave()
with webpte.load("snake.pte") as program:
    for rows in (64, 3, 1):
        x = torch.randn(rows, 16)
        with torch.no_grad():
            want = module(x).numpy()
        got = program.method()(x)
        assert got.shape == want.shape and np.abs(got - want).max() < 1e-5, (rows, got - want)
"""


@pytest.mark.slow  # imports ExecuTorch; the gate compares the image of its results
def test_example_own_op_equals_torch():
    run_script(example_models.own_op(), "-c", EAGER, EXAMPLES / "own_op")


def check_chat(said, most):
    """Five answers; each question after the first finds most of its prompt in the cache."""
    assert said.count("\n> ") == 4 and said.startswith("> What is the capital of France?\n")
    counts = [tuple(map(int, row)) for row in re.findall(r"\[(\d+) prompt tokens, (\d+) of them in.*; (\d+) new", said)]
    assert len(counts) == 5 and all(1 <= new <= most for _, _, new in counts)
    assert counts[0][1] == 0 and all(reused >= 0.6 * prompt for prompt, reused, _ in counts[1:])
    assert said.endswith("Two seeds, two answers.\n")


@pytest.mark.slow  # the gate runs the same script over the model of the documentation
def test_chat():
    said = run_script(example_models.talker(), EXAMPLES / "chat" / "chat.py", "smollm2.pte", "--max-new-tokens", "24")
    check_chat(said, 24)


@pytest.mark.slow
def test_chat_with_a_real_model():
    said = run_script(smollm2("4w").folder, EXAMPLES / "chat" / "chat.py", "smollm2.pte", "--max-new-tokens", "24")
    check_chat(said, 24)
    assert "Paris" in said


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.py")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_example_docstrings_name_commands(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text
    if path.name != "snake.py":  # is imported, not run
        assert f"python {path.name}" in text and "pip install" in text
    assert f"{path.parent.name}/" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize(
    "example", slow_but(shown_examples.ALL[1:], shown_examples.ALL), ids=lambda example: example.name
)
def test_example_output_and_image_equal_readme(example, ran):
    """Images are drawn again: fonts and rounding may move a few pixels, a wrong result moves more."""
    folder, printed = ran(example.name)
    assert example.agrees(printed), f"{example.readme} shows\n{example.shown}\nbut it printed\n{printed}"
    assert not example.agrees(printed + "more\n") and not example.agrees(printed.replace("e", "E", 1))
    kept = example.readme.parent / example.picture
    assert f"]({example.picture})" in example.readme.read_text(encoding="utf-8")
    assert kept.stat().st_size < 80_000
    assert shown_examples.difference(folder / example.picture, kept) < 0.02


def test_examples_are_all_shown():
    folders = {path.parent.name for path in EXAMPLES.glob("*/*.py")}
    assert {example.name for example in shown_examples.ALL} == folders
