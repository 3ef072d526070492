"""Topics are chosen by regular expressions that match whole names, as Kafka's tools do."""

import pytest

from ottla.cli.errors import UsageError
from ottla.cli.topics.topic_filter import choose

NAMES = ["orders", "orders-eu", "__consumer_offsets", "a.b", "axb"]


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        (None, ["__consumer_offsets", "a.b", "axb", "orders", "orders-eu"]),
        ("orders", ["orders"]),
        ("orders.*", ["orders", "orders-eu"]),
        ("orders, axb", ["axb", "orders"]),
        ("'orders'", ["orders"]),
        ("a.b", ["a.b", "axb"]),
        (r"a\.b", ["a.b"]),
        ("rders", []),
    ],
)
def test_choice(text: str | None, chosen: list[str]) -> None:
    assert choose(NAMES, text, exclude_internal=False) == chosen


def test_internal_topics_can_be_left_out() -> None:
    assert "__consumer_offsets" not in choose(NAMES, None, exclude_internal=True)


def test_an_invalid_expression_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="not a regular expression"):
        choose(NAMES, "(", exclude_internal=False)


@pytest.mark.parametrize("text", ["a{4294967295}", "(" * 3000 + ")" * 3000])
def test_an_expression_that_python_cannot_compile_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError, match="not a regular expression") as caught:
        choose(NAMES, text, exclude_internal=False)
    assert len(str(caught.value)) < 300
