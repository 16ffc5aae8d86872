"""A bundle played by webpte itself, in a process of its own because a driver is chosen once: JSON lines in and out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import webpte
from webpte.runtime import Bundle, load_source

TOKENS, PLACES = range(2)
DTYPES = {"i64": np.int64, "i32": np.int32, "f32": np.float32}  # of the rows' inputs


class Native:
    """The same questions as those to a page."""

    def __init__(self, folder: str, script: dict[str, Any]) -> None:
        self.script = script
        program = load_source(folder)
        assert isinstance(program, Bundle)
        self.method = program.method("forward", slots=script["slots"])

    def arguments(self, value: Sequence[Any]) -> list[Any]:
        return [
            each if isinstance(each, int) else np.array(each["data"], DTYPES[str(spec.dtype)]).reshape(each["dims"])
            for each, spec in zip(value, self.method.inputs, strict=True)
        ]

    def begin(self) -> dict[str, Any]:
        for before in self.script["before"]:
            self.method.run(self.arguments(before), outputs=[self.script["timed"]])  # read, so that it is done
        return {}

    def run(self, count: int, compare: bool) -> dict[str, Any]:
        args, output = self.arguments(self.script["call"]), None
        outputs = [self.script["compared"], self.script["timed"]] if compare else [self.script["timed"]]
        times, tokens = [], []
        for i in range(count + 1):
            began = time.perf_counter()
            result = self.method.run(args, outputs=outputs)
            times.append(1e3 * (time.perf_counter() - began))
            if compare and i == 0:
                output = np.asarray(result[0]).ravel().tolist()
            tokens.append(int(np.asarray(result[-1]).ravel()[0]))
            if self.script["grows"]:
                args[TOKENS] = np.array([[tokens[-1]]], args[TOKENS].dtype)
                args[PLACES] = args[PLACES] + np.array([0, 1], np.int32)
        return {"times": times, "tokens": tokens, "output": output}


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    native = Native(asked["folder"], asked["script"])
    print(json.dumps({"version": webpte.__version__}), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        answer = native.begin() if question.pop("do") == "begin" else native.run(**question)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
