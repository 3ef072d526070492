"""Over ZooKeeper a group is looked for once it is known how many partitions keep groups.

Method: a broker hears of the partitions that it leads first, by LeaderAndIsr, and then by
UpdateMetadata of all, as it does where the topic is made; clients ask in between.
"""

import pytest

from ottla.base.errors import Error
from ottla.base.ids import OFFSETS_TOPIC, Uuid
from ottla.broker.group_service import GroupService, positive_hash
from ottla.wire.messages import find_coordinator as find
from ottla.wire.messages import offset_fetch

from .api.told_world import ToldWorld, known, told

OFFSETS_ID = Uuid(b"the offsets' own")
COUNT = 4
LED = (0, 2)
"""What broker 1 leads; broker 2 leads the rest."""


def asked(made: ToldWorld, group: str) -> tuple[int, int]:
    """Ask for the coordinator of a group; return the error and the broker."""
    answer = made.ask(find.FindCoordinatorRequest(key=group), 3)
    return answer.error_code, answer.node_id


def offsets_asked(made: ToldWorld, group: str) -> int:
    """Ask this broker for a group's offsets; return the error."""
    request = offset_fetch.OffsetFetchRequest(group_id=group, topics=())
    return int(made.ask(request, 7).error_code)


@pytest.mark.parametrize("number", range(COUNT))
def test_no_group_is_looked_for_among_the_partitions_that_are_hosted_here(number: int) -> None:
    names = map(str, range(1_000))
    group = next(name for name in names if positive_hash(name) % COUNT == number)
    made = ToldWorld()
    made.broker.groups = GroupService(made.broker)
    made.learn_metadata()
    made.lead(*map(told, LED), topic=OFFSETS_TOPIC, topic_id=OFFSETS_ID)
    assert asked(made, group) == (Error.COORDINATOR_NOT_AVAILABLE, -1)
    assert offsets_asked(made, group) == Error.COORDINATOR_NOT_AVAILABLE
    states = [known(each, leader=1 if each in LED else 2) for each in range(COUNT)]
    made.learn_metadata(*states, topic=OFFSETS_TOPIC, topic_id=OFFSETS_ID)
    assert asked(made, group) == (Error.NONE, 1 if number in LED else 2)
    here = offsets_asked(made, group)
    assert here == (Error.NONE if number in LED else Error.NOT_COORDINATOR)
