"""The reader of the fault tests tells a client that is locked up from one that gets nothing.

Method: consumers that are made up, of which some bring nothing from somewhere on, and some cannot
be closed. Nobody waits: standing still begins at once.
"""

import json
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from . import fault_reader
from .background import Background
from .fault_reader import Reader


@dataclass(frozen=True)
class Message:
    """A record whose value is a number, as `fault_load` writes them."""

    at: tuple[int, int]
    number: int
    failure: str | None = None

    def error(self) -> str | None:
        return self.failure

    def partition(self) -> int:
        return self.at[0]

    def offset(self) -> int:
        return self.at[1]

    def value(self) -> bytes:
        return b"%d" % self.number


@dataclass
class Library:
    """Makes consumers; each brings the records of two partitions up to its own `limits`."""

    limits: list[int]
    closes: bool = True
    failure: str | None = None
    again: int | None = None
    """The offset from where on records are those of the offset before."""
    made: "list[Made]" = field(default_factory=list)

    def __call__(self, config: dict[str, Any]) -> "Made":
        self.made.append(Made(self, self.limits[len(self.made)]))
        return self.made[-1]


class Made:
    def __init__(self, library: Library, limit: int) -> None:
        self._library = library
        self._limit = limit
        self.begins: list[int] = []

    def assign(self, partitions: list[Any]) -> None:
        self.begins = [each.offset for each in partitions]
        self._left = [
            Message((partition, offset), self._number(offset), self._library.failure)
            for partition, begin in enumerate(self.begins)
            for offset in range(begin, self._limit)
        ]

    def _number(self, offset: int) -> int:
        again = self._library.again
        return offset if again is None or offset < again else offset - 1

    def consume(self, count: int, seconds: float) -> list[Message]:
        found, self._left = self._left, []
        return found


WRITTEN = [[0.0] * 5, [0.0] * 5]
"""Five records in each of two partitions, acknowledged long ago."""


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_reader, "STILL_SECONDS", 0.0)


def drained(library: Library, monkeypatch: pytest.MonkeyPatch) -> Reader:
    monkeypatch.setattr(fault_reader, "is_closed", lambda _: library.closes)
    reader = Reader("nowhere", "t", 2, errors=[], on_error=lambda error: None, library=library)
    reader.drain(WRITTEN, lambda: True)
    return reader


def test_all_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = drained(Library([5]), monkeypatch)
    assert reader.seen == [list(range(5))] * 2
    assert (reader.errors, reader.locked_up) == ([], 0)


def test_a_consumer_that_cannot_be_closed_has_seen_what_it_has_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = drained(Library([5], closes=False), monkeypatch)
    assert (reader.errors, reader.locked_up) == ([], 1)


def test_another_one_goes_on_where_the_first_is_locked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library([3, 5], closes=False)
    reader = drained(library, monkeypatch)
    assert reader.seen == [list(range(5))] * 2
    assert library.made[1].begins == [3, 3]
    assert reader.errors == []


def test_a_consumer_that_stands_still_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library([3, 5])
    (error,) = drained(library, monkeypatch).errors
    assert len(library.made) == 1
    assert "stands still" in error
    assert "partition 1: offset 3 is not read for 0 s, 3 of 5 records are" in error


def test_not_every_client_can_be_locked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    (error,) = drained(Library([3, 3, 5], closes=False), monkeypatch).errors
    assert "another consumer is locked up" in error


def test_what_a_user_is_shown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = drained(Library([1], failure="offset out of range"), monkeypatch)
    (error,) = reader.errors
    assert error.startswith("partition 0: offset out of range\n")


def test_a_record_that_comes_twice_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = drained(Library([5], again=2), monkeypatch)
    (error,) = reader.errors
    assert "offset 2 comes next, and offset 2 came with the number 1" in error


def test_statistics_tell_where_a_partition_is_asked_for() -> None:
    statistics = {
        "brokers": {"there:9092/2": {"state": "UP", "waitresp_cnt": 1, "tx": 7}},
        "topics": {"t": {"partitions": {"0": {"leader": 2, "fetch_state": "active"}}}},
    }
    assert fault_reader.said_by(json.dumps(statistics), "t") == [
        "  broker there:9092/2: state UP, waitresp_cnt 1",
        "  partition 0: leader 2, fetch_state active",
    ]


def test_a_thread_that_goes_on_is_reported_with_what_it_is_at() -> None:
    may_end = threading.Event()

    def stubborn() -> None:
        may_end.wait()

    with pytest.raises(AssertionError, match="in stubborn"), Background([stubborn], patience=0.0):
        pass
    may_end.set()
