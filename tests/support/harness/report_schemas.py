"""JSON schemas of the commands' reports, generated from the types of the reports.

    python -m tests.support.harness.report_schemas --write

They are files of src/webpte/cli/schemas, and docs/results/schema.json. A test fails if a type and its file differ, so
a change of the contract is visible in a diff. In `Annotated[type, note, ...]`, a string is the description and a dict
has further keywords of JSON Schema.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from webpte.bundles.site import BundleSummary
from webpte.cli.batch import BatchSummary
from webpte.cli.eval import EvaluationReport
from webpte.cli.export import ExportReport
from webpte.cli.files import StoredFilesReport
from webpte.cli.generate import GenerationReport
from webpte.cli.models import CachedModel
from webpte.debug.check import CheckReport
from webpte.debug.compare.reports import CompareReport
from webpte.debug.doctor import DoctorReport
from webpte.debug.inspect import InspectReport
from webpte.debug.profile.profile import ProfileReport
from webpte.debug.run import RunReport
from webpte.measure.bench import BenchReport
from webpte.measure.bench_report import DeviceReport
from webpte.measure.tune import TuneReport

from .reports import SCHEMAS
from .results import RESULTS

# file -> title of the schema, type of the report
REPORTS: dict[Path, tuple[str, Any]] = {
    SCHEMAS / f"{command}.json": report
    for command, report in {
        "batch": ("webpte batch FILE IN OUT --json", BatchSummary),
        "bench": ("webpte bench FILE --json. Times are seconds.", BenchReport),
        "bundle": ("webpte bundle FILE -o DIR --json, and webpte inspect DIR --json", BundleSummary),
        "check": ("webpte check FILE --json", CheckReport),
        "compare": ("webpte compare FILE --json", CompareReport),
        "doctor": ("webpte doctor --json", DoctorReport),
        "eval": ("webpte eval FILE --json", EvaluationReport),
        "export": ("webpte export CHECKPOINT -o FILE --json", ExportReport),
        "files": (
            "webpte files [list | remove NAME] --json: files that are here, or were removed",
            list[StoredFilesReport],
        ),
        "generate": ("webpte generate FILE --prompt TEXT --json, and each line of --file JSONL", GenerationReport),
        "inspect": (
            "webpte inspect FILE --json. For the folder of a bundle, bundle.json describes the report.",
            InspectReport,
        ),
        "models": (
            "webpte models [list | remove NAME] --json: models that are here, or were removed",
            list[CachedModel],
        ),
        "profile": ("webpte profile FILE --json. Times are seconds.", ProfileReport),
        "run": ("webpte run FILE --json. Times are seconds.", RunReport),
        "tune": ("webpte tune FILE --json. Times are seconds.", TuneReport),
    }.items()
}
REPORTS[RESULTS / "schema.json"] = ("webpte bench --report. Times are in seconds, sizes in bytes.", DeviceReport)
DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string"}

Schema = dict[str, Any]


def report_schema(title: str, report: Any) -> Schema:
    """Return the schema of a type of reports. An object that is used more than once is a definition."""
    shared = {kind: kind.__name__ for kind, count in Counter(_objects(report)).items() if count > 1}
    definitions = {name: _object(kind, shared) for kind, name in sorted(shared.items(), key=lambda item: item[1])}
    schema = {"$schema": DRAFT, "title": title, **_schema(report, shared)}
    return {**schema, "$defs": definitions} if definitions else schema


class _Field(NamedTuple):
    name: str
    type: Any
    required: bool


def _is_object(kind: Any) -> bool:
    return is_typeddict(kind) or (isinstance(kind, type) and dataclasses.is_dataclass(kind))


def _fields(kind: Any) -> Iterator[_Field]:
    """Yield the fields of a TypedDict or dataclass."""
    optional: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) in (Required, NotRequired):
            yield _Field(name, get_args(hint)[0], get_origin(hint) is Required)
        else:
            yield _Field(name, hint, name not in optional)


def _objects(kind: Any) -> Iterator[Any]:
    """Yield the objects inside a type, each as often as it is used, and its fields only the first time."""
    seen: set[Any] = set()
    queue = [kind]
    while queue:
        current = queue.pop()
        if _is_object(current):
            yield current
            if current not in seen:
                seen.add(current)
                queue += [field.type for field in _fields(current)]
        elif get_origin(current) is Annotated:
            queue.append(get_args(current)[0])
        elif get_origin(current) is not Literal:
            queue += get_args(current)


def _schema(kind: Any, shared: Mapping[Any, str]) -> Schema:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _annotated(_schema(parts[0], shared), parts[1:])
    if kind is Any:
        return {}
    if isinstance(kind, type) and kind in SCALARS:  # a note inside other types may not be hashable
        return {"type": SCALARS[kind]}
    if _is_object(kind):
        return {"$ref": f"#/$defs/{shared[kind]}"} if kind in shared else _object(kind, shared)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, UnionType):
        return _union(parts, shared)
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": _schema(parts[1], shared)}
    if origin in (list, Sequence) or (origin is tuple and parts[1:] == (...,)):
        return {"type": "array", "items": _schema(parts[0], shared)}
    raise TypeError(f"a report cannot have the type {kind}")


def _object(kind: Any, shared: Mapping[Any, str]) -> Schema:
    fields = list(_fields(kind))
    return {
        "type": "object",
        "properties": {field.name: _schema(field.type, shared) for field in fields},
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
    }


def _annotated(schema: Schema, notes: Sequence[str | Schema]) -> Schema:
    for note in notes:
        schema = {**schema, **({"description": note} if isinstance(note, str) else note)}
    return schema


def _union(parts: Sequence[Any], shared: Mapping[Any, str]) -> Schema:
    """Return the schema of a union: several types of one schema if they can be merged, else `anyOf`."""
    schemas = [_schema(part, shared) for part in parts if part is not NoneType]
    if all(set(schema) == {"type"} for schema in schemas[1:]) and "type" in schemas[0]:
        types = [schema["type"] for schema in schemas] + ["null"] * (NoneType in parts)
        return {**schemas[0], "type": types}
    return {"anyOf": [*schemas, *[{"type": "null"}] * (NoneType in parts)]}


def schema_text(path: Path) -> str:
    """Return the contents of a schema's file."""
    return json.dumps(report_schema(*REPORTS[path]), indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the files; without it, list those out of date")
    write = parser.parse_args().write
    outdated = [path for path in REPORTS if path.read_text(encoding="utf-8") != schema_text(path)]
    for path in outdated:
        print(path)
        if write:
            path.write_text(schema_text(path), encoding="utf-8")
    return 1 if outdated and not write else 0


if __name__ == "__main__":
    sys.exit(main())
