"""Java's .properties files, as Kafka's server.properties are written.

Lines end in a newline, a carriage return or both; one that ends in an odd number of backslashes
goes on in the next, whose leading blanks do not count. A key ends at the first `=`, `:` or blank
that no backslash escapes. Source: java.util.Properties.load.
"""

import re

_BLANKS = " \t\f"
_LINE_ENDS = re.compile(r"\r\n|\r|\n")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NAMED = {char: "\\" + letter for letter, char in _ESCAPES.items()}


def read_properties(text: str) -> dict[str, str]:
    """Return the keys and values of a file's text; of a repeated key the last value.

    Raises: ValueError, naming the line, for a malformed \\u escape.
    """
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        try:
            key, value = _split(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        found[key] = value
    return found


def write_properties(values: dict[str, str]) -> str:
    """Return text that `read_properties` reads back, one line a key, in the order given."""
    lines = [f"{_escape(key, True)}={_escape(value, False)}\n" for key, value in values.items()]
    return "".join(lines)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Join continued lines; drop comments and blank ones; number each by its first line."""
    lines: list[tuple[int, str]] = []
    open_line: str | None = None
    first = 0
    for number, raw in enumerate(_LINE_ENDS.split(text), start=1):
        line = raw.lstrip(_BLANKS)
        if open_line is None:
            if not line or line[0] in "#!":
                continue
            open_line, first = line, number
        else:
            open_line += line
        if (len(open_line) - len(open_line.rstrip("\\"))) % 2:
            open_line = open_line[:-1]
        else:
            lines.append((first, open_line))
            open_line = None
    if open_line is not None:
        lines.append((first, open_line))
    return lines


def _split(line: str) -> tuple[str, str]:
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return _unescape(line[:end]), _unescape(rest)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\" or position == len(text):
            if char != "\\":
                out.append(char)
            continue
        char = text[position]
        position += 1
        if char == "u":
            digits = text[position : position + 4]
            if len(digits) != 4 or not all(each in "0123456789abcdefABCDEF" for each in digits):
                raise ValueError(f"malformed \\uxxxx escape in {text!r}")
            out.append(chr(int(digits, 16)))
            position += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out)


def _escape(text: str, is_key: bool) -> str:
    out: list[str] = []
    for position, char in enumerate(text):
        if char in _NAMED:
            out.append(_NAMED[char])
        elif char == "\\" or (is_key and char in "=:#! ") or (char == " " and position == 0):
            out.append("\\" + char)
        else:
            out.append(char)
    return "".join(out)
