"""Compiles a declared class and a version into a function that encodes it.

The function made is `encode(o, parts, cuts)`: it appends byte strings to `parts`, which the
caller joins, and for a RECORDS value the caller's own chunks, uncopied, noting in `cuts` where
they are. For a struct of two integers and a string, version flexible, the source made is:

    def encode(o, parts, cuts):
        w = parts.append
        s1 = o.name.encode()
        n2 = len(s1) + 1
        w(one_byte[n2] if n2 < 128 else uvarint(n2))
        w(s1)
        w(pack_1(o.partition_index, o.leader_id))     # format ">iix", x = no tagged fields

Structs are written inline, arrays of structs as loops. Values of fixed size wait in `_run` until
something else must be written, so that one `pack` writes them all. The same function made as a
generator yields every so many elements of arrays.
"""

from collections.abc import Callable, Generator
from struct import Struct, pack
from typing import Any

from ottla.base.limits import ELEMENTS_PER_STEP
from ottla.wire.errors import EncodeError
from ottla.wire.primitives import ONE_BYTE, encode_uvarint
from ottla.wire.schema import STRING, Array, FieldSpec, Primitive, StructSpec, WireType, spec_of
from ottla.wire.source import RUNS_TABLED, Source, check_version, fields_in

Cut = tuple[int, int]
"""Where in the parts a chunk of a RECORDS value is, and its size."""

Encoder = Callable[[Any, list[Any], list[Cut]], None]
StepEncoder = Callable[[Any, list[Any], list[Cut]], Generator[None, None, None]]

_COMPACT_NULL = b"\x00"
_RUNS: dict[tuple[str, str], tuple[Callable[..., bytes], ...]] = {}


def compile_encoder(cls: type, version: int) -> Encoder:
    """Return the encoder of `cls` at `version`; raise EncodeError where it has no such version."""
    spec = spec_of(cls)
    check_version(spec, version)
    return _Writer(version, version in spec.flexible).compile(spec)


def compile_step_encoder(cls: type, version: int) -> StepEncoder:
    """Return the same as a generator function, which yields where it may be interrupted."""
    spec = spec_of(cls)
    check_version(spec, version)
    return _Writer(version, version in spec.flexible, in_steps=True).compile(spec)


def unsupported(owner: str, name: str, version: int, value: object) -> EncodeError:
    """The error for a value that a version has no field for."""
    return EncodeError(f"{owner}.{name} = {value!r} has no field in version {version}")


def chunk_size(chunk: Any) -> int:
    """Return the bytes that a chunk of a RECORDS value stands for."""
    kind = type(chunk)
    if kind is bytes or kind is bytearray:
        return len(chunk)
    size: int = chunk.nbytes if kind is memoryview else chunk.length
    return size


def put_records(value: Any, parts: list[Any], cuts: list[Cut], flexible: bool) -> None:
    """Append a RECORDS value that is not null: its size, then its chunks as they are."""
    kind = type(value)
    if kind is bytes or kind is bytearray or kind is memoryview:
        value = (value,)
    sizes = [chunk_size(chunk) for chunk in value]
    size = sum(sizes)
    parts.append(encode_uvarint(size + 1) if flexible else pack(">i", size))
    for chunk, size in zip(value, sizes, strict=True):
        if size:
            cuts.append((len(parts), size))
            parts.append(chunk)


def _run_packers(prefix: str, code: str) -> tuple[Callable[..., bytes], ...]:
    """Packers of "length, then that many values" for short arrays, by length."""
    packers = _RUNS.get((prefix, code))
    if packers is None:
        packers = tuple(Struct(f">{prefix}{n}{code}").pack for n in range(RUNS_TABLED))
        _RUNS[prefix, code] = packers
    return packers


class _Writer(Source):
    def __init__(self, version: int, flexible: bool, *, in_steps: bool = False) -> None:
        super().__init__(version, flexible)
        self._in_steps = in_steps
        self._run: list[tuple[str, str]] = []
        self.scope |= {
            "one_byte": ONE_BYTE,
            "uvarint": encode_uvarint,
            "unsupported": unsupported,
            "put_records": put_records,
            "pack": pack,
            "EncodeError": EncodeError,
        }

    def compile(self, spec: StructSpec) -> Callable[..., Any]:
        self.line("w = parts.append")
        if self._in_steps:
            self.line(f"step = {ELEMENTS_PER_STEP}")
            self.line("if not step: yield")  # Never: a message without arrays is a generator, too.
        self._struct(spec, "o", "w")
        self._flush("w")
        return self.finish("encode", "o, parts, cuts")

    def _fixed(self, code: str, expression: str) -> None:
        self._run.append((code, expression))

    def _flush(self, w: str) -> None:
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(expression for _, expression in self._run if expression)
        if not values:
            self.line(f"{w}({bytes(len(codes))!r})")
        else:
            packer = self.constant("pack", Struct(">" + codes).pack, codes)
            self.line(f"{w}({packer}({values}))")
        self._run.clear()

    def _struct(self, spec: StructSpec, o: str, w: str) -> None:
        plain, tagged, absent = fields_in(spec, self.version)
        for each in absent:
            if not each.ignorable:
                differs = self._differs(each, f"{o}.{each.name}")
                owner = f"{spec.cls.__name__!r}, {each.name!r}, {self.version}"
                self.line(f"if {differs}: raise unsupported({owner}, {o}.{each.name})")
        for each in plain:
            self._field(each, f"{o}.{each.name}", w)
        if not self.flexible:
            assert not tagged
        elif tagged:
            self._tagged(tagged, o, w)
        else:
            self._fixed("x", "")  # Packs as zero: no tagged fields.

    def _differs(self, each: FieldSpec, value: str) -> str:
        """An expression: the value is not the default. Most often it is the very object."""
        default = self.constant("default", each.default)
        return f"{value} is not {default} and {value} != {default}"

    def _tagged(self, tagged: list[FieldSpec], o: str, w: str) -> None:
        """Write the tagged fields that differ from their defaults, each with its size."""
        self._flush(w)
        count, encoded = self.fresh("count"), self.fresh("tagged")
        self.line(f"{count} = 0")
        for each in tagged:
            value = f"{o}.{each.name}"
            part, add = self.fresh("part"), self.fresh("w")
            self.line(f"if {self._differs(each, value)}:")
            self.indent += 1
            self.line(f"if not {count}: {encoded} = []")
            self.line(f"{count} += 1")
            self.line(f"{part} = []; {add} = {part}.append")
            self._field(each, value, add)
            self._flush(add)
            self.line(f"{part} = b''.join({part})")
            prefix = encode_uvarint(each.tag or 0)
            self.line(f"{encoded} += ({prefix!r}, uvarint(len({part})), {part})")
            self.indent -= 1
        self.line(f"if {count}:")
        self.line(f"    {w}(uvarint({count}))")
        self.line(f"    for {encoded} in {encoded}: {w}({encoded})")
        self.line(f"else: {w}({_COMPACT_NULL!r})")

    def _field(self, each: FieldSpec, value: str, w: str) -> None:
        nullable = self.version in each.nullable
        if isinstance(each.type, Primitive) and each.type.code:
            self._value(each.type, value, w)
            return
        local = self.fresh("v")
        self.line(f"{local} = {value}")
        if not nullable:
            self._value(each.type, local, w)
            return
        self._flush(w)
        self.line(f"if {local} is None: {w}({self._null(each.type)!r})")
        self.line("else:")
        self.indent += 1
        if isinstance(each.type, type):
            self._fixed("b", "1")
        self._value(each.type, local, w)
        self._flush(w)
        self.indent -= 1

    def _null(self, type_: WireType) -> bytes:
        if isinstance(type_, type):
            return b"\xff"
        if self.flexible:
            return _COMPACT_NULL
        return b"\xff\xff" if type_ is STRING else b"\xff\xff\xff\xff"

    def _value(self, type_: WireType, value: str, w: str) -> None:
        """Write a value that is not None."""
        if isinstance(type_, Array):
            self._array(type_.element, value, w)
        elif not isinstance(type_, Primitive):
            self._struct(spec_of(type_), value, w)
        elif type_.name == "uuid":
            self.line(f"if len({value}) != 16: raise EncodeError('a UUID has 16 bytes')")
            self._fixed(type_.code, value)
        elif type_.code:
            self._fixed(type_.code, value)
        elif type_.name == "records":
            assert w == "w", "records cannot be tagged"
            self._flush(w)
            self.line(f"put_records({value}, parts, cuts, {self.flexible})")
        else:
            text = type_.name == "string"
            data = value
            if text:
                data = self.fresh("s")
                self.line(f"{data} = {value}.encode()")
            self._length(f"len({data})", "h" if text else "i", w)
            self.line(f"{w}({data})")

    def _length(self, length: str, code: str, w: str) -> None:
        """Write a length: compact, or in front of it whatever waits to be packed with it."""
        if not self.flexible:
            self._fixed(code, length)
            self._flush(w)
            return
        self._flush(w)
        n = self.fresh("n")
        self.line(f"{n} = {length} + 1")
        self.line(f"{w}(one_byte[{n}] if {n} < 128 else uvarint({n}))")

    def _array(self, element: Primitive | type, value: str, w: str) -> None:
        if isinstance(element, Primitive) and element.code and element.name != "uuid":
            self._run_of(element.code, value, w)
            return
        self._length(f"len({value})", "i", w)
        item = self.fresh("o")
        self.line(f"for {item} in {value}:")
        self.indent += 1
        mark = len(self.lines)
        self._value(element, item, w)
        self._flush(w)
        assert len(self.lines) > mark, "an element must take some bytes"
        if self._in_steps:
            self.line("step -= 1")
            self.line(f"if not step: step = {ELEMENTS_PER_STEP}; yield")
        self.indent -= 1

    def _run_of(self, code: str, value: str, w: str) -> None:
        self._flush(w)
        n = self.fresh("n")
        table = _run_packers("B" if self.flexible else "i", code)
        packers = self.constant("run", table, code)
        plus = " + 1" if self.flexible else ""
        self.line(f"{n} = len({value})")
        self.line(f"if {n} < {RUNS_TABLED}: {w}({packers}[{n}]({n}{plus}, *{value}))")
        prefix = f"uvarint({n} + 1)" if self.flexible else f"pack('>i', {n})"
        self.line(f"else: {w}({prefix} + pack(f'>{{{n}}}{code}', *{value}))")
