"""Topics that nobody uses go by themselves, in both modes; those in use stay.

Method: two real brokers that look often. Nothing is timed here: another topic with the same limit,
which nobody uses, is the clock by which the used ones have outlived theirs. Each use is asked for
again and again, so one that is late on a busy machine is followed by the next.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.controller.idle import IdleReason
from ottla.metadata.topic_config import TTL
from ottla.wire.messages import describe_idle_topics as idle_wire
from ottla.wire.messages import find_coordinator as find_wire
from ottla.wire.messages import incremental_alter_configs as config_wire
from ottla.wire.messages import offset_commit as commit_wire

from .clients import eventually
from .conftest import NewCluster, revived
from .deletion_requests import fetch
from .deletions import MODES, PATIENCE_SECONDS, Made, Site, site_of
from .ottla_command import ottla

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

TTL_MS = 5_000
INTERVAL = {"ottla_topic_idle_check_interval_ms": "250"}
PAUSE_SECONDS = 0.1
HOUR_MS = 3_600_000
MUCH_MS = 2_000
"""More than a broker counts between its start and the first question about it."""


@pytest.fixture(scope="module", params=MODES, ids=["kraft", "zookeeper"])
def site_of_module(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Site]:
    with site_of(request.param, new_cluster, 2, **INTERVAL) as site:
        yield site


@pytest.fixture
def site(site_of_module: Site) -> Site:
    """Two brokers that serve."""
    revived(site_of_module.cluster)
    return site_of_module


def limit(site: Site, name: str, ttl_ms: int = TTL_MS) -> Error:
    """Give a topic a limit."""
    entry = config_wire.AlterableConfig(name=TTL, config_operation=0, value=str(ttl_ms))
    resource = config_wire.AlterConfigsResource(
        resource_type=2, resource_name=name, configs=(entry,)
    )
    request = config_wire.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    answer = site.ask(request, config_wire.IncrementalAlterConfigsResponse)
    return Error(answer.responses[0].error_code)


def commit(site: Site, made: Made) -> Error:
    """Commit an offset of a topic for a group that has no members."""
    asked = find_wire.FindCoordinatorRequest(key="readers")
    found = site.ask(asked, find_wire.FindCoordinatorResponse, version=3)
    if found.error_code:
        return Error(found.error_code)
    partition = commit_wire.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=None
    )
    topic = commit_wire.OffsetCommitRequestTopic(name=made.name, partitions=(partition,))
    request = commit_wire.OffsetCommitRequest(group_id="readers", topics=(topic,))
    answer = site.ask(request, commit_wire.OffsetCommitResponse, node=found.node_id, version=9)
    return Error(answer.topics[0].partitions[0].error_code)


def read(site: Site, made: Made) -> Error:
    """Fetch a record that is not there."""
    leader = site.described(made.name).partitions[0].leader_id
    return fetch(site, made, leader, 11)


@contextmanager
def again_and_again(*uses: Callable[[], Error]) -> Iterator[None]:
    """Use topics during the block; each use succeeds at first."""
    for use in uses:
        eventually(use, Error.NONE.__eq__, within=PATIENCE_SECONDS, what="the first use")
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(PAUSE_SECONDS):
            for use in uses:
                use()

    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(work)
        try:
            yield
        finally:
            stop.set()
        worker.result(PATIENCE_SECONDS)


def view(site: Site) -> dict[str, dict[str, Any]]:
    """Return what the command says of each topic that has a limit."""
    server = site.cluster.bootstrap
    shown = ottla("topics", "--bootstrap-server", server, "--describe-idle", "--json")
    assert shown.code == 0, shown.err
    return {each["topic"]: each for each in json.loads(shown.out)["topics"]}


def test_an_idle_topic_goes_and_those_in_use_stay(site: Site) -> None:
    produced, fetched, committed, unlimited = (
        site.create(name, (1, 2)) for name in ("produced", "fetched", "committed", "unlimited")
    )
    used = (produced, fetched, committed)
    with again_and_again(
        lambda: site.try_write(produced, 0),
        lambda: read(site, fetched),
        lambda: commit(site, committed),
    ):
        idle = site.create("idle", (2, 1), (1, 2))
        for each in (*used, idle):
            assert limit(site, each.name) is Error.NONE
        assert set(view(site)) == {"produced", "fetched", "committed", "idle"}
        receipt = site.wait_receipt(idle)
        assert receipt.name == "idle"
        for each in (*used, unlimited):
            assert site.described(each.name).topic_id == each.id
        assert {each["topic"]: each["reason"] for each in view(site).values()} == {
            each.name: "too young" for each in used
        }
        for each in used:
            assert limit(site, each.name, -1) is Error.NONE
    assert limit(site, "__consumer_offsets") is Error.INVALID_CONFIG


def test_a_clean_restart_keeps_what_was_counted_and_a_kill_does_not(site: Site) -> None:
    """A topic has been idle for the least that a witness says, and both must have said.

    What a killed one has seen nobody knows: it cannot have counted longer than it lives.
    """
    made = site.create("kept", (1, 2))
    # The offsets topic's brokers are witnesses, too: it is not to come later.
    eventually(lambda: commit(site, made), Error.NONE.__eq__, within=PATIENCE_SECONDS)
    assert limit(site, made.name, HOUR_MS) is Error.NONE
    before = counted(site, made, lambda idle_ms: idle_ms >= MUCH_MS)
    site.cluster.stop(2)
    site.wait_gone(2)
    site.start(2)
    assert counted(site, made) >= before
    site.kill(2)
    born = time.monotonic()
    site.start(2)
    assert counted(site, made) <= (time.monotonic() - born) * 1000


def counted(site: Site, made: Made, holds: Callable[[int], bool] = lambda _: True) -> int:
    """Return for how long a topic has been idle, once both brokers have said and that holds."""

    def ask() -> idle_wire.DescribedIdleTopic | None:
        request = idle_wire.DescribeIdleTopicsRequest(topics=(made.name,))
        # One that is no controller in KRaft passes the question on.
        found = site.ask(request, idle_wire.DescribeIdleTopicsResponse, node=2).topics
        return found[0] if found else None

    said = eventually(
        ask,
        lambda said: (
            said is not None
            and (said.reason, said.brokers) == (IdleReason.TOO_YOUNG, (1, 2))
            and holds(said.idle_ms)
        ),
        within=PATIENCE_SECONDS,
        what=f"{made.name} to be counted",
    )
    assert said is not None
    return said.idle_ms
