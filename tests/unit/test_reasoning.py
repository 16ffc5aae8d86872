"""Reasoning and answer: where a thought begins and ends, for every way to cut a response into tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from webpte.llm.engine.reasoning import PieceKind, ReasoningSplitter
from webpte.llm.loading import stop_tokens
from webpte.llm.thinking import HARMONY, TAGS, Thought, ThoughtTags, thought_after, thought_tags

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


MARKS = ("<|channel|>", "<|end|>", "<|message|>", "<|start|>", "<|return|>")
ANALYSIS = ("<|channel|>", "ana", "lysis", "<|message|>", "So", " 4.\n", "<|end|>")
FINAL = ("<|start|>", "assistant", "<|channel|>", "final", "<|message|>")


class Marked:
    """A tokenizer of the marks of harmony, each a token, and of characters."""

    def token_id(self, token):
        return MARKS.index(token) if token in MARKS else None

    def encode(self, text, parse_special=False):
        for number, mark in enumerate(MARKS):
            text = text.replace(mark, chr(number)) if parse_special else text
        return list(map(ord, text))

    def decode(self, tokens, specials=False):
        return "".join(MARKS[token] if token < len(MARKS) else chr(token) for token in tokens)


def harmony(parts, prompt="<|start|>assistant", budget=None, **options):
    """Return the reasoning, the answer, the kinds, and the tokens that came by force, as text."""
    tokenizer: Any = Marked()
    forced, reasoning, answer, kinds = [], "", "", []
    thought_of_response = thought_after(tokenizer.encode(prompt, parse_special=True), HARMONY, tokenizer, budget)
    assert thought_of_response is not None
    splitter = ReasoningSplitter(thought_of_response, **options)
    waiting = list(parts)
    while waiting or splitter.due is not None:
        due = splitter.due
        forced += [due] if due is not None else []
        part = tokenizer.decode([due]) if due is not None else waiting.pop(0)
        token = MARKS.index(part) if part in MARKS else ord(part[0])
        got = splitter.push(token, "" if part in MARKS else part)
        reasoning, answer = reasoning + got.reasoning, answer + got.text
        kinds.append(got.kind)
    rest = splitter.flush("")
    return reasoning + rest.reasoning, answer + rest.text, kinds, tokenizer.decode(forced)


def test_harmony_analysis_is_reasoning_and_final_the_answer():
    reasoning, answer, kinds, _ = harmony([*ANALYSIS, *FINAL, " Four", ".", "<|return|>"])
    assert (reasoning, answer) == ("So 4.", "Four.")
    assert kinds == ["reasoning"] * 12 + ["answer"] * 3


@pytest.mark.parametrize("channel", ["final", "commentary"])
def test_harmony_response_without_analysis_is_the_answer(channel):
    parts = ["<|channel|>", channel, "<|message|>", "Hi"]
    assert harmony(parts)[:3] == ("", "Hi", ["reasoning"] * 3 + ["answer"])
    assert harmony(["Hi"], prompt="<|start|>assistant<|channel|>final<|message|>")[:2] == ("", "Hi")


def test_harmony_message_after_the_answer_has_no_header_in_the_text():
    parts = ["<|channel|>", "commentary", "<|message|>", "Wait. ", "<|end|>", *FINAL, "Hi"]
    assert harmony(parts)[:2] == ("", "Wait. Hi")


def test_harmony_thought_whose_budget_is_spent_goes_on_in_the_final_channel():
    reasoning, answer, _, forced = harmony([*ANALYSIS[:5], "Hi"], budget=1)
    assert (reasoning, answer, forced) == ("So", "Hi", f"\n<|end|>{HARMONY.separator}")


def test_harmony_constrained_answer_begins_in_the_final_channel():
    reasoning, answer, kinds, forced = harmony([*ANALYSIS, "{}"], constrained=True)
    assert (reasoning, answer, forced) == ("So 4.", "{}", HARMONY.separator)
    assert kinds.count("answer") == 1


def test_harmony_cut_within_a_header_has_no_text():
    assert harmony([*ANALYSIS, *FINAL[:4]])[:2] == ("So 4.", "")


def test_tags_of_a_template_with_channels_are_those_of_harmony():
    assert thought_tags("{{ '<|start|>assistant<|channel|>analysis<|message|>' }}") is HARMONY


def test_end_of_a_message_of_harmony_does_not_stop_an_answer():
    tokenizer: Any = Marked()
    assert stop_tokens(tokenizer, [4]) == {4}
    tokenizer.token_id = {"<|end|>": 1, "<|im_end|>": 9}.get
    assert stop_tokens(tokenizer, []) == {1, 9}
