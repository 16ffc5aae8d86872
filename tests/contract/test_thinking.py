"""A model that thinks: reasoning and answer in Python, the budget, constraints, and the rendering of earlier turns."""

from __future__ import annotations

import pytest

import webpte
from tests.studies.in_page.template_corpus import TEMPLATES
from tests.support.harness.errors import raises
from tests.support.models.thinker import OPEN_TEMPLATE, REASONING, TEMPLATE, TEXT, write_thinker
from tests.support.models.tokenizers import byte_level
from webpte.llm import LLM
from webpte.llm.context import ContextLimit
from webpte.llm.prompts import SpecialTokens
from webpte.llm.settings import sampling_params_from
from webpte.llm.text_model import TextModel

QUESTION = [{"role": "user", "content": "Hi"}]
GEMMA4 = (
    "{% if enable_thinking %}<|turn>system\n<|think|><turn|>\n{% endif %}{% for m in messages %}<|turn>{{ m.role }}\n"
    "{% if m.reasoning or m.reasoning_content %}<|channel>thought\n{{ m.reasoning }}<channel|>{% endif %}"
    "{{ m.content }}<turn|>\n{% endfor %}<|turn>model\n"
    "{% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %}"
)
LFM25 = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.thinking is defined %}<think>{{ m.thinking }}</think>"
    "{% endif %}{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)
# By family: the template, whether it begins the thought by default, and whether it knows a switch.
FAMILIES = {
    "Qwen3": (TEMPLATES["Qwen3"], False, True),
    "Qwen3.5": (TEMPLATES["Qwen3.5"], True, False),
    "SmolLM3": (TEMPLATES["SmolLM3"], False, True),
    "DeepSeek-R1": (OPEN_TEMPLATE, True, False),
    "LFM2.5": (LFM25, False, False),
    "Gemma 4": (GEMMA4, False, True),
}


@pytest.fixture(scope="module", params=["closed", "open"])
def llm(request, tmp_path_factory):
    """Return a model whose template begins the thought, or leaves that to the model."""
    template = OPEN_TEMPLATE if request.param == "open" else TEMPLATE
    with LLM(write_thinker(tmp_path_factory.mktemp("thinker"), request.param, template)) as model:
        yield model


def text_model(template):
    limit = ContextLimit(4096)
    return TextModel(
        byte_level(), SpecialTokens(), template, frozenset(), vocabulary=300, context_limit=limit, sampling_defaults={}
    )


@pytest.mark.gpu
def test_generation_separates_reasoning_from_answer(llm):
    answer = llm.generate("Hi")
    pieces = list(answer)
    assert (answer.reasoning, str(answer), answer.usage.finish_reason) == (REASONING, TEXT, "stop")
    assert "".join(piece.text for piece in pieces) == TEXT
    assert "".join(piece.reasoning for piece in pieces) == REASONING
    kinds = [piece.kind for piece in pieces]
    assert kinds == sorted(kinds, reverse=True) and set(kinds) == {"reasoning", "answer"}
    assert answer.usage.reasoning_tokens == kinds.count("reasoning") < answer.usage.completion_tokens == len(pieces)


@pytest.mark.gpu
def test_generation_without_thought_has_no_reasoning(llm):
    for settings in ({"think": False}, {"reasoning_effort": "none"}, {"thinking_budget": 0}):
        answer = llm.generate("Hi", **settings)
        assert (str(answer), answer.reasoning) == (TEXT, "")


@pytest.mark.gpu
def test_text_to_continue_is_not_split(llm):
    answer = llm.complete("<|im_start|>assistant\n", parse_special=True)
    assert str(answer).startswith("<think>") and str(answer).endswith(TEXT) and answer.reasoning == ""


@pytest.mark.gpu
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_thinking_budget_ends_the_thought(llm, budget):
    answer = llm.generate("Hi", thinking_budget=budget)
    words = ("The user", "The user greets", "The user greets me.")
    assert (str(answer), answer.reasoning) == (TEXT, words[budget - 1])
    with_logprobs = llm.generate("Hi", thinking_budget=budget, logprobs=True)
    assert str(with_logprobs) == TEXT and with_logprobs.tokens == answer.tokens


@pytest.mark.gpu
def test_thought_that_never_ends_has_no_answer(llm):
    answer = llm.generate("Hi", max_new_tokens=4)
    assert (str(answer), answer.usage.finish_reason) == ("", "length") and answer.reasoning.startswith(
        "The user greets"
    )


@pytest.mark.gpu
def test_constraint_holds_for_the_answer_only(llm):
    for settings in ({"choices": ["Good morning!", "No"]}, {"regex": "Good (morning|evening)!"}):
        answer = llm.generate("Hi", **settings)
        assert (str(answer), answer.reasoning, answer.usage.finish_reason) == (TEXT, REASONING, "stop")
    short = llm.generate("Hi", json_schema={"enum": ["a", "b"]}, thinking_budget=2)
    assert (str(short), short.reasoning) == ('"a"', "The user greets")
    assert str(llm.generate("Hi", json_schema={"enum": ["a", "b"]}, think=False)) == '"a"'


@pytest.mark.gpu
def test_end_token_in_the_thought_of_constrained_response_ends_the_thought_only(llm):
    end, tag = llm.tokenizer.token_id("<|im_end|>"), llm.tokenizer.token_id("</think>")
    never_closed = {"logit_bias": {tag: -100.0, end: 10.0}}
    free = llm.generate("Hi", **never_closed)
    assert (str(free), free.reasoning, free.usage.finish_reason) == ("", REASONING, "stop")
    answer = llm.generate("Hi", choices=["Good morning!", "No"], **never_closed)
    assert (str(answer), answer.reasoning) == (TEXT, REASONING)


@pytest.mark.gpu
@pytest.mark.parametrize("per_submit", [1, 3, 50])
def test_thinking_budget_is_exact_in_long_submits(llm, per_submit):
    answer = llm.generate("Hi", thinking_budget=5, tokens_per_submit=per_submit, dry_multiplier=0.0)
    assert (str(answer), answer.reasoning) == (TEXT, "The user greets me. I write </think> or")


@pytest.mark.gpu
def test_stop_string_in_the_thought_does_not_end_it(llm):
    answer = llm.generate("Hi", stop=[" greets", " morning"])
    assert (str(answer), answer.reasoning) == ("Good", REASONING)


@pytest.mark.gpu
def test_resume_at_every_token_continues_the_same_response(llm):
    settings = {"choices": ["Good morning!", "No"], "thinking_budget": 5}
    whole = llm.generate("Hi", **settings)
    whole.result()
    for count in range(len(whole.tokens)):
        rest = llm.resume(whole.prompt, whole.tokens[:count], settings)
        assert (str(rest), rest.reasoning, rest.tokens) == (whole.text, whole.reasoning, whole.tokens)
        assert rest.usage.reasoning_tokens == whole.usage.reasoning_tokens


@pytest.mark.gpu
def test_chat_passes_reasoning_to_the_template(llm):
    chat = llm.chat()
    chat.ask("Hi").result()
    assert chat.messages[-1] == {"role": "assistant", "reasoning_content": REASONING, "content": TEXT}
    shown = REASONING in llm.render(chat.messages)
    assert shown == ("reasoning_content" in llm.template)


@pytest.mark.parametrize("family", FAMILIES)
def test_template_of_family_begins_thought_or_leaves_it_to_the_model(family):
    template, opened, _ = FAMILIES[family]
    model = text_model(template)
    params = sampling_params_from({"think": True})
    thought = model.with_thought(params, model.tokenize_chat(QUESTION, None, params)).thought
    assert thought is not None and thought.is_open == opened and thought.budget is None


@pytest.mark.parametrize("family", FAMILIES)
def test_template_of_family_without_thinking_ends_the_thought(family):
    template, _, switch = FAMILIES[family]
    model = text_model(template)
    params = sampling_params_from({"think": False})
    thought = model.with_thought(params, model.tokenize_chat(QUESTION, None, params)).thought
    assert (thought is None) if switch else (thought is not None and thought.budget == 0)


@pytest.mark.parametrize(("family", "shown"), [("Gemma 4", True), ("LFM2.5", True), ("SmolLM3", False)])
def test_template_of_family_gets_reasoning_by_the_name_it_reads(family, shown):
    turn = {"role": "assistant", "reasoning_content": "because", "content": "Hello"}
    assert ("because" in text_model(FAMILIES[family][0]).render([*QUESTION, turn, *QUESTION])) == shown


@pytest.mark.parametrize("settings", [{"think": True}, {"reasoning_effort": "low"}])
def test_thinking_of_model_without_tags_is_refused(settings):
    model = text_model("{% for m in messages %}{{ m.content }}{% endfor %}")
    with raises(webpte.InputError, *settings, code="thinking_unsupported"):
        model.tokenize_chat(QUESTION, None, sampling_params_from(settings))
    assert model.tokenize_chat(QUESTION, None, sampling_params_from({"think": False}))


@pytest.mark.parametrize(
    ("name", "value"), [("think", 1), ("reasoning_effort", "much"), ("thinking_budget", -1), ("thinking_budget", "x")]
)
def test_invalid_setting_of_thinking_is_refused(name, value):
    with raises(webpte.InputError, name):
        sampling_params_from({name: value})
