"""A group's offsets go with their topic, though nobody could write that down at that moment.

Method: the offsets topic has one replica, so that while its broker is away there is no coordinator
at all; in that time the topic goes and its name is taken by another one.
"""

from collections.abc import Iterator

import pytest

from ottla.base.errors import Error
from ottla.wire.messages import find_coordinator as find_wire
from ottla.wire.messages import offset_commit as commit_wire
from ottla.wire.messages import offset_fetch as fetch_wire

from .clients import eventually
from .conftest import NewCluster
from .deletions import MODES, Made, Site, site_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240), pytest.mark.forms(1)]


@pytest.fixture(params=MODES, ids=["kraft", "zookeeper"])
def site(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Site]:
    with site_of(request.param, new_cluster, offsets_topic_replication_factor="1") as site:
        yield site


def coordinator(site: Site, group_id: str) -> int:
    request = find_wire.FindCoordinatorRequest(key=group_id)
    found = eventually(
        lambda: site.ask(request, find_wire.FindCoordinatorResponse, version=3),
        lambda found: found.error_code == Error.NONE,
        what="a coordinator",
    )
    return found.node_id


def group_at(site: Site, node: int) -> str:
    """Return a group that a broker coordinates."""
    return next(
        group_id
        for group_id in (f"group-{number}" for number in range(1_000))
        if coordinator(site, group_id) == node
    )


def commit(site: Site, node: int, group_id: str, offsets: dict[str, int]) -> None:
    request = commit_wire.OffsetCommitRequest(
        group_id=group_id,
        topics=tuple(
            commit_wire.OffsetCommitRequestTopic(
                name=name,
                partitions=(
                    commit_wire.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=""
                    ),
                ),
            )
            for name, offset in offsets.items()
        ),
    )
    eventually(
        lambda: [
            topic.partitions[0].error_code
            for topic in site.ask(
                request, commit_wire.OffsetCommitResponse, node=node, version=8
            ).topics
        ],
        lambda errors: set(errors) == {Error.NONE},
        what="the commit",
    )


def committed(site: Site, node: int, group_id: str) -> dict[str, int]:
    group = fetch_wire.OffsetFetchRequestGroup(group_id=group_id, topics=None)
    request = fetch_wire.OffsetFetchRequest(groups=(group,))
    found = eventually(
        lambda: site.ask(request, fetch_wire.OffsetFetchResponse, node=node, version=8).groups[0],
        lambda found: found.error_code == Error.NONE,
        what="the offsets",
    )
    return {topic.name: topic.partitions[0].committed_offset for topic in found.topics}


def taken_again(site: Site, old: Made, node: int) -> Made:
    assert site.delete(old.name) is Error.NONE
    site.wait_receipt(old)
    return site.create(old.name, (node,))


def test_offsets_of_a_former_topic_are_gone_when_their_coordinator_comes_back(site: Site) -> None:
    first, _, away = site.trio()
    old, kept = site.create("taken", (first,)), site.create("kept", (first,))
    group_id = group_at(site, away)
    commit(site, away, group_id, {"taken": 1, "kept": 1})
    site.kill(away)
    new = taken_again(site, old, first)
    site.start(away)
    assert committed(site, away, group_id) == {"kept": 1}
    commit(site, away, group_id, {new.name: 0})
    site.cluster.kill(away)
    site.start(away)
    assert committed(site, away, group_id) == {"taken": 0, kept.name: 1}
