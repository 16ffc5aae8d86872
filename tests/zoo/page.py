"""The zoo's part of docs/models.md: written by `python -m tests.zoo --write`, read by a test that checks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.support.models.architectures import DOCS as DOCS
from tests.support.models.architectures import ZOO as HEADING

from .index import Program, programs
from .outcome import Kind, Outcome

TEXT = """
Written by `python -m tests.zoo --write`. Programs of every kind that people export: `tests/zoo/programs` has them, a
function each. Every one goes through ExecuTorch's exporter, with dynamic sizes where it takes them, and runs at its
bound and at three or more smaller shapes (or, where its shape is fixed, with as many inputs); state carries over from
one call to the next. Eager PyTorch says what is right: integers and booleans equal, NaN and infinities in the same
places, the rest within a tolerance that most programs have at 2e-5 of an output's largest value.

*Refused by the exporter*: ExecuTorch raised, and there is no file. *Refused by webpte*: loading or calling raised an
error of `webpte.errors` that says why. *Wrong* differs from eager, *crashed* is any other exception.
"""
REASONS = {
    Kind.WRONG: "What is wrong",
    Kind.CRASHED: "What happened",
    Kind.REFUSED: "Why",
    Kind.EXPORTER: "What ExecuTorch said",
}
# What ExecuTorch says when it fails, in part, and what that means.
IN_WORDS = {
    "graph_output_allocated": "the memory plan of a delegate with dynamic sizes fails",
    "not decomposed or delegated": "the partitioner claims an op and then leaves it",
    "fake mode": "a pass of the Vulkan backend mixes two tracers",
    "Buffer output": "a buffer written in a delegate is lost",
    "Tried to erase Node": "a buffer written in a delegate is lost",
    "was tagged to be consumed": "a buffer written in a delegate is also returned",
    "is tagged with": "a parameter or buffer is returned as it is",
    "control flow operator": "no such loop in a file",
    "used before it has been defined": "a pass puts a dynamic size behind its use",
    "Missing out variants": "no out-variant of an op that writes its statistics",
    "insertion point": "a delegate of nothing but assertions",
    "WithEffects": "an assertion with effects",
    "Cannot add value for list": "a list of dynamic sizes in a delegate",
}
FAMILY = ("Family", "Programs", *(str(kind).capitalize() for kind in Kind), "Largest error")
RIGHT = ("Program", "What it is", "Shapes", "Delegates", "Kernel calls", "On the CPU", "Error")
WIDEST = 200  # characters of a reason


def write(outcomes: Mapping[str, Outcome]) -> None:
    DOCS.write_text(DOCS.read_text().partition(HEADING)[0] + section(outcomes))


def section(outcomes: Mapping[str, Outcome]) -> str:
    known = programs()
    chosen = [(known[name], outcome) for name, outcome in outcomes.items()]
    families = sorted({program.family for program, _ in chosen})
    rows = [summary(family, [o for p, o in chosen if p.family == family]) for family in families]
    rows.append(summary("all", [o for _, o in chosen]))
    parts = [HEADING, TEXT, table(FAMILY, rows), f"### {str(Kind.RIGHT).capitalize()}\n"]
    parts.append(table(RIGHT, [right(p, o) for p, o in chosen if o.kind is Kind.RIGHT]))
    for kind, why in REASONS.items():
        if found := sorted((in_words(o), o.why, p.name, about(p)) for p, o in chosen if o.kind is kind):
            rows = [(name, what, f"{words}: {code(text)}".removeprefix(": ")) for words, text, name, what in found]
            parts += [f"### {str(kind).capitalize()}\n", table(("Program", "What it is", why), rows)]
    return "\n".join(parts)


def summary(family: str, outcomes: list[Outcome]) -> tuple[str, ...]:
    counts = Counter(outcome.kind for outcome in outcomes)
    largest = max((o.error for o in outcomes if o.kind is Kind.RIGHT), default=0.0)
    return (family, str(len(outcomes)), *(str(counts[kind]) for kind in Kind), f"{largest:.1e}")


def right(program: Program, o: Outcome) -> tuple[str, ...]:
    numbers = (o.shapes, o.delegates, o.kernel_calls, o.on_cpu)
    return (program.name, about(program), *map(str, numbers), f"{o.error:.1e}")


def in_words(outcome: Outcome) -> str:
    """Of a message of the exporter's, what it means; "" where that is not known, or the message says it."""
    if outcome.kind is not Kind.EXPORTER:
        return ""
    return next((words for part, words in IN_WORDS.items() if part in outcome.why), "")


def about(program: Program) -> str:
    return program.about.removesuffix(".")


def code(text: str) -> str:
    short = text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"
    return f"`{short.replace('`', chr(39)).replace('|', '¦')}`"  # neither may be in the code of a table


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))


# ---------------------------------------------------------------- reading it


def tables(text: str) -> dict[str, list[tuple[str, ...]]]:
    """The rows of the zoo's tables, without their heads, by the heading above them; "" is the summary."""
    found: dict[str, list[tuple[str, ...]]] = {"": []}
    heading = ""
    for line in text.partition(HEADING)[2].splitlines():
        if line.startswith("### "):
            heading = line.removeprefix("### ").lower()
            found[heading] = []
        elif line.startswith("| "):
            found[heading].append(tuple(cell.strip() for cell in line.split("|")[1:-1]))
    return {heading: rows[2:] for heading, rows in found.items()}
