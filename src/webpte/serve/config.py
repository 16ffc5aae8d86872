"""How a server is set up: by flags, by the environment and by a TOML file, in that order; each field once, here."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from ..errors import InputError

PREFIX = "WEBPTE_SERVE_"  # of variables in the environment
SECRET = "(hidden)"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
LOG_FORMATS = ("json", "text")
LOG_LEVELS = ("debug", "info", "warning", "error")
CACHES = ("f32", "f16")


def _field(default: Any, told: str, **more: Any) -> Any:
    """A field with what `--help` and the documentation say of it; `least`, `most` and `choices` are checked."""
    return field(default=default, metadata={"told": told, **more})


@dataclass(frozen=True)
class Config:
    """What a server may be told. `models` are paths of programs, each a PATH or NAME=PATH."""

    models: tuple[str, ...] = _field((), "programs to serve, each PATH or NAME=PATH")
    host: str = _field("127.0.0.1", "the address to listen at; any but loopback needs an API key")
    port: int = _field(8000, "the port to listen at; 0 takes a free one", least=0, most=65535)
    api_keys: tuple[str, ...] = _field((), "keys of clients, one of which each request must bring", secret=True)
    api_key_file: str = _field("", "a file with more keys, one a line")
    allow_unauthenticated: bool = _field(False, "listen beyond loopback without any key")
    cors_origins: tuple[str, ...] = _field((), "origins whose pages may ask, such as https://chat.example; * is all")
    max_body_bytes: int = _field(4 << 20, "of a request", least=1024)
    read_seconds: float = _field(30.0, "for a client to send a request", above=0)
    write_seconds: float = _field(60.0, "for a client to take a part of its answer", above=0)
    max_output_tokens: int = _field(4096, "of an answer; where a request names no number, this one is taken", least=1)
    max_choices: int = _field(8, "answers to one request (n, and prompts of a completion)", least=1)
    max_inputs: int = _field(2048, "texts in one request for embeddings", least=1)
    max_tools: int = _field(128, "tools in one request", least=1)
    max_schema_bytes: int = _field(64 << 10, "of a JSON schema, and of all tools together", least=16)
    schema_seconds: float = _field(2.0, "to compile a schema", above=0)
    default_temperature: float = _field(1.0, "where a request names none", least=0)
    slots: int = _field(16, "answers computed at once, as memory allows", least=1, most=4096)
    prepare: bool = _field(False, "make all slots and compile for any number of answers before the first request")
    max_queue: int = _field(64, "answers that may wait for a slot; more are refused with 429", least=0)
    queue_seconds: float = _field(60.0, "that an answer may wait for a slot", above=0)
    first_token_seconds: float = _field(120.0, "from the slot to the first token", above=0)
    total_seconds: float = _field(900.0, "for a whole answer; what is there by then is given", above=0)
    grace_seconds: float = _field(30.0, "that answers under way may take to end after SIGTERM", least=0)
    kv_cache: str = _field("f32", "f16 halves the memory of caches", choices=CACHES)
    memory_bytes: int = _field(0, "that models may take on the device; 0 is what it has", least=0)
    prefix_cache_bytes: int = _field(0, "for beginnings of prompts that are kept beyond the slots", least=0)
    stuck_seconds: float = _field(120.0, "without progress of the device, after which its worker is restarted", above=0)
    log_level: str = _field("info", "the least that is logged", choices=LOG_LEVELS)
    log_format: str = _field("json", "of log lines", choices=LOG_FORMATS)

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, checked(one, getattr(self, one.name), one.name))

    def with_keys(self) -> Config:
        """The same, with the keys of `api_key_file` among `api_keys`."""
        if not self.api_key_file:
            return self
        try:
            lines = Path(self.api_key_file).read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"api_key_file: {self.api_key_file} cannot be read: {error}", code="unreadable") from error
        found = tuple(line.strip() for line in lines if line.strip())
        if not found:
            raise InputError(f"api_key_file: {self.api_key_file} holds no key; write one a line", code="empty_file")
        return dataclasses.replace(self, api_keys=(*self.api_keys, *found), api_key_file="")

    def check_listening(self) -> None:
        """Refuse to be open to others without a key, unless that was said."""
        if self.host not in LOOPBACK and not self.api_keys and not self.allow_unauthenticated:
            raise InputError(
                f"host {self.host} is open to others, and there is no API key: anyone could use this machine. Set "
                f"{PREFIX}API_KEYS or --api-key-file, or say --allow-unauthenticated, or listen at 127.0.0.1",
                code="missing_api_key",
            )


def _kind(one: dataclasses.Field[Any]) -> type[Any]:
    return type(one.default)  # each has one, of its own type


def checked(one: dataclasses.Field[Any], value: Any, where: str) -> Any:
    """A value of a field, of its type and within its bounds; `where` is who gave it."""
    kind, limits = _kind(one), one.metadata
    if kind is tuple:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise InputError(f"{where} is a list of texts, not {value!r}", code="wrong_type")
        if odd := [each for each in value if not isinstance(each, str) or not each]:
            raise InputError(
                f"{where} holds {odd[0]!r}; each must be a text of at least one character", code="wrong_type"
            )
        return tuple(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        named = {int: "a whole number", float: "a finite number", bool: "true or false", str: "a text"}[kind]
        raise InputError(f"{where} is {named}, not {value!r}", code="wrong_type")
    if "choices" in limits and value not in limits["choices"]:
        raise InputError(f"{where} is one of {', '.join(limits['choices'])}, not {value!r}", code="unknown_choice")
    low, high, above = limits.get("least"), limits.get("most"), limits.get("above")
    if (low is not None and value < low) or (high is not None and value > high):
        wanted = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InputError(f"{where} is {wanted}, not {value}", code="out_of_range")
    if above is not None and value <= above:
        raise InputError(f"{where} is above {above}, not {value}", code="out_of_range")
    return value


def read_text(one: dataclasses.Field[Any], text: str, where: str) -> Any:
    """A value of a field from a flag or the environment; lists are written with commas."""
    kind = _kind(one)
    if kind is tuple:
        return checked(one, [part for item in text.split(",") if (part := item.strip())], where)
    if kind is bool:
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if text.lower() not in words:
            raise InputError(f"{where} is true or false, not {text!r}", code="wrong_type")
        return words[text.lower()]
    try:
        return checked(one, kind(text), where)
    except ValueError:
        named = "a whole number" if kind is int else "a number"
        raise InputError(f"{where} is {named}, not {text!r}", code="wrong_type") from None


@dataclass(frozen=True)
class Gathered:
    """A configuration and where each field that was given comes from."""

    config: Config
    sources: Mapping[str, str]

    def shown(self) -> str:
        """As TOML that can be read again, keys hidden."""
        lines = []
        for one in fields(Config):
            value = getattr(self.config, one.name)
            if one.metadata.get("secret"):
                value = [SECRET] * len(value)
            source = self.sources.get(one.name, "default")
            lines.append(f"{one.name} = {_toml(value)}  # {source}")
        return "\n".join(lines)


def gather(flags: Mapping[str, Any], environment: Mapping[str, str] | None = None, file: str | None = None) -> Gathered:
    """Flags before the environment before the file before defaults. What nobody knows is refused by name."""
    known = {one.name: one for one in fields(Config)}
    given: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value in (_read_file(file) if file is not None else {}).items():
        given[name], sources[name] = checked(_known(known, name, str(file)), value, f"{file}: {name}"), str(file)
    for variable, text in sorted((os.environ if environment is None else environment).items()):
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower()
            given[name], sources[name] = read_text(_known(known, name, variable), text, variable), variable
    for name, value in flags.items():
        given[name], sources[name] = value, f"--{name.replace('_', '-')}" if name != "models" else "command line"
    return Gathered(Config(**given), sources)


def _known(known: Mapping[str, dataclasses.Field[Any]], name: str, where: str) -> dataclasses.Field[Any]:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise InputError(
            f"{where}: {name} is no field of the server's configuration; {meant}--show-config lists them",
            code="unknown_option",
        )
    return known[name]


def _read_file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} cannot be read as TOML: {error}", code="invalid_toml") from error


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
