"""The figures of docs/architecture.md: the objects of a method, and the life of a request.

Each box names a class or a function and the module that defines it; tests/project/test_figures.py compares both.
"""

from __future__ import annotations

from dataclasses import dataclass

from docs.drawing import Drawing


@dataclass(frozen=True)
class Box:
    """A class or a function, the module of `webpte` that defines it, and what it holds or produces."""

    name: str
    module: str
    text: tuple[str, ...]
    color: str


PROGRAM = Box("Program", "runtime/program.py", ("mapped files, load options,", "open methods"), "grey")
GPU = Box("Gpu", "device/gpu.py", ("adapter, queue, pipelines;", "the program's weights"), "orange")
PLANNER = Box("Planner", "plan/planner.py", ("the Plan; a Schedule for", "each set of input shapes"), "violet")
EXECUTOR = Box("Executor", "runtime/executor.py", ("checks, converts arguments;", "runs CPU kernels"), "blue")
WORKSPACE = Box("Workspace", "device/workspace.py", ("activations, uniforms,", "staging, encoded schedules"), "orange")
METHOD = Box("Method", "runtime/method.py", ("the object that is called;", "its MethodState on the host"), "blue")
SESSION = Box("Session", "device/session.py", ("state on the device;", "records and submits"), "orange")

LANES = ("one per program", "one per method,\nshared with forks", "one per method\nand per fork")
OBJECTS = ((PROGRAM, None, GPU), (PLANNER, EXECUTOR, WORKSPACE), (None, METHOD, SESSION))
HEADS = ("files and plans", "calls", "device")


def method_objects() -> Drawing:
    """Draw the objects of a method: a row for each lifetime, a column for each kind of work."""
    drawing = Drawing(
        "method-objects", 870, 398, "The objects of a method",
        "A Program opens methods and the device. A Method and its forks share a Planner, an Executor and a Workspace; "
        "each has a Session of its own.",
    )  # fmt: skip
    left, step, width, top, tall, height = 124, 264, 210, 40, 132, 84
    for column, head in enumerate(HEADS):
        drawing.text(left + step * column + width / 2, 18, head, "head", "middle")
    for row, lane in enumerate(LANES):
        y = top + tall * row
        if row:
            drawing.line(f"M0,{y - 22} H870", "grid")
        for number, line in enumerate(lane.split("\n")):
            drawing.text(0, y + 36 + 16 * number, line, "small")
        for column, box in enumerate(OBJECTS[row]):
            if box is not None:
                _box(drawing, left + step * column, y, width, height, box)
                drawing.text(left + step * column + 10, y + height - 9, box.module, "small")
    center = [left + step * column + width / 2 for column in range(3)]
    middle = [top + tall * row + height / 2 for row in range(3)]
    gap = step - width
    drawing.arrow_down(center[0], top + height, tall - height)
    drawing.text(center[0] + 8, top + height + 16, "lowers a method", "small")
    drawing.arrow(left + width, middle[0], 2 * gap + width)
    drawing.text(center[1], middle[0] - 8, "opens the device once, uploads weights", "small", "middle")
    drawing.arrow_left(left + step, middle[1], gap)
    drawing.text(left + width + gap / 2, middle[1] - 8, "Schedule", "small", "middle")
    drawing.arrow(left + step + width, middle[1], gap)
    drawing.arrow_up(center[1], top + 2 * tall, tall - height)
    drawing.text(center[1] + 8, top + tall + height + 36, "1. arguments", "small")
    drawing.arrow_up(center[2], top + 2 * tall, tall - height)
    drawing.text(center[2] + 8, top + tall + height + 36, "3. commands", "small")
    drawing.arrow_up(center[2], top + tall, tall - height)
    drawing.text(center[2] + 8, top + height + 36, "pipelines, weights", "small")
    corner = left + step + width
    drawing.line(
        f"M{corner - 30},{top + tall + height} L{corner + gap + 24},{top + 2 * tall} m-8,-2 l8,2 l-1,-8", "arrow"
    )
    drawing.text(corner + 12, top + tall + height + 14, "2. Submission", "small")
    return drawing


HTTP = "HTTP process: no GPU library is loaded"
WORKER = "worker process: one engine thread\nper language model"
# A box, and what it passes to the next one; and a box, and what it receives from the next one.
DOWN = (
    (Box("RequestMiddleware", "serve/middleware.py", ("API key, size, connections, log",), "grey"), "bytes"),
    (Box("chat", "serve/openai/chat.py", ("declared fields, chat template, tokens",), "blue"), "ParsedRequest"),
    (Box("Service", "serve/service.py", ("fair turns of clients, schemas",), "blue"), "tokens, SamplingParams"),
    (
        Box("Supervisor", "serve/supervisor.py", ("requests in flight, restarts",), "blue"),
        "Generate, in a pipe",
    ),
    (Box("LanguageModelWorker", "serve/worker.py", ("LLM.request and LLM.submit",), "green"), "SamplingRequest"),
    (
        Box("Scheduler", "llm/engine/scheduler.py", ("admission, slots, prompt chunks",), "green"),
        "ScheduledTokens",
    ),
)
UP = (
    (Box("EventStream", "serve/responses.py", ("server-sent events, or one JSON body",), "grey"), "events"),
    (Box("ChatFormatter", "serve/openai/chat.py", ("chunks in the form of OpenAI's API",), "blue"), "Delta"),
    (Box("InstrumentedStream", "serve/openai/generation.py", ("text, tool calls, metrics",), "blue"), "Event"),
    (Box("ResponseStream", "serve/in_flight.py", ("tokens so far, timers",), "blue"), "TokenDelta, in a pipe"),
    (Box("StepOutput", "serve/messages.py", ("the TokenDeltas of one step, one message",), "green"), "Piece"),
    (Box("OutputProcessor", "llm/engine/output.py", ("text of the tokens, stop strings",), "green"), "SampledToken"),
)
DEVICE = Box("ModelRunner", "llm/engine/runner.py", ("one batch of all requests, one submit",), "orange")


def request_life() -> Drawing:
    """Draw the life of a request: down from HTTP to the submit, and up to the stream of the client."""
    drawing = Drawing(
        "request-life", 860, 560, "The life of a request",
        "POST /v1/chat/completions passes the HTTP process and the worker process to one submit of the device. The "
        "sampled tokens return as one message per engine step.",
    )  # fmt: skip
    width, height, step, down, up = 356, 46, 70, 60, 464
    split = 4  # boxes of the HTTP process
    tops = [48 + step * row + (34 if row >= split else 0) for row in range(len(DOWN))]
    drawing.box(40, 26, 800, tops[split - 1] + height - 10, "grey", "free")
    drawing.text(50, 20, HTTP, "small")
    drawing.box(40, tops[split] - 20, 800, 560 - tops[split] + 18, "grey", "free")
    last = tops[-1] + step
    for number, line in enumerate(WORKER.split("\n")):
        drawing.text(50, last + 20 + 16 * number, line, "small")
    places: list[tuple[float, float, Box]] = [(down, y, box) for (box, _), y in zip(DOWN, tops, strict=True)]
    places += [(up, y, box) for (box, _), y in zip(UP, tops, strict=True)]
    places += [((down + up) / 2, last, DEVICE)]
    for x, y, box in places:
        _box(drawing, x, y, width, height, box)
        drawing.text(x + width - 8, y + 18, box.module, "small", "end")
    for row, ((_, request), (_, response)) in enumerate(zip(DOWN, UP, strict=True)):
        start = tops[row] + height
        end = tops[row + 1] if row + 1 < len(tops) else last
        drawing.arrow_down(down + width - 20, start, end - start)
        drawing.text(down + width - 28, (start + end) / 2 + 4, request, "small", "end")
        drawing.arrow_up(up + 20, end, end - start)
        drawing.text(up + 28, (start + end) / 2 + 4, response, "small")
    return drawing


def _box(drawing: Drawing, x: float, y: float, width: float, height: float, box: Box) -> None:
    drawing.box(x, y, width, height, box.color)
    drawing.text(x + 10, y + 19, box.name, "head")
    for number, line in enumerate(box.text):
        drawing.text(x + 10, y + 38 + 17 * number, line)


BOXES = [box for row in OBJECTS for box in row if box is not None] + [box for box, _ in (*DOWN, *UP)] + [DEVICE]
