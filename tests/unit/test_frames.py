"""What a server and its worker say to each other, and what neither believes."""

from __future__ import annotations

import io
import json
import struct

import pytest

from tests.support.harness.errors import raises
from webpte.errors import Error, FormatError, InputError
from webpte.llm.errors import ContextFullError, error_of
from webpte.serve import frames
from webpte.serve.frames import Pipe, framed
from webpte.serve.messages import (
    Cancel,
    Embed,
    Failed,
    Generate,
    Given,
    Language,
    Message,
    ModelFile,
    Options,
    Piece,
    Ping,
    Pong,
    Ready,
    Refused,
    Served,
    Start,
    Tick,
    Vectors,
    Work,
    decode,
    encode,
)

LANGUAGE = Language("t.json", None, "{{ x }}", (1, 2), None, (2,))
MESSAGES: list[Message] = [
    Start((ModelFile("a", "a.pte"),), Options(max_sequences=3, memory=None), 9),
    Generate(1, "a", (1, 2), {"stop": ["\u4e00", "\ud800"], "temperature": 0.5, "seed": 3, "json_schema": None}, (7,)),
    Embed(2, "e", ((1, 2), (3,))),
    Cancel(3),
    Ping(4),
    Ready(
        (
            Served("a", "a.pte", "language", 64, 128, 0, 4, "f", 5, LANGUAGE),
            Served("e", "", "encoder", 1, 0, 2, 3, "", 0),
        )
    ),
    Refused("FormatError", "no"),
    Tick((Given(1, 3, (Piece("x", 5, -0.5, ((5, -0.5), (6, -2.0))), Piece("", 6)), None), Given(2, None, (), "stop"))),
    Vectors(2, (1, 0), 2, "AAAA"),
    Failed(1, "InputError", "what"),
    Pong(4, 0.25, Work(1, 2, 3, 4)),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_the_same_on_the_other_side(message):
    assert decode(encode(message)) == message
    pipe = Pipe(io.BytesIO(framed(message) * 2), io.BytesIO())
    assert (pipe.receive(), pipe.receive(), pipe.receive()) == (message, message, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'["Nothing", []]',
        b'["Cancel"]',
        b'[["Cancel"], [1]]',
        b'["Cancel", [1, 2]]',
        b'["Cancel", {"number": 1}]',
        b'["Cancel", ["1"]]',
        b'["Cancel", [true]]',
        b'["Cancel", [1.0]]',
        b'["Embed", [1, "e", [[1, "2"]]]]',
        b'["Vectors", [1, 2, 3, "AAAA"]]',
        b'["Generate", [1, "a", [1], [], []]]',
        b'["Tick", [[[1, null, [["x", 5, null, [[5]]]], null]]]]',
    ],
)
def test_what_is_no_message_is_refused(data):
    with pytest.raises(FormatError) as caught:
        decode(data)
    assert caught.value.reason in ("invalid_json", "unknown_message", "invalid_field")


def test_every_field_of_every_message_is_checked():
    for message in MESSAGES:
        name, values = json.loads(encode(message).decode("utf-8", "surrogatepass"))
        for number in range(len(values)):
            wrong = [
                *values[:number],
                {"no": "such"} if not isinstance(values[number], dict) else 1,
                *values[number + 1 :],
            ]
            with pytest.raises(FormatError):
                decode(json.dumps([name, wrong]).encode())


def test_frames_are_bounded_on_both_sides(monkeypatch):
    with raises(FormatError, "4,294,967,295 bytes", "67,108,864", code="frame_too_large"):
        Pipe(io.BytesIO(struct.pack("<I", 2**32 - 1)), io.BytesIO()).receive()
    monkeypatch.setattr(frames, "LARGEST", 100)
    with raises(InputError, "Generate", "holds 100", code="frame_too_large"):
        framed(Generate(1, "a", tuple(range(100)), {}))


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_a_pipe_that_ends_within_a_frame_has_ended(cut):
    assert Pipe(io.BytesIO(framed(Cancel(12345))[:cut]), io.BytesIO()).receive() is None


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("InputError", InputError),
        ("ContextFullError", ContextFullError),
        ("HubError", Error),
        ("annotations", Error),
        ("Exception", Error),
        ("", Error),
    ],
)
def test_errors_keep_their_kind(kind, found):
    error = error_of(kind, "words", "reason")
    assert type(error) is found and str(error) == "words"
    assert error.reason == ("reason" if found is not Error else "")
