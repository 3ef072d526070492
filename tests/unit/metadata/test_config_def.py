"""Values are parsed as Kafka parses them, and a refusal says name, value and what was expected.

Method: tables of texts for each type; what is printed is read back.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.config_def import (
    ConfigDef,
    ConfigError,
    ConfigKey,
    Type,
    at_least,
    between,
    each_of,
    format_value,
    one_of,
    parse_value,
)


def key(type_: Type, check: object = None) -> ConfigKey:
    return ConfigKey("some.name", type_, None, "", check)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (Type.BOOLEAN, "true", True),
        (Type.BOOLEAN, " TRUE ", True),
        (Type.BOOLEAN, "False", False),
        (Type.INT, " 12 ", 12),
        (Type.INT, "+12", 12),
        (Type.INT, "-2147483648", -(1 << 31)),
        (Type.SHORT, "32767", 32_767),
        (Type.LONG, "9223372036854775807", (1 << 63) - 1),
        (Type.DOUBLE, "0.5", 0.5),
        (Type.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (Type.STRING, " a b ", "a b"),
        (Type.LIST, "", ()),
        (Type.LIST, " a , b,c ", ("a", "b", "c")),
        (Type.LIST, "a,,b", ("a", "", "b")),
        (Type.CLASS, "a.B", "a.B"),
        (Type.PASSWORD, "x", "x"),
    ],
)
def test_values(type_: Type, text: str, value: object) -> None:
    assert parse_value(key(type_), text) == value


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (Type.BOOLEAN, "yes"),
        (Type.BOOLEAN, ""),
        (Type.INT, "2147483648"),
        (Type.INT, "1_000"),
        (Type.INT, "1.0"),
        (Type.INT, "٣"),
        (Type.INT, ""),
        (Type.SHORT, "32768"),
        (Type.LONG, "9223372036854775808"),
        (Type.LONG, "1k"),
        (Type.DOUBLE, "half"),
        (Type.DOUBLE, "nan"),
        (Type.DOUBLE, "1_0"),
    ],
)
def test_ill_typed_values(type_: Type, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value(key(type_), text)
    [problem] = caught.value.problems
    assert (problem.name, problem.value) == ("some.name", text)
    assert "expected" in str(caught.value)


@pytest.mark.parametrize(
    ("type_", "check", "good", "bad", "text"),
    [
        (Type.INT, at_least(1), "1", "0", "a 32-bit integer of at least 1"),
        (Type.DOUBLE, between(0, 1), "1", "1.1", "a number from 0 to 1"),
        (Type.STRING, one_of("a", "b"), "b", "c", "text out of a, b"),
        (Type.LIST, each_of("a", "b"), "a,b", "a,c", "a list with commas out of a, b"),
    ],
)
def test_checks(type_: Type, check: object, good: str, bad: str, text: str) -> None:
    parse_value(key(type_, check), good)
    with pytest.raises(ConfigError, match=f"some.name={bad}: expected {text}"):
        parse_value(key(type_, check), bad)


@pytest.mark.parametrize(
    ("type_", "value", "text"),
    [
        (Type.BOOLEAN, True, "true"),
        (Type.LIST, ("a", "b"), "a,b"),
        (Type.LIST, (), ""),
        (Type.DOUBLE, 0.5, "0.5"),
        (Type.DOUBLE, 1.7976931348623157e308, "1.7976931348623157E308"),
        (Type.DOUBLE, 1e300, "1.0E300"),
        (Type.INT, -1, "-1"),
        (Type.STRING, None, None),
    ],
)
def test_printed_as_kafka_prints(type_: Type, value: object, text: str | None) -> None:
    assert format_value(type_, value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive_printing(value: float) -> None:
    text = format_value(Type.DOUBLE, value)
    assert text is not None
    assert parse_value(key(Type.DOUBLE), text) == value


def test_a_definition_suggests_a_similar_name() -> None:
    definitions = ConfigDef.of(key(Type.INT))
    assert definitions.similar("some.nam") == "some.name"
    assert definitions.similar("other") is None
    assert definitions.defaults == {"some.name": None}


def test_a_name_defined_twice_or_a_bad_default_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        ConfigDef.of(key(Type.INT), key(Type.INT))
    with pytest.raises(AssertionError):
        ConfigDef.of(ConfigKey("a", Type.INT, 0, "", at_least(1)))
