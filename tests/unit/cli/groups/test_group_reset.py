"""Planning new offsets: durations, times, topics, CSV, and staying within the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.errors import CommandError, UsageError
from ottla.cli.groups.group_reset import (
    clamp,
    format_plan,
    parse_datetime_ms,
    parse_duration_ms,
    parse_plan,
    parse_topics,
)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT20.345S", 20_345),
        ("PT15M", 900_000),
        ("P2D", 172_800_000),
        ("P2DT3H4M", 183_840_000),
        ("PT-6H3M", -21_420_000),
        ("-PT6H", -21_600_000),
        ("pt1s", 1_000),
        ("PT0S", 0),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "1D", "P1Y", "P1W", "PT1", "soon", f"P{'9' * 18}D", f"PT{'9' * 400}S"],
)
def test_invalid_durations(text: str) -> None:
    with pytest.raises(UsageError, match="--by-duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:01.500", 1_500),
        ("1970-01-01T00:00:01.500Z", 1_500),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("2024-02-29T12:00:00", 1_709_208_000_000),
    ],
)
def test_times_are_utc_unless_they_say_otherwise(text: str, milliseconds: int) -> None:
    assert parse_datetime_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "2024-02-29", "yesterday", "2024-02-30T00:00:00.000"])
def test_invalid_times(text: str) -> None:
    with pytest.raises(UsageError, match="--to-datetime"):
        parse_datetime_ms(text)


def test_topics_and_partitions() -> None:
    assert parse_topics(["a", "b:0,2", "c:1"]) == ({("b", 0), ("b", 2), ("c", 1)}, {"a"})
    for wrong in ("b:", ":0", "b:x", "b:-1"):
        with pytest.raises(UsageError, match="expected TOPIC or TOPIC:0,1,2"):
            parse_topics([wrong])


def test_plans_in_csv() -> None:
    assert parse_plan("t,0,5\nt,1,6\n", "g") == {"g": {("t", 0): 5, ("t", 1): 6}}
    assert parse_plan("g,t,0,5\n\nh,t,0,6\n", None) == {"g": {("t", 0): 5}, "h": {("t", 0): 6}}
    assert parse_plan("h,t,0,6\n", "g") == {"h": {("t", 0): 6}}
    with pytest.raises(CommandError, match=r"line 1: 't,0,5': expected group,topic,"):
        parse_plan("t,0,5\n", None)
    with pytest.raises(CommandError, match=r"line 2: 't,0,-5': expected topic,partition,offset"):
        parse_plan("t,0,5\nt,0,-5\n", "g")


names = st.text(st.sampled_from("abc,\"'._-"), min_size=1, max_size=8)
plans = st.dictionaries(
    names,
    st.dictionaries(st.tuples(names, st.integers(0, 99)), st.integers(0, 2**62), min_size=1),
    min_size=1,
)


@given(plans)
def test_an_exported_plan_reads_back(planned: dict[str, dict[tuple[str, int], int]]) -> None:
    assert parse_plan(format_plan(planned, one_group=False), None) == planned


def test_a_plan_of_one_group_leaves_its_name_out() -> None:
    planned = {"g": {("t", 0): 5}}
    assert format_plan(planned, one_group=True) == "t,0,5\n"
    assert parse_plan("t,0,5\n", "g") == planned


def test_offsets_stay_within_the_log() -> None:
    wanted = {("t", 0): 5, ("t", 1): 99, ("t", 2): -3}
    starts, ends = dict.fromkeys(wanted, 2), dict.fromkeys(wanted, 10)
    plan, warnings = clamp(wanted, starts, ends)
    assert plan == {("t", 0): 5, ("t", 1): 10, ("t", 2): 2}
    assert warnings == [
        "New offset (99) is higher than the latest offset for topic partition t-1. "
        "Value will be set to 10",
        "New offset (-3) is lower than the earliest offset for topic partition t-2. "
        "Value will be set to 2",
    ]
