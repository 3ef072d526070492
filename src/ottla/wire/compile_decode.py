"""Compiles a declared class and a version into a function that decodes it.

The function made is `decode(b, p, left)`: from the buffer `b` and a position it returns the object
and the position behind it; `left` is how many array elements may come. For a struct of two integers
and a string, version flexible:

    def decode(b, p, left):
        end = len(b)
        m1 = shell_1()
        m1.partition_index, m1.leader_id, n2 = unpack_2(b, p)      # the string's length with it
        p += 9
        if n2 > 127: n2, p = long_length(b, p)
        if not n2: raise WireError("name must not be null")
        q = p + n2 - 1
        if q > end: raise short(p)
        m1.name = str(b[p:q], "utf-8"); p = q
        ...
        m1.__class__ = real_3
        return m1, p

Safe with any bytes: a read past the end raises IndexError or struct.error, which `codec` turns
into WireError; slices, which would not raise, are checked; an array's length is checked against
the bytes left before anything is made of it, so work and memory follow the bytes received. The
same function made as a generator yields every so many elements of arrays, and returns the same.
"""

from collections.abc import Callable, Generator
from struct import Struct, unpack_from
from typing import Any

from ottla.base.limits import ELEMENTS_PER_STEP, NUMBERS_PER_ELEMENT
from ottla.wire.errors import TooManyElementsError, WireError
from ottla.wire.primitives import Buffer, decode_uvarint
from ottla.wire.schema import Array, FieldSpec, Primitive, StructSpec, WireType, spec_of
from ottla.wire.source import RUNS_TABLED, Source, check_version, fields_in, size_min

Decoder = Callable[[Any, int, int], tuple[Any, int]]
StepDecoder = Callable[[Any, int, int], Generator[None, None, tuple[Any, int]]]

_RUNS: dict[str, tuple[Callable[..., tuple[Any, ...]], ...]] = {}


def compile_decoder(cls: type, version: int) -> Decoder:
    """Return the decoder of `cls` at `version`; raise EncodeError where it has no such version."""
    spec = spec_of(cls)
    check_version(spec, version)
    return _Reader(version, version in spec.flexible).compile(spec)


def compile_step_decoder(cls: type, version: int) -> StepDecoder:
    """Return the same as a generator function, which yields where it may be interrupted."""
    spec = spec_of(cls)
    check_version(spec, version)
    return _Reader(version, version in spec.flexible, in_steps=True).compile(spec)


def short(position: int) -> WireError:
    """The error for a length that reaches past the end of the buffer."""
    return WireError(f"a length before byte {position} is longer than what was received")


def long_length(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read again, whole, a varint whose first byte, just before `position`, was not its last."""
    return decode_uvarint(buffer, position - 1)


def skip_tags(buffer: Buffer, position: int, count: int) -> int:
    """Return the position behind `count` tagged fields, whatever they are."""
    end = len(buffer)
    if count > 127:
        count, position = long_length(buffer, position)
    for _ in range(count):
        _, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
        if position > end:
            raise short(position - size)
    return position


def _run_unpackers(code: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    unpackers = _RUNS.get(code)
    if unpackers is None:
        unpackers = tuple(Struct(f">{n}{code}").unpack_from for n in range(RUNS_TABLED))
        _RUNS[code] = unpackers
    return unpackers


class _Reader(Source):
    def __init__(self, version: int, flexible: bool, *, in_steps: bool = False) -> None:
        super().__init__(version, flexible)
        self._in_steps = in_steps
        self._run: list[tuple[str, str]] = []
        self.scope |= {
            "TooManyElementsError": TooManyElementsError,
            "WireError": WireError,
            "short": short,
            "long_length": long_length,
            "skip_tags": skip_tags,
            "unpack_from": unpack_from,
        }

    def compile(self, spec: StructSpec) -> Callable[..., Any]:
        self.line("end = len(b)")
        if self._in_steps:
            self.line(f"step = {ELEMENTS_PER_STEP}")
            self.line("if not step: yield")  # Never: a message without arrays is a generator, too.
        made = self._struct(spec)
        self._close(spec, made)
        self.line(f"return {made}, p")
        return self.finish("decode", "b, p, left")

    def _fixed(self, code: str, target: str) -> None:
        self._run.append((code, target))

    def _flush(self) -> None:
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        targets = ", ".join(target for _, target in self._run)
        form = Struct(">" + codes)
        if codes == "B":
            self.line(f"{targets} = b[p]")
        else:
            unpacker = self.constant("unpack", form.unpack_from, codes)
            self.line(f"{targets}{',' if len(self._run) == 1 else ''} = {unpacker}(b, p)")
        self.line(f"p += {form.size}")
        self._run.clear()

    def _struct(self, spec: StructSpec) -> str:
        """Read a struct's fields into a new shell and return its name; `_close` must follow.

        Nothing is flushed at the end, so that the next struct's first fields join the run.
        """
        made = self.fresh("m")
        shell = self.constant("shell", spec.shell)
        self.line(f"{made} = {shell}()")
        plain, tagged, absent = fields_in(spec, self.version)
        for each in (*absent, *tagged):
            self.line(f"{made}.{each.name} = {self.constant('default', each.default)}")
        for each in plain:
            self._field(each, f"{made}.{each.name}")
        if self.flexible:
            self._tagged(tagged, made)
        return made

    def _close(self, spec: StructSpec, made: str) -> None:
        self._flush()
        self.line(f"{made}.__class__ = {self.constant('real', spec.cls)}")

    def _tagged(self, tagged: list[FieldSpec], made: str) -> None:
        """Read the tagged fields: known ones into `made`, in any order, the last one winning."""
        count = self.fresh("n")
        self._fixed("B", count)
        self._flush()
        if not tagged:
            self.line(f"if {count}: p = skip_tags(b, p, {count})")
            return
        tag, stop = self.fresh("tag"), self.fresh("stop")
        self.line(f"if {count} > 127: {count}, p = long_length(b, p)")
        self.line(f"for {count} in range({count}):")
        self.indent += 1
        for name in (tag, stop):
            self.line(f"{name} = b[p]; p += 1")
            self.line(f"if {name} > 127: {name}, p = long_length(b, p)")
        self.line(f"{stop} += p")
        self.line(f"if {stop} > end: raise short(p)")
        word = "if"
        for each in tagged:
            self.line(f"{word} {tag} == {each.tag}:")
            self.indent += 1
            self._field(each, f"{made}.{each.name}")
            self._flush()
            error = f"WireError('{each.name} is not as long as its tag says')"
            self.line(f"if p != {stop}: raise {error}")
            self.indent -= 1
            word = "elif"
        self.line(f"else: p = {stop}")
        self.indent -= 1

    def _field(self, each: FieldSpec, target: str) -> None:
        nullable = self.version in each.nullable
        type_ = each.type
        if isinstance(type_, Primitive) and type_.code:
            self._fixed(type_.code, target)
        elif isinstance(type_, Primitive | Array):
            self._sized(type_, each.name, nullable, target)
        elif nullable:
            sign = self.fresh("n")
            self._fixed("b", sign)
            self._flush()
            self.line(f"if {sign} < 0: {target} = None")
            self.line("else:")
            self.indent += 1
            self._whole(type_, target)
            self.indent -= 1
        else:
            self._whole(type_, target)

    def _whole(self, cls: type, target: str) -> None:
        made = self._struct(spec_of(cls))
        self._close(spec_of(cls), made)
        self.line(f"{target} = {made}")

    def _sized(self, type_: Primitive | Array, name: str, nullable: bool, target: str) -> None:
        """Read something that begins with its length, where null is a length too."""
        n = self._length(type_)
        null = f"{target} = None" if nullable else f"raise WireError('{name} must not be null')"
        self.line(f"if {n} < 0: {null}")
        if nullable:
            self.line("else:")
            self.indent += 1
        if isinstance(type_, Array):
            self._array(type_.element, n, target)
        else:
            self._slice(type_, n, target)
        if nullable:
            self.indent -= 1

    def _length(self, type_: WireType) -> str:
        """Read a length into a local; below zero is null."""
        n = self.fresh("n")
        if self.flexible:
            self._fixed("B", n)
            self._flush()
            self.line(f"if {n} > 127: {n}, p = long_length(b, p)")
            self.line(f"{n} -= 1")
        else:
            text = isinstance(type_, Primitive) and type_.name == "string"
            self._fixed("h" if text else "i", n)
            self._flush()
        return n

    def _slice(self, type_: Primitive, n: str, target: str) -> None:
        self.line(f"q = p + {n}")
        self.line("if q > end: raise short(p)")
        how = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "b[p:q]"}
        self.line(f"{target} = {how[type_.name]}; p = q")

    def _array(self, element: Primitive | type, n: str, target: str) -> None:
        least = size_min(element, self.version, self.flexible)
        assert least > 0, "else a length could ask for work without bytes"
        self.line(f"if {n} * {least} > end - p: raise short(p)")
        if isinstance(element, Primitive) and element.code and element.name != "uuid":
            self.line(f"left -= {n} // {NUMBERS_PER_ELEMENT}")
            self.line("if left < 0: raise TooManyElementsError()")
            table = self.constant("run", _run_unpackers(element.code), element.code)
            form = f"unpack_from(f'>{{{n}}}{element.code}', b, p)"
            self.line(f"{target} = {table}[{n}](b, p) if {n} < {RUNS_TABLED} else {form}")
            self.line(f"p += {n} * {least}")
            return
        self.line(f"left -= {n}")
        self.line("if left < 0: raise TooManyElementsError()")
        items, item = self.fresh("items"), self.fresh("v")
        self.line(f"{items} = []")
        self.line(f"for {n} in range({n}):")
        self.indent += 1
        if isinstance(element, type):
            item = self._struct(spec_of(element))
            self._close(spec_of(element), item)
        else:
            self._element(element, item)
        self.line(f"{items}.append({item})")
        if self._in_steps:
            self.line("step -= 1")
            self.line(f"if not step: step = {ELEMENTS_PER_STEP}; yield")
        self.indent -= 1
        self.line(f"{target} = tuple({items})")

    def _element(self, element: Primitive, item: str) -> None:
        if element.code:
            self._fixed(element.code, item)
            self._flush()
        else:
            self._sized(element, "an element", False, item)
