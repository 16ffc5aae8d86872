"""The bench's own WGSL templates. Sizes are compiled in: a bare kernel serves one shape."""

from __future__ import annotations

import functools
from pathlib import Path

import jinja2


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        block_start_string="{$",
        block_end_string="$}",
        line_statement_prefix="$$",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        autoescape=False,
    )


def wgsl(template: str, **flags: object) -> str:
    return _environment().get_template(f"{template}.wgsl").render(**flags)
