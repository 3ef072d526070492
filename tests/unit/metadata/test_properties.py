"""Property files are read as Java reads them.

Method: a table of lines whose meaning java.util.Properties documents; round trips by hypothesis.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.properties import read_properties, write_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("  a:b", {"a": "b"}),
        ("a b", {"a": "b"}),
        ("a  =  b=c", {"a": "b=c"}),
        ("a = : b", {"a": ": b"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("# a=b\n! c=d\n\n \ne=f", {"e": "f"}),
        ("a=b # c", {"a": "b # c"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=one,\\\n   two", {"a": "one,two"}),
        ("a=one\\\\\nb=2", {"a": "one\\", "b": "2"}),
        ("a=one\\", {"a": "one"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=\\u0041\\u00e9", {"a": "Aé"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
        ("=b", {"": "b"}),
    ],
)
def test_lines(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u00g1", "a=\\u12", "ok=1\n\nb=\\u 123"])
def test_a_malformed_escape_names_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=rf"line {text.count(chr(10)) + 1}: .*escape"):
        read_properties(text)


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    assert read_properties(write_properties(values)) == values
