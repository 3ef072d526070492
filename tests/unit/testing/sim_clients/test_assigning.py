"""Members decode each other's data, and the range assignor gives each partition to one of them.

Method: round trips, and assignments of a few members counted out.
"""

import pytest

from ottla.coordinator.subscription import subscribed_topics
from ottla.testing.sim_clients.assigning import (
    assign_ranges,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)


def test_the_coordinator_reads_a_subscription() -> None:
    assert subscribed_topics(encode_subscription(("a", "b"))) == {"a", "b"}


@pytest.mark.parametrize("owned", [(), (("t", 0),), (("s", 2), ("t", 0), ("t", 3))])
def test_an_assignment_comes_back_as_it_was(owned: tuple[tuple[str, int], ...]) -> None:
    assert decode_assignment(encode_assignment(owned)) == owned


def test_a_member_that_was_not_named_has_nothing() -> None:
    assert decode_assignment(b"") == ()


def test_ranges_are_of_each_topic_and_the_first_members_have_one_more() -> None:
    assert assign_ranges(["b", "a"], {"t": [0, 1, 2], "s": [0]}) == {
        "a": (("s", 0), ("t", 0), ("t", 1)),
        "b": (("t", 2),),
    }


@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_each_partition_has_one_owner(members: int) -> None:
    assigned = assign_ranges(map(str, range(members)), {"t": range(4)})
    owned = [partition for each in assigned.values() for partition in each]
    assert sorted(owned) == [("t", number) for number in range(4)]
    assert len(assigned) == members
