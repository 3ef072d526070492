"""Topic names are Kafka's: what it refuses, we refuse, and nothing else."""

import pytest

from ottla.broker.topic_names import NAME_LENGTH_MAX, fault_of


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "__consumer_offsets", "...", "x" * 249])
def test_legal_names(name: str) -> None:
    assert fault_of(name) is None


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "a\x00", "x" * (NAME_LENGTH_MAX + 1)]
)
def test_illegal_names(name: str) -> None:
    assert fault_of(name) is not None
