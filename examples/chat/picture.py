"""Draw how much of each prompt of a conversation was in the cache already, cache.png.

pip install 'webpte[llm]' matplotlib
python picture.py smollm2.pte cache.png
"""

import sys

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from chat import QUESTIONS, Messages

from webpte.llm import LLM


def main(path: str, picture: str, questions: tuple[str, ...] = QUESTIONS) -> None:
    rows = []
    with LLM.load(path) as llm:
        messages: Messages = []
        for question in questions:
            messages.append({"role": "user", "content": question})
            answer = llm.generate(messages, max_new_tokens=48)
            messages.append({"role": "assistant", "content": answer.result()})
            used = answer.usage
            rows.append((used.reused_tokens, used.prompt_tokens - used.reused_tokens, used.completion_tokens))
    figure, axes = plt.subplots(figsize=(7, 2.6), dpi=100)
    left = [0] * len(rows)
    parts = (("in the cache", "0.8"), ("of the prompt, computed", "tab:blue"), ("answered", "tab:orange"))
    for column, (label, color) in enumerate(parts):
        widths = [row[column] for row in rows]
        axes.barh(range(len(rows)), widths, left=left, color=color, label=label)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(rows)), questions, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("tokens")
    axes.legend(fontsize=8, loc="upper right")
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], tuple(sys.argv[3:]) or QUESTIONS)
