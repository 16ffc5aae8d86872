"""Type aliases that several packages share. Importing them imports neither NumPy nor wgpu."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]
    JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
else:
    Array = JsonValue = Any  # of annotations, which nothing evaluates

PathLike = str | os.PathLike[str]
JsonObject = dict[str, JsonValue]  # free-form: a document of others, or a JSON schema
Dims = tuple[int, ...]
JsonNumber = Annotated[float | str, 'a number, or "nan", "inf" or "-inf"']  # of a report; JSON has neither
