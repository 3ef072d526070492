"""The tables of `ottla consumer-groups`, column by column as kafka-consumer-groups.sh has them."""

from dataclasses import replace

from ottla.cli.groups.group_client import Group, Listing, Member
from ottla.cli.groups.group_text import (
    deletion_lines,
    listing_lines,
    member_lines,
    offset_lines,
    reset_lines,
    state_lines,
)

COORDINATOR = (1, "127.0.0.1", 9092)


def member(name: str, *partitions: tuple[str, int], instance: str | None = None) -> Member:
    return Member(
        consumer_id=f"{name}-id",
        instance_id=instance,
        host="/127.0.0.1",
        client_id=name,
        partitions=partitions,
    )


def group(*members: Member, state: str = "Stable") -> Group:
    return Group(name="g", state=state, assignor="range", members=members, coordinator=COORDINATOR)


def test_offsets_of_members_come_first_then_unassigned_ones() -> None:
    lines = offset_lines(
        group(member("few", ("t", 2)), member("many", ("t", 0), ("t", 1))),
        committed={("t", 0): 5, ("t", 2): 7, ("u", 0): 1},
        ends={("t", 0): 8, ("t", 1): 3, ("t", 2): 7},
    )
    expected = """
GROUP           TOPIC           PARTITION  CURRENT-OFFSET  LOG-END-OFFSET  LAG             CONSUMER-ID     HOST            CLIENT-ID
g               t               0          5               8               3               many-id         /127.0.0.1      many
g               t               1          -               3               -               many-id         /127.0.0.1      many
g               t               2          7               7               0               few-id          /127.0.0.1      few
g               u               0          1               -               -               -               -               -"""  # noqa: E501
    assert "\n".join(lines) == expected


def test_columns_widen_with_their_contents() -> None:
    long = "a-topic-with-a-long-name"
    _, heading, row = offset_lines(group(), {(long, 0): 1}, {(long, 0): 1})
    assert heading.index("PARTITION") == row.index(" 0 ") + 1 == 16 + len(long) + 1


def test_a_group_without_offsets_prints_nothing() -> None:
    assert offset_lines(group(), {}, {}) == []


def test_members() -> None:
    lines = member_lines(
        group(member("a", ("t", 0), ("t", 1), ("u", 3)), member("b")), verbose=True
    )
    expected = """
GROUP           CONSUMER-ID     HOST            CLIENT-ID       #PARTITIONS     ASSIGNMENT
g               a-id            /127.0.0.1      a               3               t(0,1), u(3)
g               b-id            /127.0.0.1      b               0               -"""
    assert "\n".join(lines) == expected
    plain = member_lines(group(member("a", ("t", 0))), verbose=False)
    assert plain[2].split() == ["g", "a-id", "/127.0.0.1", "a", "1"]
    assert member_lines(group(), verbose=True) == []


def test_static_members_show_their_instance() -> None:
    lines = member_lines(group(member("a", instance="i-1"), member("b")), verbose=False)
    assert lines[1].split() == [
        "GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS",
    ]  # fmt: skip
    assert lines[2].split() == ["g", "a-id", "i-1", "/127.0.0.1", "a", "0"]
    assert lines[3].split() == ["g", "b-id", "/127.0.0.1", "b", "0"]


def test_states() -> None:
    expected = """
GROUP           COORDINATOR (ID)          ASSIGNMENT-STRATEGY  STATE                #MEMBERS
g               127.0.0.1:9092  (1)       range                Stable               1"""
    assert "\n".join(state_lines(group(member("a")))) == expected


def test_a_group_without_members_has_no_strategy() -> None:
    line = state_lines(replace(group(), assignor="", state="Empty"))[2]
    assert line.split() == ["g", "127.0.0.1:9092", "(1)", "-", "Empty", "0"]


def test_listings() -> None:
    found = [Listing("a", "classic", "Empty"), Listing("b", "consumer", "Stable")]
    assert listing_lines(found, types=False, states=False) == ["a", "b"]
    lines = listing_lines(found, types=True, states=True)
    assert [line.split() for line in lines] == [
        ["GROUP", "TYPE", "STATE"],
        ["a", "Classic", "Empty"],
        ["b", "Consumer", "Stable"],
    ]
    assert lines[0].index("TYPE") == 26
    assert [line.split() for line in listing_lines(found, types=False, states=True)][1] == [
        "a",
        "Empty",
    ]


def test_plans_and_deletions() -> None:
    assert [line.split() for line in reset_lines({"g": {("t", 1): 5, ("t", 0): 4}})] == [
        [],
        ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"],
        ["g", "t", "0", "4"],
        ["g", "t", "1", "5"],
    ]
    assert reset_lines({}) == [""]
    lines = deletion_lines({("t", 0): 0, ("t", 1): 86})
    assert lines[2].split() == ["t", "0", "Successful"]
    assert lines[3].split()[:3] == ["t", "1", "Error:"]
    assert lines[3].endswith("(GROUP_SUBSCRIBED_TO_TOPIC)")
