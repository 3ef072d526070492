"""Topic names are those that Kafka takes. Method: a table of both kinds."""

import pytest

from ottla.metadata.topic_names import fault_of


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__consumer_offsets"])
def test_good(name: str) -> None:
    assert fault_of(name) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "empty"),
        (".", "cannot be named"),
        ("..", "cannot be named"),
        ("x" * 250, "longer than 249"),
        ("a b", "characters other than"),
        ("a/b", "characters other than"),
        ("é", "characters other than"),
        ("a\n", "characters other than"),
    ],
)
def test_bad(name: str, text: str) -> None:
    fault = fault_of(name)
    assert fault is not None
    assert text in fault
