"""Messages between the server and its worker: written, read again, and refused if they do not match."""

from __future__ import annotations

import io
import json

import pytest

from tests.support.harness.errors import raises
from webpte.errors import ContextFullError, Error, FormatError, InputError, error_of
from webpte.llm.engine.output import Piece
from webpte.llm.settings import SamplingParams, sampling_params_from
from webpte.serve import messages
from webpte.serve.messages import (
    Cancel,
    Embed,
    Failed,
    FromWorker,
    Generate,
    LoadFailed,
    ModelFile,
    ModelInfo,
    Ping,
    Pong,
    Ready,
    Start,
    StepOutput,
    TextFiles,
    TokenDelta,
    ToWorker,
    Vectors,
    WorkerOptions,
    WorkerStats,
    decode_from_worker,
    decode_to_worker,
    encode,
)
from webpte.serve.worker import Pipe

TEXT = TextFiles("t.json", None, "{{ x }}\n\u4e00", (1, 2), None, (2,))
PARAMS = sampling_params_from(
    {"stop": ["\u4e00", "\n"], "logit_bias": {3: 2}, "temperature": 1, "regex": "a+", "speculate": False, "seed": 5}
)
TO_WORKER: list[ToWorker] = [
    Start(ModelFile("a", "a.pte"), WorkerOptions(max_sequences=3, memory=None), 9),
    Generate(1, (1, 2), PARAMS, (7,)),
    Generate(4, (1,), SamplingParams()),
    Embed(2, ((1, 2), (3,))),
    Cancel(3),
    Ping(),
]
FROM_WORKER: list[FromWorker] = [
    Ready(ModelInfo("a", "a.pte", "language", 64, 128, 0, 4, "f", 5, TEXT), 7),
    Ready(ModelInfo("e", "", "encoder", 1, 0, 2, 3, "", 0)),
    LoadFailed("FormatError", "no"),
    StepOutput(
        (
            TokenDelta(1, 3, (Piece("x\n", 5, -0.5, ((5, -0.5), (6, float("-inf")))), Piece("", 6)), None),
            TokenDelta(2, None, (), "stop"),
        )
    ),
    Vectors(2, (1, 0), 2, "AAAA"),
    Failed(1, "InputError", "what"),
    Pong(0.25, WorkerStats(1, 2, 3, 4)),
]


@pytest.mark.parametrize("message", [*TO_WORKER, *FROM_WORKER], ids=lambda message: message.type)
def test_message_survives_its_line(message):
    line = encode(message)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    decode = decode_to_worker if isinstance(message, ToWorker) else decode_from_worker
    assert decode(line) == message


@pytest.mark.parametrize("message", TO_WORKER, ids=lambda message: message.type)
def test_pipe_gives_messages_until_the_end(message):
    pipe = Pipe(io.BytesIO(encode(message) * 2), io.BytesIO())
    assert (pipe.receive(), pipe.receive(), pipe.receive()) == (message, message, None)


@pytest.mark.parametrize("cut", [1, 4, 9])
def test_incomplete_line_is_the_end(cut):
    assert Pipe(io.BytesIO(encode(Cancel(12345))[:cut]), io.BytesIO()).receive() is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"type": "nothing"}',
        b'{"type": "cancel"}',
        b'{"id": 1}',
        b'{"type": ["cancel"], "id": 1}',
        b'{"type": "cancel", "id": 1, "more": 2}',
        b'{"type": "cancel", "id": "1"}',
        b'{"type": "cancel", "id": true}',
        b'{"type": "cancel", "id": 1.0}',
        b'{"type": "cancel", "id": -1}',
        b'{"type": "embed", "id": 1, "rows": [[1, "2"]]}',
        b'{"type": "embed", "id": 1, "rows": [[-1]]}',
        b'{"type": "generate", "id": 1, "tokens": [1], "params": {"seed": "1"}}',
        b'{"type": "start", "model": {"name": "a", "path": "a"}, "options": {"kv_cache": "f8"}, "max_queue_size": 1}',
    ],
)
def test_invalid_message_is_refused(line):
    with raises(FormatError, f"{len(line):,} bytes", code="invalid_message"):
        decode_to_worker(line)


@pytest.mark.parametrize("message", [*TO_WORKER, *FROM_WORKER], ids=lambda message: message.type)
def test_messages_wrong_field_is_refused(message):
    decode = decode_to_worker if isinstance(message, ToWorker) else decode_from_worker
    fields = json.loads(encode(message))
    for name in fields:
        with pytest.raises(FormatError):
            decode(json.dumps({**fields, name: {"no": "such"}}).encode())
        if name != "type":
            with pytest.raises(FormatError):
                decode(json.dumps({**fields, f"{name}_": 1}).encode())


def test_messages_of_other_side_are_refused():
    for message in FROM_WORKER:
        with pytest.raises(FormatError):
            decode_to_worker(encode(message))


def test_size_is_bounded(monkeypatch):
    monkeypatch.setattr(messages, "MAX_MESSAGE_BYTES", 100)
    with raises(InputError, "generate", "limit is 100", code="message_too_large"):
        encode(Generate(1, tuple(range(100)), PARAMS))


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("InputError", InputError),
        ("ContextFullError", ContextFullError),
        ("HubError", Error),
        ("annotations", Error),
        ("Exception", Error),
        ("", Error),
    ],
)
def test_errors_keep_their_class(kind, result):
    error = error_of(kind, "words", "reason")
    assert type(error) is result and str(error) == "words"
    assert error.reason == ("reason" if result is not Error else "")
