"""The configuration of a server: command-line options, environment variables, a TOML file, in that order."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo

from ..environment import variables
from ..errors import InputError
from ..image_files import MAX_IMAGE_PIXELS
from ..llm.options import ENGINE_HELP, MAX_SEQUENCES_LIMIT, EngineOptions, KvCache
from ..text import close_matches

ENV_PREFIX = "WEBPTE_SERVE_"
HIDDEN = "(hidden)"
SECRETS = ("api_keys",)
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
# The most that the options of the same names may be. Longer lists in a request are refused before they are validated.
MAX_CHOICES = 4096
MAX_INPUTS = 1 << 16
MAX_TOOLS = 1024
MAX_IMAGES = 256
Strings = tuple[Annotated[str, Field(min_length=1)], ...]
Seconds = Annotated[float, Field(gt=0)]


class Config(BaseModel):
    """The options of a server. Invalid values raise InputError."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    models: Strings = Field(default=(), description="programs to serve, each PATH or NAME=PATH")
    adapters: Strings = Field(
        default=(),
        description="LoRA adapters, each NAME=FOLDER, or MODEL:NAME=FOLDER if there are several models",
    )
    host: str = Field(default="127.0.0.1", description="address to listen on; any but loopback requires an API key")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 picks a free one")
    api_keys: Strings = Field(default=(), description="API keys; each request must send one of them")
    api_key_file: str = Field(default="", description="file with more API keys, one per line")
    allow_unauthenticated: bool = Field(default=False, description="listen beyond loopback without API keys")
    cors_origins: Strings = Field(
        default=(), description="origins whose pages may send requests, such as https://chat.example; * allows all"
    )
    allowed_hosts: Strings = Field(
        default=(),
        description="names that the Host header may have; on loopback, besides localhost (none: any)",
    )
    trusted_proxies: Strings = Field(
        default=(), description="addresses and networks of proxies, whose header X-Forwarded-For names the client"
    )
    max_connections: int = Field(default=1024, ge=1, description="maximum open connections; others are closed")
    header_timeout: Seconds = Field(default=10.0, description="seconds for a client to send the headers of a request")
    max_body_bytes: int = Field(default=1 << 20, ge=1024, description="maximum size of a request body")
    max_held_bytes: int = Field(
        default=256 << 20, ge=1024, description="maximum bytes of the bodies of all requests in progress together"
    )
    max_client_bytes: int = Field(
        default=0,
        ge=0,
        description="maximum bytes of the bodies of one client; 0 for half of max_held_bytes",
    )
    max_media_bytes: int = Field(
        default=2 << 30, ge=1024, description="maximum bytes of decoded audio and images in the temporary folder"
    )
    read_timeout: Seconds = Field(default=30.0, description="seconds for a client to send its request")
    write_timeout: Seconds = Field(default=60.0, description="seconds for a client to read a part of its response")
    max_output_tokens: int = Field(
        default=4096, ge=1, description="maximum length of a response; where a request sets none, it is 1,024"
    )
    max_choices: int = Field(default=8, ge=1, le=MAX_CHOICES, description="maximum responses per request (n × prompts)")
    max_inputs: int = Field(default=2048, ge=1, le=MAX_INPUTS, description="maximum texts per embedding request")
    max_audio_bytes: int = Field(default=25 << 20, ge=1024, description="maximum size of a request with audio")
    max_audio_seconds: Seconds = Field(default=3600.0, description="maximum length of audio")
    audio_timeout: Seconds = Field(default=60.0, description="seconds to decode audio")
    max_images: int = Field(default=16, ge=1, le=MAX_IMAGES, description="maximum images per request")
    max_image_bytes: int = Field(default=25 << 20, ge=1024, description="maximum size of a request with images")
    max_image_pixels: int = Field(default=1 << 25, ge=1, le=MAX_IMAGE_PIXELS, description="maximum pixels of an image")
    image_timeout: Seconds = Field(default=30.0, description="seconds to download and decode the images of a request")
    allow_remote_images: bool = Field(
        default=False, description="download images from http and https addresses of public hosts"
    )
    max_tools: int = Field(default=128, ge=1, le=MAX_TOOLS, description="maximum tools per request")
    max_schema_bytes: int = Field(default=64 << 10, ge=16, description="maximum size of a schema, and of all tools")
    max_download_bytes: int = Field(
        default=0, ge=0, description="maximum size of a program that clients may download with /api/pull; 0: none"
    )
    schema_timeout: Seconds = Field(default=2.0, description="seconds to compile a schema")
    slots: int = Field(
        default=EngineOptions.max_sequences, ge=1, le=MAX_SEQUENCES_LIMIT, description=ENGINE_HELP["max_sequences"]
    )
    warmup: bool = Field(default=False, description="allocate all slots and compile all kernels before serving")
    max_queue: int = Field(default=64, ge=0, description="maximum requests that wait for a slot; others get status 429")
    max_client_slots: int = Field(
        default=0, ge=0, description="maximum slots of one client, if the server knows clients apart; 0 for 7 of 8"
    )
    queue_timeout: Seconds = Field(default=60.0, description="seconds that a request may wait for a slot")
    ttft_timeout: Seconds = Field(default=120.0, description="seconds from the slot to the first token")
    request_timeout: Seconds = Field(
        default=900.0, description="seconds for a whole response; it ends with what was generated by then"
    )
    shutdown_timeout: float = Field(default=30.0, ge=0, description="seconds for responses to end after SIGTERM")
    kv_cache: KvCache = Field(default=EngineOptions.kv_cache, description=ENGINE_HELP["kv_cache"])
    max_context: int = Field(
        default=0, ge=0, description="tokens of a sequence, for checkpoints; 0: the model's own, at most 8,192"
    )
    memory_bytes: int = Field(
        default=0, ge=0, description="device memory for all loaded models; 0 uses what the device has"
    )
    idle_timeout: float = Field(
        default=0.0, ge=0, description="seconds without a request before a model is unloaded; 0 for no limit"
    )
    load_timeout: Seconds = Field(default=300.0, description="seconds that a request may wait for its model to load")
    prefix_cache_bytes: int = Field(default=0, ge=0, description="memory for cached prefixes beyond the slots")
    share_prefixes: bool = Field(
        default=False, description="share cached prefixes of prompts among all clients; each could detect another's"
    )
    stuck_timeout: Seconds = Field(default=120.0, description="seconds without progress before the worker is restarted")
    heartbeat_interval: Seconds = Field(default=1.0, description="seconds between two pings of the worker")
    heartbeat_timeout: Seconds = Field(
        default=30.0, description="seconds without an answer to a ping before the worker is restarted"
    )
    restart_timeout: float = Field(
        default=300.0,
        ge=0,
        description="seconds in which workers exit without results before the server exits with code 3; 0 for no limit",
    )
    max_restart_pause: Seconds = Field(
        default=30.0, description="maximum seconds between two such workers; pauses start at 0.1 and double"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(default="info", description="minimum level to log")
    log_format: Literal["auto", "json", "text"] = Field(
        default="auto", description="format of log lines; auto writes text to a terminal and JSON elsewhere"
    )
    strict: bool = Field(default=False, description="reject request fields that the server does not know")

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, values: Any, handler: ModelWrapValidatorHandler[Config], info: ValidationInfo) -> Config:
        if isinstance(values, dict):
            values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        try:
            return handler(values)
        except ValidationError as error:
            raise config_error(error, info.context or {}) from None

    def with_key_file(self) -> Config:
        """Return the configuration with the keys of `api_key_file` in `api_keys`."""
        if not self.api_key_file:
            return self
        path = self.api_key_file
        try:
            lines = Path(path).read_text("utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"api_key_file: cannot read {path}: {error}", code="unreadable") from error
        keys = tuple(line.strip() for line in lines if line.strip())
        if not keys:
            raise InputError(f"api_key_file: {path} contains no key. Write one per line.", code="empty_file")
        return self.model_copy(update={"api_keys": (*self.api_keys, *keys), "api_key_file": ""})

    def with_loopback_hosts(self) -> Config:
        """Return the configuration with the names of loopback in `allowed_hosts`, if the server listens there.

        A page could rebind its own name to 127.0.0.1, and the browser would let it read responses as its own.
        """
        if self.host not in LOOPBACK_HOSTS:
            return self
        return self.model_copy(update={"allowed_hosts": (*LOOPBACK_HOSTS, *self.allowed_hosts)})

    def check_exposure(self) -> None:
        """Refuse to listen beyond loopback without an API key, unless the configuration allows it."""
        if self.host not in LOOPBACK_HOSTS and not self.api_keys and not self.allow_unauthenticated:
            raise InputError(
                f"host: {self.host} is reachable from other machines, and no API key is set. Set "
                f"{ENV_PREFIX}API_KEYS or --api-key-file, pass --allow-unauthenticated, or listen on 127.0.0.1.",
                code="missing_api_key",
            )


FIELDS: Mapping[str, FieldInfo] = Config.model_fields


def config_error(error: ValidationError, sources: Mapping[str, str]) -> InputError:
    """Return an InputError that names every invalid field, and where its value came from."""
    first, *others = (_field_error(each, sources) for each in error.errors(include_url=False))
    if not others:
        return first
    return InputError("\n".join(map(str, (first, *others))), code=first.reason)


def _field_error(error: Mapping[str, Any], sources: Mapping[str, str]) -> InputError:
    name = str(error["loc"][0]) if error["loc"] else ""
    where = sources.get(name, name)
    if error["type"] == "extra_forbidden":
        close = close_matches(name, FIELDS)
        hint = (f"Did you mean {close[0]}? " if close else "") + "See --show-config."
        return InputError(
            f"{name} is not a field of the configuration", argument=where, hint=hint, code="unknown_option"
        )
    message = str(error["msg"]).replace("Input should be", "expected") + f", got {error['input']!r}"
    return InputError(message, argument=where, code=_CODES.get(error["type"], "wrong_type"))


_CODES = {
    "literal_error": "unknown_choice",
    "greater_than": "out_of_range",
    "greater_than_equal": "out_of_range",
    "less_than": "out_of_range",
    "less_than_equal": "out_of_range",
}


def parse_string(name: str, text: str, source: str) -> Any:
    """Return the value of a field that is given as a string: on the command line or in the environment."""
    value: Any = [part for item in text.split(",") if (part := item.strip())] if is_list(name) else text
    return getattr(Config.model_validate_strings({name: value}, strict=False, context={name: source}), name)


def is_list(name: str) -> bool:
    return isinstance(FIELDS[name].default, tuple)


@dataclass(frozen=True)
class ConfigSources:
    """A configuration, and where each value that is not a default came from."""

    config: Config
    sources: Mapping[str, str]

    def as_toml(self) -> str:
        """Return TOML that can be read again, without the keys."""
        lines = []
        for name in FIELDS:
            value = getattr(self.config, name)
            if name in SECRETS:
                value = [HIDDEN] * len(value)
            lines.append(f"{name} = {_toml(value)}  # {self.sources.get(name, 'default')}")
        return "\n".join(lines)


def load_config(
    options: Mapping[str, Any], environment: Mapping[str, str] | None = None, file: str | None = None
) -> ConfigSources:
    """Combine options, the environment and a file, in this order. Unknown names are errors."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value in (_read_toml(file) if file is not None else {}).items():
        values[name], sources[name] = value, f"{file}: {name}" if name in FIELDS else str(file)
    for variable, text in sorted((variables(prefix=ENV_PREFIX) if environment is None else environment).items()):
        if variable.startswith(ENV_PREFIX):
            name = variable.removeprefix(ENV_PREFIX).lower()
            values[name] = parse_string(name, text, variable) if name in FIELDS else text
            sources[name] = variable
    for name, value in options.items():
        values[name], sources[name] = value, f"--{name.replace('_', '-')}" if name != "models" else "command line"
    config = Config.model_validate(values, context=sources)
    shown = {name: str(file) if source == f"{file}: {name}" else source for name, source in sources.items()}
    return ConfigSources(config, shown)


def _read_toml(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}", code="invalid_toml") from error


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
