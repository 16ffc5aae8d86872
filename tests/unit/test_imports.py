"""Imports point one way. This file is the map: a new room or dependency is placed here on purpose, or a test fails."""

from __future__ import annotations

import ast
import graphlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
BENCH = SRC.parent / "bench"
PACKAGE = "webpte"

# What everyone may import.
COMMON = {
    "budgets", "deferred", "environment", "errors", "fields", "folders", "host_memory", "image_files", "json_files",
    "partial_files", "progress", "sources", "suppress_output", "task_file", "text", "typing", "version", "web_files",
}  # fmt: skip

# room -> rooms it may import, besides itself and the common ones.
ARROWS: dict[str, set[str]] = {
    "budgets": set(),  # how much a file may ask for, wherever it asks
    "deferred": set(),  # names that come when they are asked for
    "environment": set(),  # variables, read in this module only
    "errors": set(),
    "fields": set(),  # files of others, read by name in checkpoints and language models
    "folders": set(),  # the user's folders of caches, data and state
    "image_files": set(),  # opened by vision, and by tools as inputs
    "json_files": set(),  # beside a model, of whatever kind
    "host_memory": set(),  # what the machine has: limits buffers, and the context of programs that are built
    "partial_files": set(),  # what is written beside its place, wherever
    "progress": set(),
    "sources": set(),  # what a user names as a model
    "suppress_output": set(),  # of libraries that print what no one asked for
    "task_file": set(),  # beside a program: written by export, read by embed, vision and speech
    "text": set(),
    "typing": set(),  # aliases of types
    "version": set(),
    "web_files": set(),  # pages and player: copied by bundles, shown by the server
    "container": set(),
    "graph": {"container"},
    "wgsl": set(),
    "lowering": {"graph", "wgsl"},
    "ops": {"graph", "lowering", "wgsl"},
    "fusion": {"graph", "lowering"},
    "plan": {
        "fusion",
        "graph",
        "lowering",
        "wgsl",
        "container",  # a plan that was saved names ranges of files
    },
    "device": {
        "plan",
        "wgsl",  # a Plan holds kernel keys and uniform blocks, and the device turns them into pipelines and bytes
    },
    "runtime": {"container", "graph", "wgsl", "lowering", "fusion", "plan", "device"},
    "debug": {  # looks inside programs
        "container",
        "graph",
        "wgsl",
        "lowering",
        "fusion",
        "plan",
        "device",
        "runtime",
        "llm",
    },
    "measure": {
        "container",
        "graph",
        "lowering",
        "fusion",
        "device",
        "runtime",
        "llm",
        "debug",  # inputs, timers and facts about the machine
    },
    "llm": {
        "runtime",
        "graph",  # the sampler is appended to the model's
        "fusion",
        "lowering",  # and a model of one sequence becomes one of many
        "plan",  # which shows how long its caches are
        "container",  # the matrices of adapters are constants, whose bytes are computed
    },
    "embed": {"runtime", "llm"},  # llm: its tokenizer, and language models that rank
    "speech": {
        "runtime",
        "llm",  # its tokenizer
        "graph",  # what the encoder gives the decoder becomes state, in the graphs of both
    },
    "vision": {"runtime"},
    "serve": {
        "llm",
        "embed",
        "speech",
        "device",  # the memory that a worker has allocated
    },  # a process for requests, and one that has the device
    "batch": {
        "runtime",
        "llm",
        "embed",
        "vision",
        "device",  # which adapter to compute on
        "container",  # files that are equal to one that is not there
    },  # rows of tables through those
    "bundles": {  # plans that a page can run
        "container",
        "graph",
        "fusion",  # a language model's graph, rewritten for many sequences
        "wgsl",
        "plan",
        "device",
        "runtime",
        "llm",
        "debug",
        "measure",
    },
    "checkpoints": {  # what people have, read without torch
        "container",  # a checkpoint is recognized by its first bytes
        "graph",  # has the names of backends, by which one of several programs is chosen
        "llm",  # tokenizers, and how a model writes calls of tools
    },
    "builder": {
        "checkpoints",
        "container",  # writes programs
        "llm",
        "runtime",  # runs blocks of a model, to round its weights for their inputs and to measure them
        "measure",  # and has the texts and the measures
    },
    "export": {
        "checkpoints",
        "builder",  # writes language models, and quantizes
        "debug",  # checks what was written
        "runtime",
    },
    "cli": {
        "runtime",
        "debug",
        "measure",
        "llm",
        "export",
        "builder",
        "bundles",
        "serve",
        "batch",
        "checkpoints",  # lists downloads
        "container",  # files that are equal to one that is not there
        "__init__",
    },  # thin faces of those rooms
    "notebook": {"runtime", "bundles"},  # a bundle's page, shown by anywidget
    "__init__": {
        "runtime",
        "batch",
        "llm",
        "embed",
        "speech",
        "vision",
        "debug",
        "measure",
        "bundles",
        "export",
        "builder",  # provided to `sources`, which is below it
        "checkpoints",  # as well: downloads programs
        "notebook",
    },  # the public face
    "__main__": {"cli"},
}

# third-party package -> rooms that may import it (None: all). Extras and dev tools are not there for every user.
PACKAGES: dict[str, set[str] | None] = {
    "numpy": None,
    "wgpu": {"device"},
    "cffi": {"device"},  # comes with wgpu
    "jinja2": {"wgsl", "llm", "debug", "bundles"},  # llm, bundles: chat templates; debug: the page of a report
    "platformdirs": {"folders"},
    "rich": {"cli"},
    "markdown_it": {"cli"},  # comes with rich
    "prompt_toolkit": {"cli"},  # the prompt of a chat, in a module of its own that only a terminal imports
    "anywidget": {"notebook"},
    "traitlets": {"notebook"},  # comes with anywidget
    "PIL": {"image_files", "llm", "vision"},  # images as inputs
    "soundfile": {"speech"},  # compressed audio
    "matplotlib": {"measure"},  # bench --plot
    "tokenizers": {"llm", "checkpoints"},
    "llguidance": {"llm"},  # masks of schemas and grammars
    "pyarrow": {"batch"},  # tables
    "ray": {"batch", "serve"},  # many machines
    "gguf": {"checkpoints"},
    "safetensors": {"checkpoints", "export"},
    "huggingface_hub": {"checkpoints"},
    "transformers": {"export"},  # builds the models that are not language models
    "starlette": {"serve"},  # HTTP
    "uvicorn": {"serve"},
    "httptools": {"serve"},
    "prometheus_client": {"serve"},
    "pydantic": {"serve"},  # requests, configuration, messages
    "typing_extensions": {"serve"},  # pydantic makes schemas from its TypedDict only, before Python 3.12
    "torch": {"runtime", "export", "debug"},  # debug: compare --against executorch
    "executorch": {"export", "debug"},
    "torchao": {"export"},  # comes with executorch
}

# Never when a module is imported: only inside functions, for callers who have them.
LAZY = {
    "platformdirs",
    "torch",
    "torchao",
    "executorch",
    "gguf",
    "safetensors",
    "transformers",
    "tokenizers",
    "llguidance",
    "pyarrow",
    "ray",
    "anywidget",
    "traitlets",
    "PIL",
    "soundfile",
    "matplotlib",
}

# But here, where modules of torch are defined: they are imported by functions only, as torch itself.
TORCH_MODULES = "webpte.export.quantized_modules"


def room_of(module: str) -> str:
    """`webpte.ops.add` -> `ops`, `webpte.errors` -> `errors`, `webpte` -> `__init__`."""
    return [*module.split("."), "__init__"][1]


def module_of(path: Path) -> str:
    """`ops/add.py` -> `webpte.ops.add`, `ops/__init__.py` -> `webpte.ops.__init__` (kept, for relative imports)."""
    return ".".join((PACKAGE, *path.with_suffix("").parts))


def imported(node: ast.AST, module: str) -> Iterator[str]:
    """Absolute dotted names that `node`, a statement or call inside `module`, imports."""
    match node:
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=source, names=names, level=level):
            parents = module.split(".")[:-level] if level else []
            if level and not parents:
                raise ValueError(f"{module}:{node.lineno}: relative import leaves the package")
            base = ".".join(parents + ([source] if source else []))
            # In `from webpte import ops, load` the first is a room and the second a name of the public face.
            yield from (f"{base}.{alias.name}" if base == PACKAGE and alias.name in ARROWS else base for alias in names)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(value=str(target)), *_]):
            if name in {"import_module", "__import__"} or (
                name == "get" and ast.unparse(node.func) == "sys.modules.get"
            ):
                yield target
        case ast.Subscript(value=ast.Attribute(attr="modules"), slice=ast.Constant(value=str(target))):
            yield target


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def imports(node: ast.AST, module: str, lazy: bool = False) -> Iterator[tuple[str, int, bool]]:
    """(dotted name, line, lazy) for every import below `node`; lazy means not run when `module` is imported."""
    for child in ast.iter_child_nodes(node):
        for name in imported(child, module):
            yield name, child.lineno, lazy  # type: ignore[attr-defined]
        deferred = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or is_type_checking(child)
        yield from imports(child, module, lazy or deferred)


class _Constants(ast.NodeTransformer):
    """Put the strings that a module assigns to names in the place of the names."""

    def __init__(self, strings: dict[str, ast.Constant]) -> None:
        self._strings = strings

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._strings.get(node.id, node) if isinstance(node.ctx, ast.Load) else node


def _with_constants(tree: ast.Module) -> ast.Module:
    strings = {
        target.id: statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name) and isinstance(statement.value.value, str)
    }
    _Constants(strings).visit(tree)
    return tree


def wrong_arrows(module: str, source: str) -> list[str]:
    """Return one line for each import in `source` that the map above does not allow."""
    room = room_of(module)
    if room not in ARROWS:
        return [f"{module}: unknown room {room!r}; give it a row in ARROWS and in docs/architecture.md"]
    wrong = []
    for name, line, lazy in imports(_with_constants(ast.parse(source)), module):
        top = name.split(".")[0]
        where = f"{module}:{line}"
        if top == PACKAGE:
            target = room_of(name)
            if name.startswith(TORCH_MODULES) and not lazy and not module.startswith(TORCH_MODULES):
                wrong.append(f"{where}: {name} may be imported only inside a function")
            elif target not in ARROWS:
                wrong.append(f"{where}: imports {name}, and {target!r} is not a known room")
            elif target not in ARROWS[room] | {room} | COMMON:
                wrong.append(f"{where}: {room} may not import {target}")
        elif top in PACKAGES:
            allowed = PACKAGES[top]
            if allowed is not None and room not in allowed:
                wrong.append(f"{where}: {room} may not import {top}")
            elif top in LAZY and not lazy and not module.startswith(TORCH_MODULES):
                wrong.append(f"{where}: {top} may be imported only inside a function")
        elif top not in sys.stdlib_module_names:
            wrong.append(f"{where}: {top} is not a known dependency; place it in PACKAGES and pyproject.toml")
    return wrong


def test_imports_follow_the_map():
    files = sorted(SRC.glob(f"{PACKAGE}/**/*.py"))
    assert files
    wrong = []
    for path in files:
        wrong += wrong_arrows(module_of(path.relative_to(SRC / PACKAGE)), path.read_text(encoding="utf-8"))
    assert not wrong, "\n".join(["", *wrong])


def test_import_map_has_no_cycle():
    graphlib.TopologicalSorter(ARROWS).prepare()


def module_imports(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return the modules that each module imports, also inside functions and for type checkers."""
    results: dict[str, set[str]] = {}
    for module, source in sources.items():
        results[module.removesuffix(".__init__")] = targets = set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                base = ".".join(module.split(".")[: -node.level] + ([node.module] if node.module else []))
                for alias in node.names:
                    name = f"{base}.{alias.name}"
                    targets.add(name if name in sources or f"{name}.__init__" in sources else base)
    return {module: {target for target in targets if target != module} for module, targets in results.items()}


@pytest.mark.parametrize("folder", [SRC / PACKAGE, BENCH], ids=lambda folder: folder.name)
def test_modules_import_each_other_in_no_circle(folder):
    paths = sorted(folder.glob("**/*.py"))
    names = [".".join((folder.name, *path.relative_to(folder).with_suffix("").parts)) for path in paths]
    sources = {name: path.read_text(encoding="utf-8") for name, path in zip(names, paths, strict=True)}
    assert len(sources) > 20
    graphlib.TopologicalSorter(module_imports(sources)).prepare()


def test_import_cycle_is_detected():
    sources = {"webpte.a.one": "from .two import x", "webpte.a.two": "def f():\n    from .one import y"}
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(module_imports(sources)).prepare()


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("webpte.graph.passes", "import webpte.container.pte"),
        ("webpte.graph.passes", "from ..container import pte"),
        ("webpte.graph.passes", "from .. import container, errors"),
        ("webpte.graph.__init__", "from . import passes\nfrom .passes import fold"),
        ("webpte.ops.conv.conv2d", "from ...graph.values import Tensor\nfrom .. import registry"),
        ("webpte.wgsl.template", "import os.path, jinja2\nfrom ..errors import Error"),
        ("webpte.device.gpu", "from wgpu.backends.wgpu_native import lib\nfrom ..wgsl.keys import Key"),
        ("webpte.runtime.tensors", "def from_torch(x):\n    import torch"),
        ("webpte.runtime.tensors", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("webpte.export.quantized_modules", "import torch\nfrom .lowering import lower"),
        ("webpte.export.quantize", "def f():\n    from .quantized_modules import Linear8"),
        ("webpte.cli.__init__", "from webpte import load, __version__"),
        ("webpte.__init__", "from .runtime import load\nfrom .errors import Error"),
        ("webpte.__main__", "from .cli import main"),
    ],
)
def test_right_arrows_pass(module, source):
    assert wrong_arrows(module, source) == []


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("webpte.container.pte", "import webpte.graph", "container may not import graph"),
        ("webpte.container.pte", "from webpte import graph as g", "container may not import graph"),
        ("webpte.container.pte", "from .. import errors, graph", "container may not import graph"),
        ("webpte.container.__init__", "from ..graph import values", "container may not import graph"),
        ("webpte.ops.conv.conv2d", "from ...plan.plan import Plan", "ops may not import plan"),
        ("webpte.graph.passes", "def f():\n    from ..plan import plan", "passes:2: graph may not import plan"),
        ("webpte.graph.passes", "if TYPE_CHECKING:\n    from ..lowering import op", "graph may not import lowering"),
        ("webpte.graph.passes", "from webpte import load", "graph may not import __init__"),
        ("webpte.device.gpu", "from ..graph import values", "device may not import graph"),
        ("webpte.errors", "from . import wgsl", "errors may not import wgsl"),
        ("webpte.plan.caps", "import wgpu", "plan may not import wgpu"),
        ("webpte.plan.caps", "def f():\n    importlib.import_module('wgpu.utils')", "plan may not import wgpu"),
        ("webpte.llm.model", "x = sys.modules['webpte.builder'].y", "llm may not import builder"),
        ("webpte.llm.model", "x = sys.modules.get('webpte.builder')", "llm may not import builder"),
        ("webpte.llm.model", "__import__('webpte.builder')", "llm may not import builder"),
        ("webpte.llm.model", "NAME = 'webpte.builder'\nimport_module(NAME)", "llm may not import builder"),
        ("webpte.builder.llm", "def f():\n    from ..export.llm import g", "builder may not import export"),
        ("webpte.checkpoints.hub", "from ..builder import llm", "checkpoints may not import builder"),
        ("webpte.ops.add", "import jinja2.nodes", "ops may not import jinja2"),
        ("webpte.runtime.tensors", "import torch", "torch may be imported only inside a function"),
        ("webpte.runtime.tensors", "class A:\n    import torch.nn", "torch may be imported only inside a function"),
        ("webpte.ops.add", "def f():\n    import torch", "ops may not import torch"),
        ("webpte.export.quantize", "from .quantized_modules import Linear8", "only inside a function"),
        ("webpte.container.pte", "import flatbuffers", "flatbuffers is not a known dependency"),
        ("webpte.attic.old", "", "unknown room 'attic'"),
        ("webpte.attic", "", "unknown room 'attic'"),
        ("webpte.runtime.load", "from ..attic import old", "'attic' is not a known room"),
    ],
)
def test_wrong_arrows_are_caught(module, source, message):
    result = wrong_arrows(module, source)
    assert len(result) == 1, result
    assert message in result[0]


def test_import_relative_beyond_package_is_refused():
    with pytest.raises(ValueError, match="leaves the package"):
        wrong_arrows("webpte.errors", "from ... import os")


def test_class_names_are_unique():
    """One name means one thing, wherever a reader meets it. Names with an underscore belong to their module."""
    names = [
        node.name
        for path in SRC.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert len(names) > 300
    assert not sorted(name for name, count in Counter(names).items() if count > 1)


# modules that may use os.environ
ENVIRONMENT_USERS = {
    "webpte.environment",
    "webpte.batch.on_ray",  # sets a variable that Ray's processes read, and nothing else passes it
    "webpte.serve.on_ray",  # sets WEBPTE_ADAPTER for the worker process, from the GPU that Ray has assigned
}


def test_environment_is_read_by_one_module():
    users = {
        module_of(path.relative_to(SRC / PACKAGE))
        for path in SRC.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}
        if ast.unparse(node.value) == "os"
    }
    assert users == ENVIRONMENT_USERS
