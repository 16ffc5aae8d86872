"""Prompts that ask to repeat a text, and to write one."""

from __future__ import annotations

LIGHTHOUSE = (
    "The old lighthouse on the northern cliff had been dark for thirty years when Marta Olsen bought it. She painted "
    "the door green, mended the stairs, and carried the great lamp down piece by piece to clean it. On the first "
    "evening of October she lit it again, and the fishermen in the harbour stood still to look. Nobody had told them "
    "that the light would return, but all of them had waited for it."
)
PEOPLE = (
    '[{"name": "Anna", "age": 31, "city": "Oslo"}, {"name": "Bert", "age": 45, "city": "Bergen"}, '
    '{"name": "Carl", "age": 28, "city": "Moss"}, {"name": "Dora", "age": 62, "city": "Narvik"}]'
)
REWRITES = (
    f"Repeat this text word for word:\n\n{LIGHTHOUSE}",
    f"Correct the spelling of this text and print it again:\n\n{LIGHTHOUSE.replace('great', 'graet')}",
    f"Print this text again, with 'Marta Olsen' replaced by 'Anna Berg':\n\n{LIGHTHOUSE}",
    f"Print this JSON again, sorted by age:\n\n{PEOPLE}",
)
PROSE = (
    "Write a short story about a dragon who is afraid of fire.",
    "Explain how tides work.",
    "Describe a rainy afternoon in a small town.",
    "What are the advantages of learning a second language?",
)


def fifty() -> list[str]:
    """Prompts of all kinds, short and long, that repeat themselves and do not."""
    results = [*REWRITES, *PROSE]
    words = LIGHTHOUSE.split()
    results += [f"Continue: {' '.join(words[at : at + 8])}" for at in range(0, 40, 4)]
    results += [f"Count from {at} to {at + 30}." for at in range(12)]
    results += [f"List {count} animals, one to a line." for count in range(5, 15)]
    results += [f"Say the word '{word}' {count} times." for count, word in enumerate(words[:10], 5)]
    return results
