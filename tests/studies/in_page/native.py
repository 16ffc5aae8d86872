"""Answers of the native player, in a process of its own: `python -m tests.studies in_page.native MODEL
[CONFIGURATION]`.

Requests as the page is given them come in as JSON, tokens go out as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.support.harness.configurations import CONFIGURATIONS

NAMES = {"max_tokens": "max_new_tokens"}


def answers(model: str, requests: list[dict[str, Any]]) -> list[list[int]]:
    from webpte.llm import LLM

    results: list[list[int]] = []
    with LLM.load(model) as llm:
        for request in requests:
            settings = {NAMES.get(name, name): value for name, value in request.items()}
            if "messages" in settings:
                generation = llm.generate(settings.pop("messages"), **settings)
            else:
                generation = llm.complete(settings.pop("prompt"), **settings)
            generation.result()
            results.append(list(generation.tokens))
    return results


if __name__ == "__main__":
    CONFIGURATIONS[sys.argv[2] if len(sys.argv) > 2 else "swiftshader"].apply()
    print(json.dumps(answers(sys.argv[1], json.load(sys.stdin))))
