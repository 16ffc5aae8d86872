"""Reasoning and answer: where a thought begins and ends, for every way to cut a response into tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from webpte.llm.engine.reasoning import PieceKind, ReasoningSplitter
from webpte.llm.thinking import TAGS, Thought, ThoughtTags, thought_tags

THINK, CHANNEL, BRACKET = TAGS
BEGIN, END, OTHER = 1, 2, 3  # tokens
TEXTS = 2000


def thought(
    tags: ThoughtTags = THINK, *, ids: bool = False, is_open: bool = False, budget: int | None = None
) -> Thought:
    begin_id, end_id = (BEGIN, END) if ids else (None, None)
    return Thought(tags, begin_id, end_id, is_open, budget, closing=(7, END, 8), separator=(8,))


def split(form: Thought, texts: Sequence[str], **options: bool) -> tuple[str, str, list[PieceKind]]:
    """Return the reasoning, the answer and the kinds of tokens. With ids, a text that is a tag is its token."""
    splitter = ReasoningSplitter(form, **options)
    tokens = {form.tags.begin: BEGIN, form.tags.end: END} if form.begin_id is not None else {}
    reasoning, answer, kinds = "", "", []
    for text in texts:
        token = tokens.get(text, OTHER)
        part = splitter.push(token, "" if splitter.is_tag(token) else text)
        reasoning, answer = reasoning + part.reasoning, answer + part.text
        kinds.append(part.kind)
    rest = splitter.flush("")
    return reasoning + rest.reasoning, answer + rest.text, kinds


def expected(form: Thought, text: str) -> tuple[str, str]:
    """Return reasoning and answer of a response whose tags are text, by searching all of it."""
    tags = form.tags
    if not form.is_open:
        if not text.lstrip().startswith(tags.begin):
            return "", text
        text = text.lstrip().removeprefix(tags.begin)
    reasoning, end, answer = text.partition(tags.end)
    reasoning = reasoning.strip()
    if tags.label and f"{reasoning}\n".startswith(f"{tags.label}\n"):
        reasoning = reasoning.removeprefix(tags.label).strip()
    return reasoning, answer.lstrip() if end else answer


def random_text(chance: random.Random, tags: ThoughtTags) -> str:
    tag_parts = [tag[:at] for tag in (tags.begin, tags.end) for at in range(1, len(tag) + 1)]
    parts = [
        tags.begin,
        tags.end,
        tags.begin,
        tags.end,
        "<",
        "a",
        "bé",
        "\n",
        "\n\n",
        " ",
        tags.label,
        "{}",
        *tag_parts,
    ]
    return "".join(chance.choice(parts) for _ in range(chance.randrange(9)))


@pytest.mark.parametrize("tags", TAGS, ids=lambda tags: tags.begin)
def test_split_of_random_texts_at_every_point_equals_search(tags):
    chance = random.Random(5)
    for _ in range(TEXTS):
        form = thought(tags, is_open=chance.random() < 0.5)
        opened = "" if form.is_open or chance.random() < 0.3 else tags.begin
        text = opened + random_text(chance, tags)
        cuts = [[text[:at], text[at:]] for at in range(len(text) + 1)]
        assert {split(form, parts)[:2] for parts in [*cuts, list(text)]} == {expected(form, text)}, repr(text)


@pytest.mark.parametrize("tags", TAGS, ids=lambda tags: tags.begin)
def test_split_by_token_ids_keeps_quoted_tags(tags):
    quoted = f"it writes {tags.end[:3]}", f"{tags.end[3:]} in words"
    parts = [
        tags.begin,
        f"{tags.label}\n",
        *quoted,
        "\n",
        tags.end,
        "\n\n",
        f"The tag {tags.begin} "[:5],
        "x",
        tags.end,
    ]
    reasoning, answer, kinds = split(thought(tags, ids=True), parts)
    assert reasoning == f"it writes {tags.end} in words"
    assert answer == "The tx" + tags.end
    assert kinds == ["reasoning"] * 7 + ["answer"] * 3


@pytest.mark.parametrize("ids", [False, True])
def test_tag_after_the_start_is_text(ids):
    texts = ["The tag ", "<think>", " begins, ", "</think>", " ends."]
    assert split(thought(ids=ids), texts) == ("", "".join(texts), ["answer"] * 5)


def test_thought_that_never_ends_is_reasoning():
    assert split(thought(is_open=True), ["so\n", "on </thi"])[:2] == ("so\non </thi", "")


def test_empty_thought_has_no_reasoning():
    assert split(thought(ids=True), ["<think>", "\n\n", "</think>", "\n\n", "Hi"])[:2] == ("", "Hi")


def test_tag_that_the_prompt_has_may_be_repeated():
    assert split(thought(ids=True, is_open=True), ["<think>", "a", "</think>", "b"])[:2] == ("a", "b")


def test_response_without_thought_keeps_its_white_space():
    reasoning, answer, kinds = split(thought(), ["\n", " ", "Hi", " \n"])
    assert (reasoning, answer, kinds) == ("", "\n Hi \n", ["pending", "pending", "answer", "answer"])


def test_budget_is_spent_end_is_due():
    splitter = ReasoningSplitter(thought(ids=True, budget=2))
    assert splitter.due is None and splitter.max_tokens == 2
    for token in (BEGIN, OTHER):
        splitter.push(token, "a")
        assert splitter.due is None
    splitter.push(OTHER, "b")
    forced: list[int] = []
    while (due := splitter.due) is not None:
        splitter.push(due, "\n" if due != END else "")
        forced.append(due)
    assert forced == [7, END, 8] and splitter.state == "answer" and splitter.max_tokens is None


def test_budget_of_zero_ends_an_open_thought_at_once():
    assert ReasoningSplitter(thought(ids=True, is_open=True, budget=0)).due == 7


def test_constrained_answer_follows_the_separator_exactly():
    splitter = ReasoningSplitter(thought(ids=True, is_open=True), constrained=True)
    splitter.push(OTHER, "a")
    splitter.push(END, "")
    assert splitter.due == 8 and splitter.push(8, "\n\n") == ("", "", "reasoning")
    assert splitter.due is None and splitter.push(OTHER, " x") == (" x", "", "answer")


def test_constrained_response_may_begin_a_thought_only_by_a_token():
    assert ReasoningSplitter(thought(), constrained=True).state == "answer"
    splitter = ReasoningSplitter(thought(ids=True), constrained=True)
    assert splitter.push(OTHER, " ") == (" ", "", "answer") and splitter.state == "answer"


@pytest.mark.parametrize(
    ("template", "tags"),
    [
        (None, None),
        ("{{ messages }}", None),
        ("{{ '<think>\\n\\n</think>\\n\\n' }}", THINK),
        ("{{ content.split('</think>')[-1] }}", THINK),
        ("{{ '<|channel>thought\\n<channel|>' }}", CHANNEL),
        ("[THINK]{{ x }}[/THINK]", BRACKET),
    ],
)
def test_tags_of_template(template, tags):
    assert thought_tags(template) is tags
