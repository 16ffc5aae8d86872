"""Find the sentences that mean what you ask, whatever words they use.

pip install 'webpte[tasks]'
python search.py minilm.pte "how do I keep warm at night?"

minilm.pte comes from `webpte export`, as README.md says.
"""

import sys
from pathlib import Path

from webpte.embed import Embedder

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


def main(path: Path, questions: tuple[str, ...]) -> None:
    with Embedder.load(path) as embedder:
        known, asked = embedder(SENTENCES), embedder(questions)  # (sentences, 384), (questions, 384)
    for question, scores in zip(questions, asked @ known.T, strict=True):  # cosines: all vectors have length 1
        print(question)
        for best in scores.argsort()[::-1][:3]:
            print(f"  {scores[best]:.2f}  {SENTENCES[best]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(sys.argv[2:]) or QUESTIONS)
