"""Texts that a model reads for calibration."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from webpte.builder.calibration_texts import chat_pieces, token_pieces

TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
TOKENS: dict[str, str | bool] = {"bos_token": "^", "eos_token": "~", "add_bos_token": True}


@pytest.fixture
def tokenizer() -> Tokenizer:
    """Return a token for each letter."""
    result = Tokenizer(models.WordLevel({chr(32 + i): i for i in range(95)}, unk_token="?"))
    result.pre_tokenizer, result.decoder = pre_tokenizers.Split("", "isolated"), decoders.Fuse()
    return result


def test_conversations_go_through_the_template_each_as_a_piece(tokenizer):
    pieces = chat_pieces(tokenizer.to_str(), TEMPLATE, TOKENS, 64, 95)
    assert len(pieces) == 24 and max(map(len, pieces)) == 64
    assert tokenizer.decode(pieces[0]).startswith("^[user]What is the capital of Norway?~[assistant]The")
    assert tokenizer.decode(pieces[4]) == "^[user]How many minutes are there in an hour?~[assistant]There a"


def test_tokens_outside_the_vocabulary_are_left_out(tokenizer):
    inside = chat_pieces(tokenizer.to_str(), TEMPLATE, TOKENS, 64, 60)
    assert max(max(piece) for piece in inside) == 59
    assert chat_pieces(tokenizer.to_str(), "{% if messages %}~{% endif %}", {}, 64, 60) == []


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{% if %}"])
def test_chat_pieces_failing_template_returns_none(tokenizer, template):
    assert chat_pieces(tokenizer.to_str(), template, {}, 64, 95) == []


def test_token_pieces_cut_text_and_drop_short_rest(tokenizer):
    assert token_pieces(tokenizer.to_str(), "abcdefgh", 3, 95) == [[65, 66, 67], [68, 69, 70]]
    assert token_pieces(tokenizer.to_str(), "ab", 3, 95) == [[65, 66]]
