"""Refusals are all counted, and logged once a minute with their number.

Method: a loop whose time a test moves.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from ottla.host.net.refusals import LOG_SECONDS, Refusal, Refusals


class Loop:
    """The two calls of an event loop that matter here."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_later(self, seconds: float, callback: Callable[[], None]) -> "Loop":
        assert seconds == LOG_SECONDS
        self.due.append(callback)
        return self

    def cancel(self) -> None:
        self.due.clear()

    def pass_a_minute(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def refusals(loop: Any) -> Refusals:
    return Refusals(loop, "PLAINTEXT")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


def test_the_first_is_logged_at_once_and_the_others_together(
    loop: Loop, refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        refusals.note(Refusal.REQUEST, f"peer {number}: garbage")
    refusals.note(Refusal.LOST, "peer x: reset")
    assert refusals.counts == {Refusal.REQUEST: 1000, Refusal.LOST: 1}
    [first] = lines(caplog)
    assert "PLAINTEXT" in first
    assert "peer 0: garbage" in first
    loop.pass_a_minute()
    _, second = lines(caplog)
    assert " 1000 connections" in second
    assert "peer x: reset" in second
    loop.pass_a_minute()
    loop.pass_a_minute()
    assert len(lines(caplog)) == 2, "nothing more happened"
    refusals.note(Refusal.REQUEST, "again")
    assert len(lines(caplog)) == 3


def test_the_rest_is_logged_at_the_end(
    loop: Loop, refusals: Refusals, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(5):
        refusals.note(Refusal.REQUEST, "garbage")
    refusals.close()
    assert " 4 connections" in lines(caplog)[1]
    assert not loop.due
