"""Counters become Prometheus' text.

Method: what is rendered is read back by the strict reader of the tests, and a few lines are
compared as they are, so that reader and writer cannot be wrong together.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.base.metrics import Family, Histogram, Kind, counter, gauge, histogram, render
from tests.exposition import Scrape


def text_of(*families: Family) -> str:
    return "".join(render(families))


def test_the_text_is_what_prometheus_documents() -> None:
    times = Histogram((100, 2_500), 1_000)
    for value in (100, 101, 2_600):
        times.observe(value)
    assert text_of(
        counter("a_total", "Counts\nlines \\.", [((("topic", 'x"\\\n'),), 3)]),
        gauge("b", "A number.", 0.5),
        histogram("c_seconds", "Times.", times),
    ) == (
        "# HELP a_total Counts\\nlines \\\\.\n"
        "# TYPE a_total counter\n"
        'a_total{topic="x\\"\\\\\\n"} 3\n'
        "# HELP b A number.\n"
        "# TYPE b gauge\n"
        "b 0.5\n"
        "# HELP c_seconds Times.\n"
        "# TYPE c_seconds histogram\n"
        'c_seconds_bucket{le="0.1"} 1\n'
        'c_seconds_bucket{le="2.5"} 2\n'
        'c_seconds_bucket{le="+Inf"} 3\n'
        "c_seconds_sum 2.801\n"
        "c_seconds_count 3\n"
    )


@given(st.lists(st.integers(0, 50)))
def test_a_histogram_counts_each_value_where_it_belongs(values: list[int]) -> None:
    times = Histogram((10, 20, 40), 1)
    for value in values:
        times.observe(value)
    assert times.count == len(values)
    scrape = Scrape(text_of(histogram("h", "Values.", times)))
    for bound in (10, 20, 40):
        assert scrape.families["h"].samples["h_bucket", frozenset({("le", str(bound))})] == sum(
            value <= bound for value in values
        )
    assert scrape.value("h_sum") == sum(values)
    assert scrape.value("h_count") == len(values)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")))
def test_any_label_value_survives(value: str) -> None:
    lines = text_of(gauge("g", "Any.", [((("name", value),), 1)]))
    assert Scrape(lines).value("g", name=value) == 1


@pytest.mark.parametrize(("name", "kind"), [("a", Kind.COUNTER), ("a_total", Kind.GAUGE)])
def test_only_counters_are_called_total(name: str, kind: Kind) -> None:
    with pytest.raises(AssertionError):
        Family(name, kind, "A family.", ())
