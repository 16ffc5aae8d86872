"""Find the sentences that mean what you ask, whatever words they use.

pip install 'webpte[llm]'
python search.py minilm.pte "how do I keep warm at night?"

minilm.pte comes from export.py. Every sentence runs at its own length: one program, no padding.
"""

import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

import webpte

SENTENCES = (
    "The last train to the coast leaves at ten past nine.",
    "You can rent bicycles behind the station.",
    "The museum is closed on Mondays.",
    "Admission is free for children under twelve.",
    "Extra blankets are in the wardrobe.",
    "Breakfast is served from seven until ten.",
    "We have dishes without meat and without milk.",
    "The doctor on duty can be reached by telephone.",
    "Dogs must be kept on a lead in the park.",
    "Please separate glass and paper from other rubbish.",
    "The password for the wireless network is on the back of your key card.",
    "Thunderstorms are expected in the afternoon.",
    "The bakery on the corner opens before sunrise.",
    "From the tower one can see the whole valley.",
    "The swimming pool is heated all year round.",
    "Cash machines are next to the post office.",
)
QUESTIONS = (
    "How do I keep warm at night?",
    "How do I get on the internet?",
    "I feel ill, who can help?",
    "What can vegetarians eat here?",
    "What will the weather be like?",
    "Where can I get money?",
)


class Encoder:
    """Sentences to rows of a matrix, one direction for each meaning."""

    def __init__(self, path: Path) -> None:
        self.program = webpte.load(path)
        self.forward = self.program.method("forward")
        self.tokenizer = Tokenizer.from_file(str(path.with_suffix(".tokenizer.json")))
        self.tokenizer.no_padding()

    def __call__(self, sentences: tuple[str, ...]) -> np.ndarray:
        ids = [np.array([self.tokenizer.encode(sentence).ids]) for sentence in sentences]  # (1, T) each
        return np.concatenate([self.forward(row) for row in ids])  # (N, 384)


def main(path: Path, questions: tuple[str, ...]) -> None:
    encode = Encoder(path)
    known = encode(SENTENCES)
    for question, vector in zip(questions, encode(questions), strict=True):
        scores = known @ vector  # cosines: all vectors have length 1
        print(question)
        for best in scores.argsort()[::-1][:3]:
            print(f"  {scores[best]:.2f}  {SENTENCES[best]}")
    encode.program.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(sys.argv[2:]) or QUESTIONS)
