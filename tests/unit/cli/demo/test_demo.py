"""What the demo prints as true was compared, and a difference ends it."""

import io

import pytest
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from ottla.cli.demo.queries import delay_chart, totals_table
from ottla.cli.demo.records import commit
from ottla.cli.demo.steps import DemoError, check


def console() -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=80), text


def test_a_check_that_holds_is_printed() -> None:
    out, text = console()
    check(out, "records", 336_776, 336_776)
    check(out, "ends", {0: 1, 1: 2}, {1: 2, 0: 1})
    assert "records: 336,776" in text.getvalue()
    assert "the same in all 2 partitions" in text.getvalue()


def test_a_difference_is_named_and_not_printed_as_true() -> None:
    out, text = console()
    with pytest.raises(DemoError, match="records: found 1, expected 2"):
        check(out, "records", 1, 2)
    assert text.getvalue() == ""


def test_the_table_fits_into_80_columns_and_adds_up() -> None:
    out, text = console()
    out.print(totals_table({("UA", month): 5000 for month in range(1, 13)} | {("OO", 1): 1}))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text.getvalue()
    assert any(line.split()[0] == "UA" and line.split()[-1] == "60000" for line in lines[1:])
    assert any(line.split() == ["OO", "1", "1"] for line in lines)


def test_the_chart_has_the_mean_of_each_hour_in_their_order() -> None:
    chart = delay_chart({17: (30, 4), 5: (-6, 3)})
    assert (chart.labels, chart.values) == (["5", "17"], [-2.0, 7.5])


class Refusing:
    """A consumer whose commits fail."""

    def __init__(self, code: int) -> None:
        self.code = code

    def commit(self, *, asynchronous: bool) -> None:
        assert not asynchronous
        raise KafkaException(KafkaError(self.code))


def test_a_member_may_have_committed_everything_already() -> None:
    commit(Refusing(KafkaError._NO_OFFSET))
    with pytest.raises(KafkaException, match="NOT_COORDINATOR"):
        commit(Refusing(KafkaError.NOT_COORDINATOR))
