"""Chat templates in the page's renderer and natively: `python -m tests.studies in_page.templates [--count 200] [--seed
0]`.

Every template of the corpus with that many random conversations. The texts must be equal, or both sides must fail. Ends
with status 1 if any differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

from jinja2.meta import find_undeclared_variables

import webpte
from tests.support.harness.node import ask_node
from webpte.llm.prompts import render_chat
from webpte.llm.template_sandbox import TemplateEnvironment

from .template_corpus import TEMPLATES, Conversation, conversations


def native(template: str, talk: Conversation) -> str | None:
    """Return the text that Python renders, or None if it refuses the template."""
    try:
        return render_chat(template, talk["messages"], talk["variables"], tools=talk["tools"])
    except webpte.Error:
        return None


def differences(templates: dict[str, str], talks: list[Conversation]) -> Iterator[tuple[str, Conversation, Any, Any]]:
    """Name, conversation, native text and page's text, where they are not the same."""
    # Natively, tools for a template without them are an error before it is rendered.
    values = [{"template": template, "tools": takes_tools(template)} for template in templates.values()]
    pages = ask_node("language.mjs", "renderAll", {"templates": values, "talks": talks}, timeout=900)
    for (name, template), with_tools, texts in zip(templates.items(), values, pages, strict=True):
        for talk, actual in zip(talks, texts, strict=True):
            expected = native(template, talk if with_tools["tools"] else {**talk, "tools": None})
            if expected != (actual if isinstance(actual, str) else None):
                yield name, talk, expected, actual


def takes_tools(template: str) -> bool:
    return "tools" in find_undeclared_variables(TemplateEnvironment().parse(template))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies in_page.templates", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="conversations for each template")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    talks = conversations(options.seed, options.count)
    actual = list(differences(TEMPLATES, talks))
    for name, talk, expected, got in actual[:20]:
        print(f"{name}\n  conversation {talk!r:.600}\n  native {expected!r:.600}\n  page   {got!r:.600}")
    print(f"{len(TEMPLATES)} templates x {len(talks)} conversations: {len(actual)} different")
    return 1 if actual else 0


if __name__ == "__main__":
    sys.exit(main())
