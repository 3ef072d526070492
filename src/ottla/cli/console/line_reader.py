"""Parses lines of text to records, for the console producer.

A line with all parts is `h1:v1,h2:v2<TAB>key<TAB>value`; each separator is a property.
Source: LineMessageReader.java.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.cli.errors import CommandError, UsageError

Header = tuple[str, bytes | None]

KNOWN = frozenset(
    {
        "headers.delimiter",
        "headers.key.separator",
        "headers.separator",
        "ignore.error",
        "key.separator",
        "null.marker",
        "parse.headers",
        "parse.key",
    }
)


@dataclass(frozen=True, slots=True)
class Parsed:
    """One record to send."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """How to parse lines. Separators are plain text."""

    parse_key: bool = False
    key_separator: bytes = b"\t"
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    ignore_error: bool = False
    null_marker: bytes | None = None

    def read(self, line: bytes, number: int) -> Parsed:
        """Return the record of a line (without its line end). Raises: CommandError."""
        rest = line
        headers: tuple[Header, ...] = ()
        if self.parse_headers:
            text, rest = self._cut(rest, self.headers_delimiter, "headers delimiter", line, number)
            if text is not None and text != self.null_marker:
                headers = self._headers(text, number)
        key = None
        if self.parse_key:
            key, rest = self._cut(rest, self.key_separator, "key separator", line, number)
        return Parsed(self._unless_null(key), self._unless_null(rest), headers)

    def _cut(
        self, rest: bytes, separator: bytes, name: str, line: bytes, number: int
    ) -> tuple[bytes | None, bytes]:
        before, found, after = rest.partition(separator)
        if found:
            return before, after
        if self.ignore_error:
            return None, rest
        raise CommandError(f"no {name} in line {number}: {_text(line)!r}")

    def _headers(self, text: bytes, number: int) -> tuple[Header, ...]:
        headers: list[Header] = []
        for pair in text.split(self.headers_separator):
            name, found, value = pair.partition(self.headers_key_separator)
            if not found:
                if self.ignore_error:
                    headers.append((_text(pair), None))
                    continue
                raise CommandError(f"no header key separator in {_text(pair)!r}, line {number}")
            if name == self.null_marker:
                raise CommandError(f"a header's key cannot be null: line {number}")
            headers.append((_text(name), self._unless_null(value)))
        return tuple(headers)

    def _unless_null(self, value: bytes | None) -> bytes | None:
        return None if value == self.null_marker else value


def line_reader(properties: Mapping[str, str]) -> LineReader:
    """Return the reader for these properties. Raises: UsageError."""
    for name in properties:
        if name not in KNOWN:
            raise UsageError(f"--property {name}: expected one of {', '.join(sorted(KNOWN))}")
    reader = LineReader(
        parse_key=_true(properties, "parse.key"),
        key_separator=_bytes(properties, "key.separator", "\t"),
        parse_headers=_true(properties, "parse.headers"),
        headers_delimiter=_bytes(properties, "headers.delimiter", "\t"),
        headers_separator=_bytes(properties, "headers.separator", ","),
        headers_key_separator=_bytes(properties, "headers.key.separator", ":"),
        ignore_error=_true(properties, "ignore.error"),
        null_marker=properties["null.marker"].encode() if "null.marker" in properties else None,
    )
    separators = {
        "headers.delimiter": reader.headers_delimiter,
        "headers.separator": reader.headers_separator,
        "headers.key.separator": reader.headers_key_separator,
    }
    names = list(separators)
    for index, name in enumerate(names):
        for other in names[index + 1 :]:
            if separators[name] == separators[other]:
                raise UsageError(f"--property {name} and {other} may not be equal")
    for name, separator in {**separators, "key.separator": reader.key_separator}.items():
        if not separator:
            raise UsageError(f"--property {name}: expected some text")
        if separator == reader.null_marker:
            raise UsageError(f"--property null.marker and {name} may not be equal")
    return reader


def _true(properties: Mapping[str, str], name: str) -> bool:
    return properties.get(name, "").strip().lower() == "true"


def _bytes(properties: Mapping[str, str], name: str, default: str) -> bytes:
    return properties.get(name, default).encode()


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
