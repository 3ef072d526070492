"""What happens to thousands of partitions at once is one line in the log, and at DEBUG all."""

import logging

import pytest

from ottla.broker.summary import Summary, listed

logger = logging.getLogger(__name__)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "t-0"),
        (3, "t-0, t-1, t-2"),
        (4, "4 partitions, such as t-0, t-1, t-2"),
        (3_000, "3000 partitions, such as t-0, t-1, t-2"),
    ],
)
def test_a_few_are_named_and_more_are_counted(count: int, said: str) -> None:
    assert listed([f"t-{index}" for index in range(count)]) == said


def test_each_headline_is_logged_once_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    summary = Summary(logger)
    for index in range(5):
        summary.add(logging.INFO, "moved", f"t-{index}")
    summary.add(logging.ERROR, "lost", "u-0")
    summary.log()
    summary.log()
    said = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert said[:5] == [("DEBUG", f"moved: t-{index}") for index in range(5)]
    assert said[5:] == [
        ("DEBUG", "lost: u-0"),
        ("INFO", "moved: 5 partitions, such as t-0, t-1, t-2"),
        ("ERROR", "lost: u-0"),
    ]
