"""Names of models in requests of Ollama's API."""

from __future__ import annotations

from ..errors import ApiError
from ..service import Service
from .requests import NamedModel

LATEST = ":latest"  # that clients append to a name


def required_name(body: NamedModel) -> str:
    """Return the name in a request that must have one. Older clients send it as `name`."""
    name = body.model or body.name
    if not name:
        raise ApiError(400, "model: required", param="model")
    return name


def served_name(service: Service, name: str, kind: str) -> str:
    """Return the name of the model that a request names, or of the only one of a kind if it names none."""
    return service.model(without_tag(service, name) if name else None, kind).name


def without_tag(service: Service, name: str) -> str:
    """Return the name of a model; clients may append a tag."""
    return name.removesuffix(LATEST) if name not in service.backend.models else name
