"""Helps the two compilers write Python source: lines, names, and runs of fixed-size values.

Neighbouring values of fixed size are packed or unpacked by one call of one `struct.Struct`, over
the borders of structs too, because the calls are what encoding and decoding spend their time on.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any

from ottla.wire.errors import EncodeError
from ottla.wire.schema import Array, FieldSpec, Primitive, StructSpec, Versions, WireType, spec_of

RUNS_TABLED = 32
"""Primitive arrays shorter than this have their Struct ready in a table."""


class Source:
    """A function under construction: its lines, and the objects that its names stand for."""

    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.scope: dict[str, Any] = {}
        self.lines: list[str] = []
        self.indent = 1
        self._names: dict[object, str] = {}
        self._count = 0

    def line(self, text: str) -> None:
        """Add a line at the present indentation."""
        self.lines.append("    " * self.indent + text)

    def fresh(self, stem: str) -> str:
        """Return a local name that nothing else has."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: object, key: object = None) -> str:
        """Return the global name of `value`; equal keys share one."""
        key = (stem, id(value) if key is None else key)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"{stem}_{len(self._names)}"
            self.scope[name] = value
        return name

    def finish(self, name: str, parameters: str) -> Callable[..., Any]:
        """Compile the lines as the function `name`."""
        source = f"def {name}({parameters}):\n" + "\n".join(self.lines) + "\n"
        exec(compile(source, f"<{name} version {self.version}>", "exec"), self.scope)
        function: Callable[..., Any] = self.scope[name]
        return function


def fields_in(
    spec: StructSpec, version: int
) -> tuple[list[FieldSpec], list[FieldSpec], list[FieldSpec]]:
    """Return the plain, the tagged (by tag) and the absent fields of a struct in a version."""
    plain: list[FieldSpec] = []
    tagged: list[FieldSpec] = []
    absent: list[FieldSpec] = []
    for each in spec.fields:
        if version in each.tagged and version in each.versions:
            tagged.append(each)
        else:
            (plain if version in each.versions else absent).append(each)
    tagged.sort(key=lambda each: each.tag or 0)
    return plain, tagged, absent


def size_min(type_: WireType, version: int, flexible: bool) -> int:
    """Return the fewest bytes that a value of this type takes, null left aside."""
    if isinstance(type_, Primitive) and type_.code:
        return Struct(">" + type_.code).size
    if isinstance(type_, Primitive):
        if flexible:
            return 1
        return 2 if type_.name == "string" else 4
    if isinstance(type_, Array):
        return 1 if flexible else 4
    plain, _, _ = fields_in(spec_of(type_), version)
    size = 1 if flexible else 0
    for each in plain:
        nullable_struct = isinstance(each.type, type) and version in each.nullable
        size += 1 if nullable_struct else size_min(each.type, version, flexible)
    return size


def check_version(spec: StructSpec, version: int) -> None:
    """Raise EncodeError where a message has no such version: asking is our own bug."""
    known: Versions = spec.versions
    if version not in known:
        raise EncodeError(
            f"{spec.cls.__name__} has versions {known.first} to {known.last}, not {version}"
        )
