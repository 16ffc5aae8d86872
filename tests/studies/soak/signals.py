"""Ctrl-C and SIGTERM at random moments of real commands.

`python -m tests.studies soak.signals --count 200` sends one of both to `export`, `chat`, `serve`, `batch`, `bundle` and
`bench`, each with a tiny checkpoint and folders of its own, at a random moment of the time that the command takes. It
counts wrong exit codes, tracebacks, processes that are left, and files: partial ones, and all in the temporary folder.

`python -m tests.studies soak.signals MODEL.pte --count 100` measures how soon `generate` and `chat` end after Ctrl-C:
while they load, read a prompt or write an answer, with the driver's cache of compiled kernels (warm) or without (cold).
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.harness.terminal import SRC
from tests.support.models.tiny_checkpoint import write_checkpoint

PATIENCE = 60  # seconds, only to end what hangs
SETTLING = 10  # seconds in which a child notices that its command has ended: it may be importing modules
PROGRAM = ("-m", "webpte")
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass(frozen=True)
class Outcome:
    code: int | None  # None: it had to be killed
    seconds: float
    errors: str

    @property
    def before_entry(self) -> bool:
        """Whether the signal came before the command could handle it: Python started, or imported the package."""
        return self.code is not None and self.code < 0 and "in entry" not in self.errors

    @property
    def name(self) -> str:
        if self.before_entry:
            return "ended by the signal before the command ran"
        return "hung" if self.code is None else str(self.code)


@contextmanager
def started(
    arguments: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(
        [sys.executable, *PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SRC), **environment},
        cwd=folder,
        start_new_session=True,  # its processes are known by their session
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def interrupt(child: subprocess.Popen[bytes], number: signal.Signals = signal.SIGINT) -> Outcome | None:
    """None if there is nothing left to interrupt."""
    if child.poll() is not None:
        return None
    began = time.monotonic()
    child.send_signal(number)
    try:
        _, errors = child.communicate(timeout=PATIENCE)
        return Outcome(child.returncode, time.monotonic() - began, errors.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        return Outcome(None, PATIENCE, "")


def first_output(child: subprocess.Popen[bytes], expected: bytes = b"", timeout: float = 300) -> bool:
    """Wait until the child has written something, or something certain. False if it ends before."""
    assert child.stdout is not None
    seen, deadline = b"", time.monotonic() + timeout
    while time.monotonic() < deadline:
        if select.select([child.stdout], [], [], 1)[0]:
            piece = os.read(child.stdout.fileno(), 65536)
            seen += piece
            if not piece:
                return False
            if expected in seen:
                return True
    raise AssertionError(f"no output within {timeout} s")


def say(child: subprocess.Popen[bytes], text: bytes) -> None:
    assert child.stdin is not None
    child.stdin.write(text + b"\n")
    child.stdin.flush()


# ---------------------------------------------------------------- what is left


@dataclass(frozen=True)
class Workplace:
    """The folders of one trial: a checkpoint, and what a command may write to."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        names = {"XDG_CACHE_HOME": "cache", "XDG_STATE_HOME": "state", "HOME": "home", "TMPDIR": "tmp"}
        return {name: str(self.root / folder) for name, folder in names.items()}

    def leftovers(self) -> list[str]:
        """Return the partial files of a command that has ended, and all of its temporary files."""
        paths = [path.relative_to(self.root) for path in self.root.rglob("*")]
        partial = [path for path in paths if path.name.startswith(".") and path.suffix in (".part", ".tmp", ".old")]
        temporary = [path for path in paths if path.parts[0] == "tmp" and len(path.parts) > 1]
        return sorted({str(path) for path in (*partial, *temporary)})


@contextmanager
def workplace() -> Iterator[Workplace]:
    with tempfile.TemporaryDirectory(prefix="signals-") as name:
        root = Path(name)
        for folder in ("cache", "state", "home", "tmp", "model"):
            (root / folder).mkdir()
        write_checkpoint(root / "model")
        (root / "model" / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        (root / "rows.jsonl").write_text("".join(json.dumps({"text": f"row {n}"}) + "\n" for n in range(40)))
        yield Workplace(root)


def remaining_processes(session: int) -> list[str]:
    """Return the commands of the processes in a session that do not end by themselves, and kill them."""
    until = time.monotonic() + SETTLING
    while (processes := processes_of(session)) and time.monotonic() < until:
        time.sleep(0.05)
    for number in processes:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    return list(processes.values())


def processes_of(session: int) -> dict[int, str]:
    """Return the commands of the processes in a session by their numbers, but for those that have ended."""
    results = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] != "Z":
                    results[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()
            except OSError:  # it has ended
                continue
    return results


# ---------------------------------------------------------------- all commands


@dataclass(frozen=True)
class Command:
    """A command in a folder of its own. `until` is its output on stderr after which it waits; None: it ends."""

    arguments: tuple[str, ...]
    until: bytes | None = None
    stdin: bytes = b""
    graceful: bool = False  # once it serves, a signal lets it end with 0


COMMANDS = {
    "export": Command(("export", "model", "-o", "x.pte", "--quantize", "4w", "--group-size", "32")),
    "chat": Command(("chat", "model", "--max-new-tokens", "60", "--temperature", "1"), stdin=b"hello\n" * 20),
    "serve": Command(("serve", "model", "--port", "0"), until=b"serving at", graceful=True),
    "batch": Command(("batch", "model", "rows.jsonl", "out", "--max-new-tokens", "8", "--block-rows", "4", "--raw")),
    "bundle": Command(("bundle", "model", "-o", "site")),
    "bench": Command(("bench", "--report", "-o", "report", "--seconds", "0.05")),
}


@contextmanager
def running(command: Command, place: Workplace) -> Iterator[subprocess.Popen[bytes]]:
    with started(command.arguments, place.environment, place.root) as child:
        assert child.stdin is not None
        child.stdin.write(command.stdin)
        child.stdin.close()
        child.stdin = None  # `communicate` would flush it
        yield child


def seconds_of(command: Command, most: float = 40) -> float:
    """Return how long a command runs until it ends or waits, at most `most`."""
    began = time.monotonic()
    with workplace() as place, running(command, place) as child:
        assert child.stderr is not None and child.stdout is not None
        seen = b""
        while time.monotonic() - began < most:
            if select.select([child.stderr], [], [], 0.1)[0]:
                piece = os.read(child.stderr.fileno(), 65536)
                seen += piece
                if not piece or (command.until is not None and command.until in seen):
                    break
    return time.monotonic() - began


def faults(command: Command, number: signal.Signals, moment: float) -> tuple[Outcome, list[str]] | None:
    """Send a signal after `moment` seconds. What came of it, and what is wrong; None if the command was faster."""
    with workplace() as place, running(command, place) as child:
        time.sleep(moment)
        outcome = interrupt(child, number)
        if outcome is None:
            return None
        wrong = []
        allowed = {EXIT_CODES[number], *([0] if command.graceful else [])}
        if outcome.code not in allowed and not outcome.before_entry:
            wrong.append(f"exit code {outcome.name}")
        if "Traceback" in outcome.errors and not outcome.before_entry:
            wrong.append("traceback")
        wrong += [f"still runs: {name}" for name in remaining_processes(child.pid)]
        wrong += [f"left: {path}" for path in place.leftovers()]
        return outcome, wrong


def soak(names: Sequence[str], count: int, seed: int, say: Callable[[str], object] = print) -> int:
    """Interrupt commands in turn, `count` times in all. Return how many interruptions had a fault."""
    chance, lasts, tally, wrong = random.Random(seed), dict[str, float](), collections.Counter[tuple[str, ...]](), 0
    slowest = 0.0
    while tally.total() < count:
        name = names[tally.total() % len(names)]
        if name not in lasts:
            lasts[name] = seconds_of(COMMANDS[name])
            say(f"{name} takes {lasts[name]:.1f} s")
        number, moment = chance.choice(list(EXIT_CODES)), chance.random() * lasts[name]
        result = faults(COMMANDS[name], number, moment)
        if result is None:
            lasts[name] *= 0.9  # it was faster this time
            continue
        outcome, actual = result
        tally[name, number.name, outcome.name] += 1
        slowest, wrong = max(slowest, outcome.seconds), wrong + bool(actual)
        line = f"{name}, {number.name} at {moment:.2f} s: {outcome.name} after {outcome.seconds:.2f} s"
        say("\n".join([line, *(f"  {fault}" for fault in actual), *([outcome.errors] if actual else [])]))
    for row, times in sorted(tally.items()):
        say(f"{times:4} {' | '.join(row)}")
    say(f"{count} interruptions, {wrong} with a fault, the slowest after {slowest:.2f} s")
    return wrong


# ---------------------------------------------------------------- how soon a language model ends

PHASES = ("load", "prefill", "decode", "chat prefill", "chat decode")
WITHIN = 0.5  # seconds
READY = b"tokens"  # as a chat counts them when it is asked to, and so has been loaded


@dataclass(frozen=True)
class Subject:
    """A language model, and how long the prompt is that its prefill phase reads."""

    model: str
    words: int

    def command(self, phase: str) -> list[str]:
        common = ["--max-new-tokens", "100000", "--temperature", "1"]
        if phase.startswith("chat"):
            return ["chat", self.model, *common]
        prompt = "a " * (1 if phase == "decode" else self.words)
        return ["generate", self.model, "--prompt", prompt, *common]


@contextmanager
def answering(subject: Subject, phase: str, cold: bool) -> Iterator[subprocess.Popen[bytes]]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {"MESA_SHADER_CACHE_DIR": cache} if cold else {}
        with started(subject.command(phase), environment) as child:
            yield child


def trial(subject: Subject, phase: str, cold: bool, moment: float) -> Outcome | None:
    """SIGINT at a moment from 0 to 1 of a phase, whose length is measured first; None if the command was faster."""
    with answering(subject, phase, cold) as child:
        if phase in ("load", "prefill"):
            time.sleep(moment * seconds_until_answer(subject, phase, cold))
            return interrupt(child)
        if phase.startswith("chat"):
            say(child, b"/tokens")
            assert first_output(child, READY)
            say(child, b"a " * subject.words)
            if phase == "chat prefill":
                time.sleep(moment * seconds_of_prefill(subject))
                return interrupt(child)
        assert first_output(child)
        time.sleep(moment / 2)
        return interrupt(child)


_measured: dict[tuple[Subject, str, bool], float] = {}


def seconds_until_answer(subject: Subject, phase: str, cold: bool) -> float:
    key = (subject, phase, cold)
    if key not in _measured:
        with answering(subject, "decode" if phase == "load" else phase, cold) as child:
            began = time.monotonic()
            assert first_output(child)
            _measured[key] = time.monotonic() - began
    return _measured[key]


def seconds_of_prefill(subject: Subject) -> float:
    key = (subject, "chat", False)
    if key not in _measured:
        with answering(subject, "chat", False) as child:
            say(child, b"/tokens")
            assert first_output(child, READY)
            say(child, b"a " * subject.words)
            began = time.monotonic()
            assert first_output(child)
            _measured[key] = time.monotonic() - began
    return _measured[key]


def measure(subject: Subject, count: int, seed: int, cold_share: float) -> int:
    """Interrupt a language model `count` times. Return how often it was wrong or late."""
    chance = random.Random(seed)
    tally: collections.Counter[tuple[str, str, str]] = collections.Counter()
    slowest, wrong = 0.0, 0
    while tally.total() < count:
        phase = PHASES[tally.total() % len(PHASES)]
        cold, moment = chance.random() < cold_share, chance.random()
        outcome = trial(subject, phase, cold, moment)
        if outcome is None:
            continue
        tally[phase, "cold" if cold else "warm", outcome.name] += 1
        slowest = max(slowest, outcome.seconds)
        good = (outcome.code == EXIT_CODES[signal.SIGINT] or outcome.before_entry) and outcome.seconds <= WITHIN
        line = f"{phase}, {'cold' if cold else 'warm'}, at {moment:.2f}: {outcome.name} after {outcome.seconds:.2f} s"
        print(line if good else f"{line}\n{outcome.errors}", flush=True)
        wrong += not good
    for row, times in sorted(tally.items()):
        print(f"{times:4} {' | '.join(row)}")
    print(f"{count} interrupts, {wrong} wrong or later than {WITHIN} s, the slowest after {slowest:.2f} s")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="without a model")
    parser.add_argument("--words", type=int, default=200, help="length of the prompt in the prefill phases")
    parser.add_argument("--cold", type=float, default=0.3, help="share of trials without compiled kernels")
    chosen = parser.parse_args()
    if chosen.model is not None:
        return 1 if measure(Subject(chosen.model, chosen.words), chosen.count, chosen.seed, chosen.cold) else 0
    return 1 if soak(chosen.commands, chosen.count, chosen.seed, lambda line: print(line, flush=True)) else 0


if __name__ == "__main__":
    sys.exit(main())
