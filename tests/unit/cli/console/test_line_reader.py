"""Lines become records as kafka-console-producer.sh reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.console.line_reader import Parsed, line_reader
from ottla.cli.errors import CommandError, UsageError

KEYED = {"parse.key": "true"}
ALL = {"parse.key": "true", "parse.headers": "TRUE "}


@pytest.mark.parametrize(
    ("properties", "line", "record"),
    [
        ({}, b"a\tb", Parsed(None, b"a\tb")),
        ({}, b"", Parsed(None, b"")),
        (KEYED, b"k\tv\tw", Parsed(b"k", b"v\tw")),
        (KEYED, b"\tv", Parsed(b"", b"v")),
        (KEYED | {"key.separator": "::"}, b"k::v", Parsed(b"k", b"v")),
        (ALL, b"h:1,g:2\tk\tv", Parsed(b"k", b"v", (("h", b"1"), ("g", b"2")))),
        (ALL, b"h:1:2\tk\tv", Parsed(b"k", b"v", (("h", b"1:2"),))),
        ({"parse.headers": "true"}, b"h:\tv", Parsed(None, b"v", (("h", b""),))),
        ({"null.marker": "NIL"}, b"NIL", Parsed(None, None)),
        (KEYED | {"null.marker": "NIL"}, b"NIL\tNIL", Parsed(None, None)),
        (ALL | {"null.marker": "NIL"}, b"NIL\tk\tv", Parsed(b"k", b"v")),
        (ALL | {"null.marker": "NIL"}, b"h:NIL\tk\tv", Parsed(b"k", b"v", (("h", None),))),
        (KEYED | {"ignore.error": "true"}, b"no key", Parsed(None, b"no key")),
        (ALL | {"ignore.error": "true"}, b"h\tk\tv", Parsed(b"k", b"v", (("h", None),))),
        ({}, "wörter".encode(), Parsed(None, "wörter".encode())),
        ({}, b"\xff\xfe", Parsed(None, b"\xff\xfe")),
    ],
)
def test_lines(properties: dict[str, str], line: bytes, record: Parsed) -> None:
    assert line_reader(properties).read(line, 1) == record


@pytest.mark.parametrize(
    ("properties", "line", "message"),
    [
        (KEYED, b"no key", "no key separator in line 7: 'no key'"),
        (ALL, b"h:1", "no headers delimiter in line 7: 'h:1'"),
        (ALL, b"h\tk\tv", "no header key separator in 'h', line 7"),
        (ALL | {"null.marker": "N"}, b"N:1\tk\tv", "a header's key cannot be null: line 7"),
    ],
)
def test_lines_that_are_no_records(properties: dict[str, str], line: bytes, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        line_reader(properties).read(line, 7)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"parse.kye": "true"}, "--property parse.kye: expected one of "),
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator may not be"),
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator may not be equal"),
        ({"key.separator": ""}, "--property key.separator: expected some text"),
        ({"key.separator": "N", "null.marker": "N"}, "null.marker and key.separator may not be"),
    ],
)
def test_properties_that_contradict(properties: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        line_reader(properties)


@given(key=st.binary().filter(lambda key: b"\t" not in key), value=st.binary())
def test_key_and_value_come_back_whatever_they_are(key: bytes, value: bytes) -> None:
    assert line_reader(KEYED).read(key + b"\t" + value, 1) == Parsed(key, value)
