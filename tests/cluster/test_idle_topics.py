"""Topics that nobody uses go by themselves, in both modes; those in use stay.

Method: two real brokers that look often. Nothing is timed here: another topic with the same limit,
which nobody uses, is the clock by which the used ones have outlived theirs. Each use is asked for
again and again, so one that is late on a busy machine is followed by the next.
"""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ottla.base.errors import Error
from ottla.metadata.topic_config import TTL
from ottla.wire.messages import find_coordinator as find_wire
from ottla.wire.messages import incremental_alter_configs as config_wire
from ottla.wire.messages import offset_commit as commit_wire

from .clients import eventually
from .conftest import NewCluster
from .deletion_requests import fetch
from .deletions import MODES, PATIENCE_SECONDS, Made, Site, site_of
from .ottla_command import ottla

pytestmark = [pytest.mark.cluster, pytest.mark.beside, pytest.mark.timeout(240)]

TTL_MS = 5_000
INTERVAL = {"ottla_topic_idle_check_interval_ms": "250"}
PAUSE_SECONDS = 0.1


@pytest.fixture(params=MODES, ids=["kraft", "zookeeper"])
def site(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Site]:
    with site_of(request.param, new_cluster, 2, **INTERVAL) as site:
        yield site


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
    leader = site.told(made.name).partitions[0].leader_id
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


def view(site: Site) -> dict[str, str]:
    """Return what the command says keeps each topic that has a limit."""
    server = site.cluster.bootstrap
    shown = ottla("topics", "--bootstrap-server", server, "--describe-idle", "--json")
    return {each["topic"]: each["reason"] for each in json.loads(shown.out)["topics"]}


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
            assert site.told(each.name).topic_id == each.id
        assert view(site) == dict.fromkeys(("produced", "fetched", "committed"), "too young")
    assert limit(site, "__consumer_offsets") is Error.INVALID_CONFIG
