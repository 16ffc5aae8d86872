"""The storage arrays of a kernel: their declarations, and tensors that are larger than one binding.

A template declares an array by its name, `var<storage> x: array<f32>;`. The dispatch that binds a tensor to the name
decides whether kernels may write it, and its order numbers the bindings: `declare` adds both to a rendered text.

Tensors that are larger than one binding are bound in parts. `split` rewrites a text: every access to the array of such
a tensor becomes a call of a function that selects the part. Only kernels that need parts pay for the branches, and no
kernel is written twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ..errors import GraphError

_NAMED = re.compile(r"^var<storage> (\w+):", re.MULTILINE)
_NUMBERED = re.compile(r"^.*(?:@group\([1-9]|\bvar<storage,).*$", re.MULTILINE)


def declare(text: str, arrays: Mapping[str, str], label: str) -> str:
    """Return a text with the number and the access of each array. `arrays` maps the names, in order, to accesses."""
    if numbered := _NUMBERED.search(text):
        raise GraphError(
            f"kernel {label}: expected arrays declared by name, got {numbered[0].strip()!r}",
            code="numbered_array",
            hint="Write `var<storage> x: array<f32>;`. The dispatch decides the binding's number and access.",
        )
    declared = _NAMED.findall(text)
    if sorted(declared) != sorted(arrays):
        raise GraphError(
            f"kernel {label}: the template declares the arrays {', '.join(declared) or 'none'}, "
            f"the dispatch binds {', '.join(arrays) or 'none'}",
            code="array_names",
            hint="Use the same names in `reads`, `writes` and the template.",
        )
    numbers = {name: number for number, name in enumerate(arrays)}

    def numbered_line(match: re.Match[str]) -> str:
        name = match[1]
        return f"@group(1) @binding({numbers[name]}) var<storage, {arrays[name]}> {name}:"

    return _NAMED.sub(numbered_line, text)


_DECLARED = re.compile(r"@group\(1\) @binding\((\d+)\) var<storage, (read|read_write)> (\w+): array<(.+)>;")
_BYTES = {"f32": 4, "i32": 4, "u32": 4, "f16": 2}
_ASSIGNED = re.compile(r"\s*([-+*/%&|^]?)=(?!=)")
_MEMBER_ASSIGNED = re.compile(r"\s*(\.\w+|\[[^]]*\])\s*[-+*/%&|^]?=(?!=)")


def split(text: str, parts: Sequence[int], part_bytes: int, label: str) -> str:
    """Return the text with `parts[b]` bindings in place of binding b, each of `part_bytes` bytes except the last."""
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
    """Return the text with calls in place of accesses to the array. Functions that shadow the name are rejected."""
    done, rest = "", text
    while head := re.search(r"\bfn \w+\(", rest):
        end = _closing(rest, rest.index("{", head.end()) + 1, "{}", label) + 1
        function = rest[head.start() : end]
        if re.search(rf"(?<!\.)\b{name}\[", function):
            if re.search(rf"\b(let|var|const)\s+{name}\b|[(,]\s*{name}\s*:", function):
                raise GraphError(
                    f"kernel {label}: {name} is also the name of a variable, so its array cannot be bound in parts",
                    code="shadowed_array",
                )
            function = _in_calls(function, name, label)
        done, rest = done + rest[: head.start()] + function, rest[end:]
    return done + rest


def _in_calls(text: str, name: str, label: str) -> str:
    access = re.compile(rf"(?<!\.)\b{name}\[")
    at = 0
    while match := access.search(text, at):
        end = _closing(text, match.end(), "[]", label)
        index, rest = text[match.end() : end], text[end + 1 :]
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
        text, at = text[: match.start()] + replaced + rest, match.start()
    return text


def _closing(text: str, at: int, pair: str, label: str) -> int:
    """Return the position of the bracket that closes the one before `at`."""
    depth, steps = 1, {pair[0]: 1, pair[1]: -1}
    for position in range(at, len(text)):
        depth += steps.get(text[position], 0)
        if depth == 0:
            return position
    raise GraphError(f"kernel {label}: a bracket is not closed", code="unbalanced_brackets")


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
