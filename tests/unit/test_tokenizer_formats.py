"""Tokenizers of SentencePiece and of tiktoken, against the packages that wrote them."""

from __future__ import annotations

import base64
import contextlib
import io
import itertools
import random
from collections import Counter

import pytest

from webpte.errors import FormatError, UnsupportedError
from webpte.llm.tokenizer import Tokenizer
from webpte.llm.tokenizer_file import read_tokenizer

sentencepiece = pytest.importorskip("sentencepiece")
pytorch_tokenizers = pytest.importorskip("pytorch_tokenizers")

SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and the dog is not amused.",
    "In 1984 there were 12,345 foxes; today there are 67.",
    "  Spaces at the beginning,\tand tabs\n\nand lines.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Ça va? 日本語のテキスト 🦊",
    "def fox(n):\n    return n * fox(n - 1) if n > 1 else 1",
)
UNSEEN = "Привет, 漢字! ½ e\u0301"
OPTIONS = {"model_type": "bpe", "normalization_rule_name": "identity", "remove_extra_whitespaces": False}


def texts(count=300):
    """Return the sentences, and pieces of them in a random order."""
    choose = random.Random(3)
    everything = "".join(SENTENCES) + UNSEEN
    for _ in range(count):
        starts = [choose.randrange(len(everything)) for _ in range(choose.randint(1, 5))]
        yield "".join(everything[start : start + choose.randint(1, 20)] for start in starts)
    yield from SENTENCES


def sentencepiece_model(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3),
        model_writer=model,
        **{"vocab_size": 350, "byte_fallback": True, "minloglevel": 2, **OPTIONS, **options},
    )
    return model.getvalue()


def ranks(num_merges=120):
    """Return a file of tiktoken: all bytes, and the pairs that are most frequent in the sentences."""
    words = [[bytes([byte]) for byte in f" {word}".encode()] for text in SENTENCES for word in text.split()]
    tokens = [bytes([byte]) for byte in range(256)]
    for _ in range(num_merges):
        pairs = Counter(pair for word in words for pair in itertools.pairwise(word))
        left, right = max(pairs, key=lambda pair: (pairs[pair], pair))
        tokens.append(left + right)
        for word in words:
            for at in range(len(word) - 1, 0, -1):
                if (word[at - 1 : at + 1]) == [left, right]:
                    word[at - 1 : at + 1] = [left + right]
    unique = list(dict.fromkeys(tokens))
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(unique))


@pytest.mark.parametrize("prefixed", [True, False])
def test_sentencepiece_model_tokens_equal_the_package(prefixed):
    data = sentencepiece_model(add_dummy_prefix=prefixed)
    package = sentencepiece.SentencePieceProcessor(model_proto=data)
    tokenizer = Tokenizer(read_tokenizer("tokenizer.model", data))
    for text in texts():
        assert tokenizer.encode(text, add_special=True) == [package.bos_id(), *package.encode(text)], text
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.size == package.get_piece_size()


def test_tiktoken_ranks_tokens_equal_the_runner_of_executorch(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(ranks())
    package = pytorch_tokenizers.TiktokenTokenizer(str(path))
    tokenizer = Tokenizer.load(path)
    for text in texts():
        assert tokenizer.encode(text, add_special=True) == package.encode(text, bos=True, eos=False), text
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.size == package.n_words
    assert {token: tokenizer.token_id(token) for token in package.special_tokens} == package.special_tokens
    assert tokenizer.encode("<|eot_id|>", parse_special=True) == [package.special_tokens["<|eot_id|>"]]


@pytest.mark.parametrize(
    "options",
    [{"model_type": "unigram"}, {"normalization_rule_name": "nmt_nfkc"}, {"remove_extra_whitespaces": True}],
    ids=["unigram", "replaces_characters", "removes_spaces"],
)
def test_sentencepiece_model_that_cannot_be_converted_is_refused_with_the_reason(options):
    with pytest.raises(UnsupportedError, match=r"tokenizer\.json"):
        read_tokenizer("tokenizer.model", sentencepiece_model(**options))


def test_damaged_files_raise_typed_errors():
    choose = random.Random(5)
    for data in (sentencepiece_model(), ranks()):
        for _ in range(60):
            at = choose.randrange(len(data))
            damaged = [data[:at], data[:at] + bytes([choose.randrange(256)]) + data[at + 1 :]]
            for mutant in damaged:
                with contextlib.suppress(FormatError, UnsupportedError):
                    read_tokenizer("tokenizer.model", mutant)


def test_longest_token_beyond_the_limit_is_refused():
    line = base64.b64encode(b"a" * 2000) + b" 256\n"
    with pytest.raises(FormatError, match="1024"):
        read_tokenizer("tokenizer.model", ranks(0) + line)
