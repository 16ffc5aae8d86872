"""A server's worker under blows and under load: `python -m tests.serving kills [MODEL.pte] [--rounds 30]`, and so on.

kills: a server's worker is killed, or loses its device, at random moments with four streams open: two greedy
ones, one of them by a schema, and two seeded ones, one with penalties, one up to a stop string. Their texts must be
those of an undisturbed run. Ends with status 1 if one differs, or a client saw an error.

streams: tokens a second of 1, 4, 8 and 16 streams by HTTP, beside the engine in this process, turn by turn. Each text
must be the one that the engine gives for it alone.

waits: seconds to the first token after a prompt of 300 tokens that is new or known, and for the vectors of 64 texts by
HTTP and in Python. Give a language model and an encoder.

schemas: a server is asked for answers by random JSON schemas and, half as many, for calls of tools with random
parameters, eight at a time, half of them greedy, half drawn. `jsonschema` must find every answer valid.
The schemas are those that bound how long an answer can be, so that none is cut off.

load: 50 clients send a server 2,000 requests: whole, in streams, left in the middle, read slowly, too large,
invalid JSON, with hostile schemas, of unknown models; 429 lets them come again. No answer may have a status of 500 or
above, no slot may stay taken, and over the second half neither process may grow by more than 2 %; it also says by how
much after the first 200. Both are looked at when the server has nothing to do.

abuse: a client asks for short answers and polls /health, first alone, then beside 8 plain requests, then beside hostile
clients of 38 kinds (or `--kinds`) that come from another address: slow headers and bodies, huge prompts, schema bombs,
10,000 connections, streams that are not read, chunks of one byte, trailers, pipelines, uploads that are held, stop
strings that hold all text back, and so on. Ends with status 1 if its longest gap between tokens is more than twice the
one beside plain requests, /health takes more than 0.1 s, memory stays more than 10 % larger, the temporary folder had
more than 256 MB or is not empty, or a response has a status of 500 or above, except 503 and 504 with a reason.
Measure on an idle machine.

Without a model it is a tiny one with random weights.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from . import abuse, kills, load, schemas, streams, waits


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.serving", description=__doc__)
    parser.add_argument("what", choices=["kills", "streams", "waits", "schemas", "load", "abuse"])
    parser.add_argument("model", nargs="?", help="a language model with its tokenizer beside it")
    parser.add_argument("encoder", nargs="?", help="of texts, for waits")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=40, help="of an answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schemas", type=int, default=100, help="and half as many requests with tools")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=300, help="of abuse")
    parser.add_argument(
        "--kinds", nargs="+", choices=abuse.NAMES_OF_KINDS, default=abuse.NAMES_OF_KINDS, help="of abuse"
    )
    options = parser.parse_args()
    if options.what == "waits" and options.encoder is None:
        parser.error("waits needs a language model and an encoder")
    with tempfile.TemporaryDirectory() as folder:
        if options.what in ("schemas", "load", "abuse"):
            return over_http(options.model or caller(Path(folder)), options)
        path = options.model or tiny(Path(folder))
        if options.what == "streams":
            return streams.show(path, options.rounds, options.tokens)
        if options.what == "waits":
            return waits.show(path, options.encoder, options.rounds)
        return kills.show(path, options.rounds, options.seed, options.tokens)


def over_http(path: str, options: argparse.Namespace) -> int:
    if options.what == "schemas":
        return schemas.show(path, options.schemas, options.schemas // 2)
    if options.what == "abuse":
        return abuse.show(path, options.seconds, options.kinds)
    return load.show(path, options.requests, options.clients, options.seed)


def caller(folder: Path) -> str:
    from tests.support.models.caller_files import write_caller

    return str(write_caller(folder))


def tiny(folder: Path) -> str:
    from tests.support.models.tiny_llm import write_tiny_llm

    return str(write_tiny_llm(folder) / "tiny.pte")


if __name__ == "__main__":
    sys.exit(main())
