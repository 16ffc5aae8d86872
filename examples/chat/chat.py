"""A scripted conversation with a language model: answers as they come, what they cost, and a question asked twice.

pip install 'webpte[llm]'
python chat.py smollm2.pte

smollm2.pte comes from `webpte export smollm2.gguf -o smollm2.pte --quantize 4w --embedding 4,32`; any program that
`webpte chat` talks to does. Speak to it yourself with `webpte chat smollm2.pte`.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from webpte.llm import LLM

QUESTIONS = ("What is the capital of France?", "And of Italy?", "Name one dish from there.")
Messages = list[dict[str, str]]


def ask(llm: LLM, messages: Messages, question: str, **settings: Any) -> str:
    """Print the answer piece by piece and remember both sides of it."""
    messages.append({"role": "user", "content": question})
    answer = llm.generate(messages, **settings)
    print(f"> {question}")
    for piece in answer:
        print(piece.text, end="", flush=True)
    messages.append({"role": "assistant", "content": answer.text})
    used = answer.usage
    print(f"\n[{used.prompt_tokens} prompt tokens, {used.reused_tokens} of them in the cache already; ", end="")
    print(f"{used.completion_tokens} new at {used.decode_rate:.1f} a second; {used.finish_reason}]\n")
    return answer.text


def main(path: str, questions: Sequence[str], tokens: int) -> None:
    with LLM.load(path) as llm:
        messages: Messages = []
        for question in questions:
            ask(llm, messages, question, max_new_tokens=tokens)

        # What both begin with is in the cache; what one says, the other never hears.
        drawn = [
            ask(llm, list(messages), "Tell me more.", max_new_tokens=tokens, temperature=0.8, top_p=0.95, seed=seed)
            for seed in (0, 1)
        ]
        print("The same words twice." if drawn[0] == drawn[1] else "Two seeds, two answers.")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the .pte program")
    parser.add_argument("questions", nargs="*", default=QUESTIONS, help="asked one after the other")
    parser.add_argument("--max-new-tokens", type=int, default=48, metavar="N", help="tokens of an answer at most (48)")
    arguments = parser.parse_args()
    main(arguments.file, arguments.questions, arguments.max_new_tokens)
