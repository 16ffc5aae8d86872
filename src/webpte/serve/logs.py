"""Log lines, as JSON or for people. They hold names, numbers and ids: never a prompt or an answer."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

log = logging.getLogger("webpte.serve")


class Lines(logging.Formatter):
    """A line for each record; `fields` of a record go along."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        fields: dict[str, Any] = getattr(record, "fields", {})
        if record.exc_info:
            fields = fields | {"traceback": self.formatException(record.exc_info)}
        if self._as_json:
            found = {
                "time": stamp,
                "level": record.levelname.lower(),
                "logger": record.name,
                "event": record.getMessage(),
            }
            return json.dumps(found | fields, ensure_ascii=False, default=str)
        more = "".join(f" {name}={value}" for name, value in fields.items())
        return f"{stamp} {record.levelname.lower()} {record.getMessage()}{more}"


def set_up(level: str, form: str) -> None:
    """Everything that the process logs goes to stderr, line by line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines(form == "json"))
    for name in ("webpte", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())
    logging.getLogger("uvicorn.access").disabled = True  # requests have a line of ours
