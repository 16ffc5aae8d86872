"""Kernels for tensors that are larger than one binding: the same text, reading and writing through several.

Every access to the array of such a tensor becomes a call of a function that knows its parts. That is a branch for each
of them, which only who needs it pays for; and no kernel has to be written twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..errors import GraphError

_DECLARED = re.compile(r"@group\(1\) @binding\((\d+)\) var<storage, (read|read_write)> (\w+): array<(.+)>;")
_BYTES = {"f32": 4, "i32": 4, "u32": 4, "f16": 2}
_ASSIGNED = re.compile(r"\s*([-+*/%&|^]?)=(?!=)")
_MEMBER_ASSIGNED = re.compile(r"\s*(\.\w+|\[[^]]*\])\s*[-+*/%&|^]?=(?!=)")


def in_parts(text: str, parts: Sequence[int], part_bytes: int, label: str) -> str:
    """The text with `parts[b]` bindings in place of binding b, each but the last of `part_bytes` bytes."""
    functions = []
    first = [sum(parts[:binding]) for binding in range(len(parts))]
    for declared in list(_DECLARED.finditer(text)):
        binding, access, name, element = int(declared[1]), declared[2], declared[3], declared[4]
        count = parts[binding]
        names = [name] if count == 1 else [f"{name}_part{k}" for k in range(count)]
        lines = [
            f"@group(1) @binding({first[binding] + k}) var<storage, {access}> {part}: array<{element}>;"
            for k, part in enumerate(names)
        ]
        text = text.replace(declared[0], "\n".join(lines))
        if count > 1:
            text = _through_functions(text, name, label)
            functions += _functions(names, name, element, part_bytes // _size(element, label), access == "read_write")
    return "\n".join([text, *functions])


def _size(element: str, label: str) -> int:
    vector = re.fullmatch(r"vec([24])<(\w+)>", element)
    scalar, count = (vector[2], int(vector[1])) if vector else (element, 1)
    if scalar not in _BYTES:
        raise GraphError(f"kernel {label}: an array of {element} cannot be bound in parts", code="element_type")
    return _BYTES[scalar] * count


def _through_functions(text: str, name: str, label: str) -> str:
    """The text with every access to the array in calls; a function may have a variable of that name instead."""
    done, rest = "", text
    while found := re.search(r"\bfn \w+\(", rest):
        end = _closing(rest, rest.index("{", found.end()) + 1, "{}", label) + 1
        function = rest[found.start() : end]
        if re.search(rf"(?<!\.)\b{name}\[", function):
            if re.search(rf"\b(let|var|const)\s+{name}\b|[(,]\s*{name}\s*:", function):
                raise GraphError(
                    f"kernel {label}: {name} names a variable too, so its array cannot be bound in parts",
                    code="shadowed_array",
                )
            function = _in_calls(function, name, label)
        done, rest = done + rest[: found.start()] + function, rest[end:]
    return done + rest


def _in_calls(text: str, name: str, label: str) -> str:
    access = re.compile(rf"(?<!\.)\b{name}\[")
    at = 0
    while found := access.search(text, at):
        end = _closing(text, found.end(), "[]", label)
        index, rest = text[found.end() : end], text[end + 1 :]
        if _MEMBER_ASSIGNED.match(rest):
            raise GraphError(
                f"kernel {label} assigns to a member of an element of {name}, which is bound in parts",
                code="member_assignment",
            )
        if assigned := _ASSIGNED.match(rest):
            stop = rest.index(";")
            value = rest[assigned.end() : stop].strip()
            if assigned[1]:
                value = f"{name}[{index}] {assigned[1]} ({value})"
            replaced, rest = f"{name}_into_parts(u32({index}), {value})", rest[stop:]
        else:
            replaced = f"{name}_from_parts(u32({index}))"
        text, at = text[: found.start()] + replaced + rest, found.start()
    return text


def _closing(text: str, at: int, pair: str, label: str) -> int:
    """Where the bracket that was opened before `at` is closed."""
    depth, steps = 1, {pair[0]: 1, pair[1]: -1}
    for position in range(at, len(text)):
        depth += steps.get(text[position], 0)
        if depth == 0:
            return position
    raise GraphError(f"kernel {label}: a bracket is not closed")


def _functions(names: Sequence[str], name: str, element: str, size: int, writable: bool) -> list[str]:
    read, write = [f"fn {name}_from_parts(i: u32) -> {element} {{"], [f"fn {name}_into_parts(i: u32, v: {element}) {{"]
    for k, part in enumerate(names):
        index = f"i - {k * size}u" if k else "i"
        if k < len(names) - 1:
            read += [f"    if (i < {(k + 1) * size}u) {{", f"        return {part}[{index}];", "    }"]
            write += [f"    if (i < {(k + 1) * size}u) {{", f"        {part}[{index}] = v;", "        return;", "    }"]
        else:
            read.append(f"    return {part}[{index}];")
            write.append(f"    {part}[{index}] = v;")
    return [*read, "}", *(write if writable else ()), *("}" for _ in range(writable))]
