"""Constraints: what is allowed next, what is forced, what is refused. Answers are judged by `jsonschema` and `re`."""

from __future__ import annotations

import json
import random
import re
import time

import jsonschema
import numpy as np
import pytest

from tests.studies.schemas.making import schema
from tests.support.harness.errors import raises
from tests.support.models.tokenizers import byte_fallback, byte_level
from webpte.errors import ConstraintError, InputError, UnsupportedError
from webpte.llm.constraints import (
    MAX_CACHED_CONSTRAINTS,
    MAX_CACHED_SOURCE_CHARS,
    MAX_SOURCE_CHARS,
    GrammarCompiler,
    constraint_from,
)
from webpte.llm.tokenizer import Tokenizer

SPARE = 37  # numbers that the model has and the tokenizer has not


class Vocabulary:
    """A tokenizer beside a model that has a few more tokens."""

    def __init__(self, tokenizer, end):
        self.tokenizer = tokenizer
        self.end = tokenizer.token_id(end)
        self.tokens = next(n for n in range(10**6) if tokenizer.token_text(n) is None)
        self.size = self.tokens + SPARE
        self.bytes = tokenizer.token_bytes(self.size)
        self.grammar_compiler = GrammarCompiler(tokenizer, self.size, [self.end])

    def matcher(self, **options):
        return self.grammar_compiler.matcher(constraint(**options))

    def text(self, tokens):
        return b"".join(self.bytes[token] for token in tokens if token != self.end).decode()


@pytest.fixture(scope="module", params=["byte_level", "byte_fallback"])
def vocabulary(request):
    return Vocabulary(*((byte_level(), "<|im_end|>") if request.param == "byte_level" else (byte_fallback(), "</s>")))


@pytest.fixture(scope="module")
def level():
    return Vocabulary(byte_level(), "<|im_end|>")


def constraint(**options):
    result = constraint_from(**options)
    assert result is not None
    return result


def allowed(mask):
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def walk(matcher, chance, end, most=600):
    """Tokens drawn at random from what is allowed, and whether the answer was completed."""
    tokens: list[int] = []
    while len(tokens) < most and not matcher.ended:
        options = allowed(matcher.mask())
        token = end if end in options else chance.choice(options)
        matcher.take(token)
        tokens.append(token)
    return tokens, matcher.ended


def accepts(matcher, tokens, end):
    """Return whether these tokens are an answer."""
    try:
        for token in tokens:
            matcher.take(token)
    except ConstraintError:
        return False
    return matcher.ended or end in allowed(matcher.mask())


def test_random_answers_to_200_schemas_validate(vocabulary):
    complete = 0
    for seed in range(200):
        asked = schema(seed)
        tokens, ended = walk(vocabulary.matcher(json_schema=asked), random.Random(seed), vocabulary.end)
        if ended:
            complete += 1
            jsonschema.validate(json.loads(vocabulary.text(tokens)), asked)
    assert complete >= 190


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_of_numbers_are_kept(level, sign):
    numbers = [f"{whole}{rest}" for whole in (0, 1, 4, 5, 6) for rest in ("", ".0", ".25", ".5", ".501", ".99")]
    low, high = ("Minimum", "maximum") if sign > 0 else ("Maximum", "minimum")
    for start in (0, 4.5, 5):
        for length in (0.25, 0.5, 1, 1.5):
            bounds = {f"exclusive{low}": sign * start, high: sign * (start + length)}
            for number in numbers:
                matcher, text = level.matcher(json_schema={"type": "number", **bounds}), "-" * (sign < 0) + number
                tokens = [level.bytes.index(bytes((byte,))) for byte in text.encode()]
                right = start < float(number) <= start + length
                assert accepts(matcher, tokens, level.end) == right, (bounds, text)


def admitted(level, bounds, numbers):
    """Which of these numbers, as they are written, a schema with these bounds admits."""
    results = []
    for number in numbers:
        tokens = [level.bytes.index(bytes((byte,))) for byte in number.encode()]
        if accepts(level.matcher(json_schema={"type": "number", **bounds}), tokens, level.end):
            results.append(number)
    return results


@pytest.mark.parametrize("key", ["Minimum", "Maximum"])
@pytest.mark.parametrize("excluded", [5, -5])
@pytest.mark.parametrize("inclusive", [-1, -0.5, 0, 0.5, 1])
def test_guide_inclusive_beside_exclusive_bound_keeps_to_the_tighter(level, key, excluded, inclusive):
    numbers = [f"{'-' * (excluded < 0)}{n}" for n in ("3", "3.5", "4", "4.25", "4.5", "5", "5.0", "5.25", "6", "6.5")]
    bounds = {f"exclusive{key}": excluded, key.lower(): excluded + inclusive}
    sign = 1 if key == "Minimum" else -1
    inside = {n: sign * (float(n) - excluded) for n in numbers}  # how far from the excluded number
    right = [n for n, distance in inside.items() if distance > 0 and distance >= sign * inclusive]
    assert admitted(level, bounds, numbers) == right


@pytest.mark.parametrize(
    ("bounds", "numbers"),
    [
        ({"minimum": 0, "exclusiveMaximum": 1}, ["0.9", "0.99", "0.999"]),
        ({"exclusiveMaximum": 10}, ["9.9", "9.99", "-9.9"]),
        ({"exclusiveMinimum": -5, "maximum": 5}, ["-4.9", "-4.99", "4.9"]),
        ({"exclusiveMinimum": 5}, ["5.1", "5.01", "5.001"]),
        ({"exclusiveMaximum": -5}, ["-5.1", "-5.01", "-5.001"]),
    ],
    ids=str,
)
def test_guide_numbers_close_to_an_excluded_one_are_allowed(level, bounds, numbers):
    assert admitted(level, bounds, numbers) == numbers


def test_guide_bound_excluded_by_true_is_refused(level):
    """As drafts of JSON Schema before the sixth wrote it."""
    assert admitted(level, {"minimum": 5, "exclusiveMinimum": True}, ["4.9", "5", "5.1", "6"]) == ["5.1", "6"]


@pytest.mark.parametrize(
    "expression", [r"[a-c]{2,5}-\d+", r"(yes|no)( the| name)*", r"[a-z]+@[a-z]+\.(com|org)", r".{3}", r"é?北*x"]
)
def test_random_answers_to_expressions_match(vocabulary, expression):
    for seed in range(10):
        tokens, ended = walk(vocabulary.matcher(regex=expression), random.Random(seed), vocabulary.end)
        text = vocabulary.text(tokens) if ended else "unfinished"
        assert not ended or re.fullmatch(expression, text), text


def test_grammar_random_walk_follows_rules(vocabulary):
    grammar = 'start: sum\nsum: value | sum "+" value\nvalue: /[0-9]/ | "(" sum ")"'
    for seed in range(10):
        tokens, ended = walk(vocabulary.matcher(grammar=grammar), random.Random(seed), vocabulary.end)
        text = vocabulary.text(tokens)
        assert not ended or (set(text) <= set("0123456789+()") and isinstance(eval(text), int))


def test_choice_constraint_allows_only_prefixes_of_choices(vocabulary):
    choices = ["apple", "apricot", "ap", "blue", 'quo"te', "line\nbreak", "back\\slash", "北京", "😀"]
    for seed in range(30):
        chance, matcher = random.Random(seed), vocabulary.matcher(choices=choices)
        tokens: list[int] = []
        while not matcher.ended:
            said = b"".join(vocabulary.bytes[token] for token in tokens)
            rests = [choice.encode()[len(said) :] for choice in choices if choice.encode().startswith(said)]
            right = {n for n, b in enumerate(vocabulary.bytes) if b and any(rest.startswith(b) for rest in rests)}
            right |= {vocabulary.end} if b"" in rests else set()
            result = allowed(matcher.mask())
            assert set(result) <= right
            assert set(result) == right or matcher.forced() == () or result == [matcher.forced()[0]]
            token = chance.choice(result)
            matcher.take(token)
            tokens.append(token)
        assert vocabulary.text(tokens) in choices


def test_grammar_mask_equals_accepted_tokens(level):
    """And what is allowed leads somewhere: there is a next token, or the answer is complete."""
    for seed in range(12):
        chance, matcher = random.Random(seed), level.matcher(json_schema=schema(seed))
        for _ in range(15):
            if matcher.ended:
                break
            options = allowed(matcher.mask())
            assert max(options) < level.tokens
            for token in range(level.size):
                other = matcher.copy()
                if token in options:
                    other.take(token)
                    assert other.ended or other.mask().any()
                elif not matcher.forced():  # else the mask has the usual spelling alone
                    with raises(ConstraintError, f"token {token} ", code="token_not_allowed"):
                        other.take(token)
            matcher.take(chance.choice(options))


def test_grammar_undefined_token_number_is_not_allowed(level):
    open_ended = level.matcher(grammar=f"start: <[{level.tokens - 2}-{level.size - 1}]> | /(?s:.)+/")
    result = open_ended.mask()
    assert len(result) == -(-level.size // 32) and result.dtype == np.uint32
    assert max(allowed(result)) == level.tokens - 1
    with raises(ConstraintError, code="no_token"):
        level.matcher(grammar=f"start: <[{level.tokens}-{level.size - 1}]>").mask()


def test_forced_tokens_are_the_only_ones_one_by_one(vocabulary):
    """What is taken in one pass is what masks alone would have led to."""
    count = 0
    for seed in range(40):
        chance, matcher = random.Random(seed), vocabulary.matcher(json_schema=schema(seed))
        while not matcher.ended and count < 2000:
            forced = matcher.forced()
            for at, token in enumerate(forced):
                assert allowed(matcher.mask()) == [token]
                assert matcher.forced() == forced[at:]
                matcher.take(token)
            count += len(forced)
            if not matcher.ended:
                options = allowed(matcher.mask())
                matcher.take(vocabulary.end if vocabulary.end in options else chance.choice(options))
    assert count > 200


def test_masks_do_not_depend_on_how_a_place_was_reached(vocabulary):
    """Walked, rewound to, copied, or replayed from its tokens."""
    for seed in range(12):
        asked, chance = schema(seed), random.Random(seed)
        tokens, _ = walk(vocabulary.matcher(json_schema=asked), chance, vocabulary.end)
        straight, seen = vocabulary.matcher(json_schema=asked), []
        for token in tokens:
            seen.append((straight.mask().tobytes(), straight.forced(), straight.ended))
            straight.take(token)
        replayed = vocabulary.matcher(json_schema=asked)
        for token in tokens:
            replayed.take(token)
        copied = replayed.copy()
        for _ in range(10):
            at = chance.randrange(len(tokens))
            for matcher in (straight, replayed):
                matcher.rewind(len(tokens) - at)
                assert (matcher.mask().tobytes(), matcher.forced(), matcher.ended) == seen[at]
                for token in tokens[at:]:
                    matcher.take(token)
        assert straight.ended == replayed.ended == copied.ended


def test_grammar_masks_after_drafts_equal_taken_tokens(vocabulary):
    for seed in range(12):
        asked, chance = schema(seed), random.Random(seed)
        tokens, ended = walk(vocabulary.matcher(json_schema=asked), chance, vocabulary.end)
        at = chance.randrange(len(tokens))
        drafted = tokens[at : at + 6]
        matcher, other = vocabulary.matcher(json_schema=asked), vocabulary.matcher(json_schema=asked)
        for token in tokens[:at]:
            matcher.take(token)
            other.take(token)
        before, masks = matcher.mask(), matcher.after(drafted)
        assert len(masks) == len(drafted) - (ended and at + 6 >= len(tokens))  # none after what completes the answer
        for token, mask in zip(drafted, masks, strict=False):
            other.take(token)
            assert np.array_equal(mask, other.mask())
        assert np.array_equal(matcher.mask(), before)
        wrong = next(n for n in range(vocabulary.tokens) if n not in allowed(before))
        assert matcher.after([wrong, *drafted]) == [] and np.array_equal(matcher.mask(), before)


def test_grammar_end_token_allowed_where_optional(level):
    matcher = level.matcher(regex="a+")
    with pytest.raises(ConstraintError):
        matcher.copy().take(level.end)
    a = level.bytes.index(b"a")
    matcher.take(a)
    assert not matcher.ended and {a, level.end} <= set(allowed(matcher.mask()))
    assert matcher.after([level.end]) == []
    matcher.take(level.end)
    assert matcher.ended and matcher.forced() == ()
    matcher.rewind(1)
    assert not matcher.ended
    matcher.take(a)
    matcher.rewind(2)
    assert level.end not in allowed(matcher.mask())


def test_grammar_without_end_tokens_ends_when_complete(level):
    compiler = GrammarCompiler(level.tokenizer, 320, [])
    matcher = compiler.matcher(constraint(choices=["name"]))
    assert len(matcher.mask()) == 10
    for token in matcher.forced():
        matcher.take(token)
    assert matcher.ended
    endless = compiler.matcher(constraint(regex="a*"))
    assert all(set(level.bytes[token]) == {97} for token in allowed(endless.mask()))


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        ({"json_schema": {"type": "array", "uniqueItems": True}}, "invalid", ['["uniqueItems"]', "#/uniqueItems"]),
        ({"json_schema": {"properties": {"a": {"not": {}}}}}, "invalid", ["#/properties/a/not"]),
        ({"json_schema": {"type": "text"}}, "invalid", ["type: text"]),
        ({"json_schema": {"type": "integer", "minimum": 5, "maximum": 4}}, "invalid", ["minimum (5)", "maximum (4)"]),
        ({"json_schema": {"minimum": "x", "exclusiveMinimum": 5}}, "invalid", ["minimum", '"x"']),
        ({"json_schema": {"maximum": None, "exclusiveMaximum": -5}}, "invalid", ["maximum", "null"]),
        ({"json_schema": {"oneOf": [{"type": "string"}, {"maxLength": 3}]}}, "invalid", ["oneOf"]),
        ({"json_schema": {"$ref": "http://localhost/other.json"}}, "external_reference", ["$ref", "other.json"]),
        ({"json_schema": {"$ref": "file:///etc/passwd"}}, "external_reference", ["$ref", "passwd"]),
        ({"json_schema": {"$ref": "other.json#/a"}}, "external_reference", ["$ref", "other.json"]),
        ({"json_schema": {"$ref": "#"}}, "unsatisfiable", ["json_schema"]),
        ({"json_schema": {"uniqueItems": True, "x-guidance": {"lenient": True}}}, "invalid", ["uniqueItems"]),
        ({"json_schema": '{"type":'}, "invalid_json", ["json_schema"]),
        ({"json_schema": [1]}, "wrong_type", ["json_schema", "list"]),
        ({"json_schema": {"a": {1, 2}}}, "invalid_json", ["json_schema"]),
        ({"json_schema": {"minimum": float("nan")}}, "invalid_json", ["json_schema"]),
        ({"regex": "(a"}, "invalid", ["regex", "(a"]),
        ({"regex": r"(a)\1"}, "invalid", ["backreferences"]),
        ({"regex": "(?=a)b"}, "invalid", ["look-around"]),
        ({"regex": "()"}, "empty_text", ["regex"]),
        ({"regex": "a" * (MAX_SOURCE_CHARS + 1)}, "too_long", ["regex", "262,145", "262,144"]),
        ({"grammar": "begin: 'a'"}, "invalid", ["grammar", "begin: 'a'"]),
        ({"grammar": "start: " + "(" * 5000}, "invalid", ["grammar", "nested"]),
        ({"grammar": '%import .other.INT\nstart: "a"'}, "invalid", ["grammar"]),
    ],
)
def test_constraint_unsupported_is_refused_by_name(level, value, code, expected):
    with raises(ConstraintError, *expected, code=code) as caught:
        level.matcher(**value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("value", "code", "expected"),
    [
        ({"regex": "a", "choices": ["a"]}, "conflicting_options", ["regex", "choices"]),
        ({"regex": ""}, "wrong_type", ["regex", "str"]),
        ({"grammar": 3}, "wrong_type", ["grammar", "int"]),
        ({"choices": []}, "empty", ["choices"]),
        ({"choices": "abc"}, "wrong_type", ["choices", "str"]),
        ({"choices": ["a", ""]}, "wrong_type", ["choices", "got ''"]),
        ({"choices": ["a", 3]}, "wrong_type", ["choices", "got 3"]),
    ],
)
def test_arguments_of_the_wrong_kind_are_refused(value, code, expected):
    with raises(InputError, *expected, code=code):
        constraint_from(**value)
    assert constraint_from() is None


HOSTILE = {
    "deep schema": {"json_schema": json.loads('{"type":"array","items":' * 200 + "{}" + "}" * 200)},
    "many values": {"json_schema": {"enum": [f"v{i}" for i in range(20_000)]}},
    "many properties": {"json_schema": {"properties": {f"v{i}": {"type": "string"} for i in range(1000)}}},
    "many ways": {"json_schema": {"allOf": [{"anyOf": [{"minimum": i}, {"maximum": -i}]} for i in range(40)]}},
    "huge multiple": {"json_schema": {"type": "integer", "multipleOf": 999_999_937}},
    "long string": {"json_schema": {"type": "string", "minLength": 10**5, "maxLength": 10**7}},
    "exponential expression": {"regex": "(a|b)*a(a|b){25}c"},
    "nested counts": {"regex": "((a{1,1000}){1,1000}){1,1000}"},
    "many words": {"regex": "|".join(f"w{i}[a-z]*x{i * 7919 % 1000}" for i in range(10_000))},
    "ambiguous grammar": {"grammar": 'start: start start | "a" | start start start'},
    "doubling grammar": {
        "grammar": "start: r0\n" + "".join(f"r{i}: r{i + 1} r{i + 1}\n" for i in range(60)) + 'r60: "a"'
    },
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_constraints_are_refused_or_followed_in_bounded_time(level, name):
    chance, started = random.Random(0), time.process_time()
    try:
        matcher = level.matcher(**HOSTILE[name])
        for _ in range(60):
            if matcher.ended:
                break
            matcher.take(chance.choice(allowed(matcher.mask())))
    except ConstraintError as error:
        assert error.reason in ("invalid", "too_complex")
    assert time.process_time() - started < 60  # the package counts states; without that, most of these never end


def test_constraint_equal_ones_compile_once(level, monkeypatch):
    compiler, compiled = GrammarCompiler(level.tokenizer, level.size, [level.end]), []
    compile_ = compiler._compile

    def counted(value):
        compiled.append(value)
        return compile_(value)

    monkeypatch.setattr(compiler, "_compile", counted)
    first = compiler.matcher(constraint(json_schema={"type": "integer"}))
    first.take(level.bytes.index(b"1"))
    second = compiler.matcher(constraint(json_schema='{"type":"integer"}'))
    assert len(compiled) == 1 and level.end not in allowed(second.mask())
    for number in range(MAX_CACHED_CONSTRAINTS + 5):
        compiler.matcher(constraint(regex=f"a{number}"))
    assert len(compiler._compiled) == MAX_CACHED_CONSTRAINTS


def test_long_constraints_are_kept_up_to_a_number_of_characters(level):
    compiler = GrammarCompiler(level.tokenizer, level.size, [level.end])
    long = [constraint(choices=[chr(97 + number) * (MAX_CACHED_SOURCE_CHARS * 2 // 5)]) for number in range(4)]
    for each in long:
        compiler.matcher(each)
    assert list(compiler._compiled) == long[-2:]
    longest = constraint(choices=["z" * (MAX_CACHED_SOURCE_CHARS + 1)])
    compiler.matcher(longest)
    assert list(compiler._compiled) == [longest], "the one in use stays, however long"


def test_constraint_check_caches_nothing(level):
    compiler = GrammarCompiler(level.tokenizer, level.size, [level.end])
    compiler.check(constraint(json_schema={"type": "integer"}))
    with raises(ConstraintError, "#/uniqueItems", code="invalid"):
        compiler.check(constraint(json_schema={"type": "array", "uniqueItems": True}))
    assert not compiler._compiled


def test_tokens_without_bytes_of_their_own_are_refused():
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models

    inner = Inner(models.WordPiece({"a": 0, "##b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    for decoder in (decoders.WordPiece(), None):
        if decoder is not None:
            inner.decoder = decoder
        with raises(UnsupportedError, "WordPiece", "Metaspace", code="tokenizer"):
            Tokenizer(inner).token_bytes(3)


def test_token_bytes_equal_decoded_text(vocabulary):
    anchor = vocabulary.tokenizer.token_id("x")  # nothing is stripped after it
    for token, result in enumerate(vocabulary.bytes[: vocabulary.tokens]):
        assert result is not None
        text = vocabulary.tokenizer.decode([anchor, token], specials=True)
        assert text == "x" + result.decode("utf-8", "replace")
    assert vocabulary.bytes[vocabulary.tokens :] == [None] * SPARE


@pytest.mark.parametrize("spare", range(33))
def test_constraint_empty_match_any_vocabulary_size(spare):
    """Also for those that are a multiple of 32, where the package's masks have a word more."""
    tokenizer = byte_level()
    size = tokenizer.backend_tokenizer.get_vocab_size() + spare
    end = tokenizer.token_id("<|im_end|>")
    assert end is not None
    compiler = GrammarCompiler(tokenizer, size, [end])
    mask = compiler.matcher(constraint(regex="a*")).mask()
    allowed = {number for number in range(size) if mask[number // 32] >> number % 32 & 1}
    assert {tokenizer.encode("a")[0], end} <= allowed


def test_guide_json_schema_true_allows_any_value(level):
    matcher = level.matcher(json_schema=True)
    mask = matcher.mask()
    for text in ("{", "[", "1", "t", "n", '"'):
        number = level.tokenizer.encode(text)[0]
        assert mask[number // 32] >> number % 32 & 1, text
    with pytest.raises(ConstraintError):
        level.matcher(json_schema=False)
