"""Rewrite a kernel so that it records its accesses to storage buffers and workgroup variables.

Only indices change: `x[i] = v` becomes `x[trace_at(3u, u32(i), 4u, 0u)] = v`, where `trace_at` appends a record and
returns the index. So loads, stores, compound assignments and atomics need no rules of their own, and the results stay
the same. A variable that is not an array becomes an array of one element.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Kind = Literal["load", "store", "both"]  # both: compound assignments and atomics that read and write


class RewriteError(Exception):
    """A kernel contains a construct that cannot be rewritten."""


@dataclass(frozen=True)
class Variable:
    """A buffer or a workgroup variable of a module."""

    name: str
    space: str  # storage, workgroup or uniform
    writable: bool
    group: int = -1  # of a buffer
    binding: int = -1


@dataclass(frozen=True)
class Site:
    """A place of the text that accesses memory."""

    variable: Variable
    kind: Kind
    nbytes: int  # of one access
    line: int
    text: str


@dataclass(frozen=True)
class Rewritten:
    """A kernel that records its accesses in the buffer at binding 0 of `group`."""

    text: str
    sites: tuple[Site, ...]
    variables: tuple[Variable, ...]
    group: int
    entry_point: str


_TOKEN = re.compile(
    r"[A-Za-z_]\w*|\d[\w.]*(?:(?<=[eE])[-+]\d+)?|\.\d\w*|->|\+\+|--|&&|\|\||<<=|[-+*/%&|^=!<>]=|[^\s\w]"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SCALARS = {"f32": 4, "i32": 4, "u32": 4, "bool": 4, "f16": 2}
_SHORT_VECTOR = re.compile(r"vec([234])([fiuh])")
_SHORT = {"f": "f32", "i": "i32", "u": "u32", "h": "f16"}
_COMPOUND = {"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", "++", "--"}
_POINTER_KINDS: dict[str, Kind] = {"atomicLoad": "load", "atomicStore": "store", "workgroupUniformLoad": "load"}
_BUILTINS = {"workgroup_id": "vec3<u32>", "num_workgroups": "vec3<u32>", "local_invocation_index": "u32"}
MAX_SITES = 1 << 16


class _Token(NamedTuple):
    text: str
    at: int

    @property
    def end(self) -> int:
        return self.at + len(self.text)


@dataclass(frozen=True)
class _Type:
    """A type of the module with its layout."""

    nbytes: int
    align: int
    element: _Type | None = None  # of an array or a vector
    is_array: bool = False

    @property
    def stride(self) -> int:
        """Distance of two such values in an array."""
        return -(-self.nbytes // self.align) * self.align


class _Index(NamedTuple):
    """An index of an access: the positions of its text, and the distance of two elements."""

    begin: int
    end: int
    stride: int


@dataclass
class _Rewriter:
    text: str
    tokens: list[_Token]
    sites: list[Site] = field(default_factory=list)
    variables: dict[str, tuple[Variable, _Type]] = field(default_factory=dict)
    edits: list[tuple[int, str]] = field(default_factory=list)  # text to insert, by position
    entry_point: str = ""

    # -- module scope -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for at in range(len(self.tokens)):
            if self.word(at) == "var" and self.word(at + 1) == "<":
                self.declare(at)
        at, entry = 0, False
        while at < len(self.tokens):
            if self.word(at) == "@" and self.word(at + 1) == "compute":
                entry = True
            if self.word(at) == "fn":
                at, entry = self.function(at, entry), False
            at += 1
        if not self.entry_point:
            raise RewriteError("module: expected a function with @compute, got none")

    def declare(self, at: int) -> None:
        """Note the variable whose `var` is at a token. Private and function variables are not traced."""
        close = self.closing(at + 1, "<", ">")
        space, name = self.word(at + 2), self.word(close + 1)
        writable = space == "workgroup" or self.word(close - 1) == "read_write"
        if space == "uniform":
            self.variables[name] = Variable(name, space, False, *self.address(at)), _Type(0, 1)
        elif space in ("storage", "workgroup"):
            kind, end = self.type_at(close + 3, name)
            place = self.address(at) if space == "storage" else ()
            self.variables[name] = Variable(name, space, writable, *place), kind
            if not kind.is_array:
                self.edits.append((self.tokens[close + 3].at, "array<"))
                self.edits.append((self.tokens[end].at, ", 1>"))

    def address(self, at: int) -> tuple[int, int]:
        """Return group and binding of the buffer whose `var` is at a token."""
        numbers = {}
        while self.word(at - 1) == ")" and self.word(at - 5) == "@":
            numbers[self.word(at - 4)] = int(self.word(at - 2))
            at -= 5
        return numbers["group"], numbers["binding"]

    def type_at(self, at: int, name: str) -> tuple[_Type, int]:
        """Return the type that starts at a token, and the token after it."""
        word = self.word(at)
        if word in _SCALARS:
            return _Type(_SCALARS[word], _SCALARS[word]), at + 1
        if short := _SHORT_VECTOR.fullmatch(word):
            return _vector(int(short[1]), _Type(*2 * (_SCALARS[_SHORT[short[2]]],))), at + 1
        if word == "atomic":
            inner, end = self.type_at(at + 2, name)
            return inner, end + 1
        if word in ("vec2", "vec3", "vec4"):
            inner, end = self.type_at(at + 2, name)
            return _vector(int(word[-1]), inner), end + 1
        if word != "array":
            raise RewriteError(f"variable {name}: type {word} is not supported")
        element, end = self.type_at(at + 2, name)
        close = self.closing(at + 1, "<", ">")
        count = "".join(self.word(i) for i in range(end + 1, close)).strip(",").rstrip("u")
        # The count matters only for an element of another array.
        return _Type(element.stride * int(count) if count.isdecimal() else 0, element.align, element, True), close + 1

    # -- functions ----------------------------------------------------------------------------------------------------

    def function(self, at: int, entry: bool) -> int:
        """Rewrite the function whose `fn` is at a token, and return its last token."""
        close = self.closing(at + 2, "(", ")")
        names = {self.word(i) for i in range(at + 3, close) if self.word(i + 1) == ":"}
        first = next(i for i in range(close, len(self.tokens)) if self.word(i) == "{")
        last = self.closing(first, "{", "}")
        if entry:
            self.entry_point = self.word(at + 1)
            self.enter(at + 3, close, first)
        scopes = [names]  # local names, the innermost scope last
        loop_ends = set()  # the last tokens of loops, whose variables have a scope of their own
        declared = 0  # the token of a name whose scope begins after the statement
        for i in range(first, last):
            word = self.word(i)
            if word == "{":
                scopes.append(set())
            elif word == "}":
                del scopes[-2 if i in loop_ends else -1 :]
            elif word == "for":
                scopes.append(set())
                loop_ends.add(self.closing(self.closing(i + 1, "(", ")") + 1, "{", "}"))
            elif word in ("let", "var", "const"):
                declared = i + 1
            elif word == ";" and declared:
                scopes[-1].add(self.word(declared))
                declared = 0
            elif word in self.variables and i != declared and not any(word in scope for scope in scopes):
                self.access(i)
        return last

    def enter(self, first: int, close: int, body: int) -> None:
        """Let the entry point store the number of its workgroup and invocation."""
        names = {}
        for i in range(first, close):
            if self.word(i) == "@" and self.word(i + 1) == "builtin":
                names[self.word(i + 3)] = self.word(i + 5)
        missing = [builtin for builtin in _BUILTINS if builtin not in names]
        more = ", ".join(f"@builtin({builtin}) trace_{builtin}: {_BUILTINS[builtin]}" for builtin in missing)
        comma = ", " if more and self.word(close - 1) not in (",", "(") else ""
        self.edits.append((self.tokens[close].at, comma + more))
        group, count, local = (names.get(builtin, f"trace_{builtin}") for builtin in _BUILTINS)
        number = f"{group}.x + {count}.x * ({group}.y + {count}.y * {group}.z)"
        self.edits.append((self.tokens[body].end, f" trace_group = {number}; trace_local = {local};"))

    def access(self, at: int) -> None:
        """Rewrite the access whose variable is at a token."""
        variable, kind = self.variables[self.word(at)]
        if variable.space == "uniform" or self.word(at - 1) == ".":  # a member has its name
            return
        pointer = self.word(at - 1) == "&" and not _ends_operand(self.word(at - 2))
        taker = self.word(at - 3) if pointer and self.word(at - 2) == "(" else ""
        if taker == "arrayLength":
            return
        accessed, i, offset = kind, at + 1, 0
        end = self.tokens[at].end
        indices = [] if kind.is_array else [_Index(end, end, kind.stride)]
        while (element := accessed.element) is not None and self.word(i) in ("[", "."):
            member = self.word(i + 1)
            if self.word(i) == "[":
                close = self.closing(i, "[", "]")
                accessed = element
                indices.append(_Index(self.tokens[i].end, self.tokens[close].at, element.stride))
                i = close + 1
            elif len(member) == 1:
                accessed = element
                offset = max("xyzw".find(member), "rgba".find(member)) * element.nbytes
                i += 2
            else:
                break  # a swizzle of several components loads the whole vector
        if not indices:
            raise RewriteError(f"line {self.line(at)}: access to the whole array {variable.name} is not supported")
        if accessed.nbytes == 0:
            raise RewriteError(f"line {self.line(at)}: the size of an element of {variable.name} is not a literal")
        mode = self.mode(at, i, pointer, taker)
        text = " ".join(self.text[self.tokens[at].at : self.tokens[i - 1].end].split())
        site = len(self.sites)
        self.sites.append(Site(variable, mode, accessed.nbytes, self.line(at), text))
        for index in indices:
            last = "trace_at" if len(indices) == 1 else "trace_last"
            function, more = (last, f", {offset}u") if index is indices[-1] else ("trace_step", "")
            opening, closing = f"{function}({site}u, u32(", f"), {index.stride}u{more})"
            if index.begin == index.end:  # the only element
                opening, closing = f"[{opening}0u", f"{closing}]"
            self.edits += [(index.begin, opening), (index.end, closing)]

    def mode(self, at: int, after: int, pointer: bool, taker: str) -> Kind:
        """Return whether the access at a token loads or stores. `after` is the token after it."""
        if pointer:
            if taker.startswith("atomic") or taker in _POINTER_KINDS:
                return _POINTER_KINDS.get(taker, "both")
            raise RewriteError(f"line {self.line(at)}: a pointer to {self.word(at)} is not supported")
        word = self.word(after)
        if word in _COMPOUND or (word == ">" and self.word(after + 1) == ">="):
            return "both"
        return "store" if word == "=" else "load"

    # -- tokens -------------------------------------------------------------------------------------------------------

    def word(self, at: int) -> str:
        return self.tokens[at].text if 0 <= at < len(self.tokens) else ""

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, self.tokens[at].at) + 1

    def closing(self, at: int, opening: str, closing: str) -> int:
        """Return the token that closes the bracket at a token."""
        depth = 0
        for i in range(at, len(self.tokens)):
            depth += (self.word(i) == opening) - (self.word(i) == closing)
            if depth == 0:
                return i
        raise RewriteError(f"line {self.line(at)}: {opening} is not closed")


def _vector(count: int, scalar: _Type) -> _Type:
    return _Type(count * scalar.nbytes, (2 if count == 2 else 4) * scalar.nbytes, scalar)


def _ends_operand(word: str) -> bool:
    """Return whether an `&` after this token is the binary operator."""
    return word in (")", "]") or (word[:1].isalnum() or word[:1] == "_")


_RECORDER = """
struct TraceLog {{
    count: atomic<u32>,
    records: array<vec4<u32>>,
}}
@group({group}) @binding(0) var<storage, read_write> trace_log: TraceLog;
var<private> trace_group: u32;
var<private> trace_local: u32;
var<private> trace_base: array<u32, {sites}>;  // of accesses with several indices

fn trace_step(site: u32, index: u32, stride: u32) -> u32 {{
    trace_base[site] += index * stride;
    return index;
}}

fn trace_last(site: u32, index: u32, stride: u32, offset: u32) -> u32 {{
    let base = trace_base[site];
    trace_base[site] = 0u;
    trace_append(site, base + index * stride + offset);
    return index;
}}

fn trace_at(site: u32, index: u32, stride: u32, offset: u32) -> u32 {{
    trace_append(site, index * stride + offset);
    return index;
}}

fn trace_append(site: u32, address: u32) {{
    if (trace_group < {workgroups}u) {{
        let at = atomicAdd(&trace_log.count, 1u);
        if (at < arrayLength(&trace_log.records)) {{
            trace_log.records[at] = vec4<u32>(trace_group, trace_local, site, address);
        }}
    }}
}}
"""


def rewrite(text: str, workgroups: int | None = None) -> Rewritten:
    """Return a kernel that records the accesses of its first workgroups, or of all. Raises RewriteError."""
    if "trace_" in text:
        raise RewriteError("names that start with trace_ are reserved for the trace")
    plain = _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment[0]), text)
    rewriter = _Rewriter(plain, [_Token(token[0], token.start()) for token in _TOKEN.finditer(plain)])
    rewriter.run()
    if not 0 < len(rewriter.sites) < MAX_SITES:
        raise RewriteError(f"kernel: expected 1 to {MAX_SITES - 1} access sites, got {len(rewriter.sites)}")
    variables = tuple(variable for variable, _ in rewriter.variables.values())
    group = max(variable.group for variable in variables) + 1
    limit = 0xFFFFFFFF if workgroups is None else workgroups
    recorder = _RECORDER.format(group=group, sites=len(rewriter.sites), workgroups=limit)
    changed = _insert(plain, rewriter.edits) + recorder
    return Rewritten(changed, tuple(rewriter.sites), variables, group, rewriter.entry_point)


def _insert(text: str, edits: Sequence[tuple[int, str]]) -> str:
    """Return the text with others inserted at their positions, in order at equal positions."""
    parts, done = [], 0
    for at, insertion in sorted(edits, key=lambda edit: edit[0]):
        parts += [text[done:at], insertion]
        done = at
    return "".join([*parts, text[done:]])
