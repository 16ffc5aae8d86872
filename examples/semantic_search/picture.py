"""Draw how near each question is to each sentence, meaning.png.

pip install 'webpte[tasks]' matplotlib
python picture.py minilm.pte meaning.png
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
from search import QUESTIONS, SENTENCES

from webpte.embed import Embedder


def main(program: Path, picture: Path) -> None:
    with Embedder.load(program) as embedder:
        scores = embedder(QUESTIONS) @ embedder(SENTENCES).T  # (questions, sentences)
    figure, axes = plt.subplots(figsize=(7.6, 5.2), dpi=100)
    axes.imshow(scores.T, cmap="Blues", aspect="auto", vmin=0, vmax=0.7)
    for question, best in enumerate(scores.argmax(axis=1)):
        axes.text(question, best, f"{scores[question, best]:.2f}", ha="center", va="center", fontsize=9)
    axes.set_xticks(range(len(QUESTIONS)), QUESTIONS, rotation=25, ha="right", fontsize=8)
    axes.set_yticks(range(len(SENTENCES)), SENTENCES, fontsize=8)
    figure.tight_layout()
    figure.savefig(picture)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
