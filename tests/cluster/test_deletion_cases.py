"""The seven cases by which KAFKA-330 shows that topics are deleted, in both modes.

Method: real brokers, one of which is away, or frozen, or the controller that dies. Over ZooKeeper
a topic that cannot go yet is halted, keeps its name and goes on by itself; in KRaft its name is
free at once, and what it would wait for stands in the ledger until that broker is back. In both
the receipt is compared with the disks: no directory of the topic's id, none of its bytes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import pytest

from ottla.base.errors import Error
from ottla.metadata.deletions import BROKER_DOWN, HaltReason
from ottla.metadata.znodes import paths

from .clients import Closing, Refused, client_of, eventually
from .conftest import Kind, NewCluster, kinds, known_to_all, revived
from .deletion_requests import (
    LONG_MS,
    commit_offset,
    configure,
    elect,
    fetch,
    grow,
    move,
    moves,
    offset_of,
    produce_and_wait,
    produce_by_id,
)
from .deletions import MODES, PATIENCE_SECONDS, Made, Site, ineligible, repeated, site_of

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.forms(1),
    pytest.mark.drawn(4),
]

T = TypeVar("T")


@pytest.fixture(scope="module", params=MODES, ids=["kraft", "zookeeper"])
def site_of_module(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Site]:
    with site_of(request.param, new_cluster) as site:
        yield site


@pytest.fixture
def site(site_of_module: Site) -> Site:
    """A cluster all of whose brokers serve."""
    revived(site_of_module.cluster)
    return site_of_module


# -- 1 to 3: who is alive ----------------------------------------------------------------------


def test_all_replicas_are_alive(site: Site) -> None:
    """Both: it goes at once, and the name is free for a topic that has nothing of it."""
    first, controller, last = site.trio()
    made = site.create("alive", *[(first, controller, last)] * 3)
    assert len(site.directories(made.id)) == 9
    assert site.delete("alive") is Error.NONE
    assert site.described("alive").error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    site.wait_receipt(made)
    again = site.create("alive", (last, first))
    assert again.id != made.id
    assert site.words("alive", 0, last) == [again.word]


def test_a_follower_is_away_and_restarts(site: Site) -> None:
    """ZooKeeper: halted for it, and resumed. KRaft: Ineligible for it until it is back."""
    first, controller, follower = site.trio()
    made = site.create("follower", *[(first, controller, follower)] * 3)
    site.kill(follower)
    assert site.delete("follower") is Error.NONE
    entry = site.wait_successful(made, 6)
    assert ineligible(entry) == [(follower, BROKER_DOWN, (0, 1, 2))]
    assert {site.broker_of(each) for each in site.directories(made.id)} == {follower}
    check_name(site, made)
    site.start(follower)
    site.wait_receipt(made)


def test_the_controller_fails_over_while_a_follower_is_away(site: Site) -> None:
    """Both: the next controller knows what was proven, and goes on when the follower is back.

    The dead one's replica was proven to be gone: nobody waits for it.
    """
    first, controller, follower = site.trio()
    made = site.create("failover", *[(first, controller, follower)] * 3)
    site.kill(follower)
    assert site.delete("failover") is Error.NONE
    before = site.wait_successful(made, 6)
    site.cluster.kill(controller)
    site.cluster.wait_controller(besides=controller)
    check_name(site, made)
    assert site.wait_successful(made, 6) == before
    site.cluster.start(follower)
    site.wait_receipt(made)
    site.start(controller)
    site.check_gone(made)


def check_name(site: Site, made: Made) -> None:
    """ZooKeeper: the name is taken until the end. KRaft: it is free."""
    first, *_ = site.trio()
    error, topic_id = site.try_create(made.name, (first,))
    if site.is_classic:
        assert error is Error.TOPIC_ALREADY_EXISTS
    else:
        assert error is Error.NONE
        assert site.delete(topic_id=topic_id) is Error.NONE


# -- 4: requests -------------------------------------------------------------------------------


def test_requests_during_the_deletion_get_the_documented_errors(site: Site) -> None:
    """Both, from every broker: by name UNKNOWN_TOPIC_OR_PARTITION, by id UNKNOWN_TOPIC_ID.

    Where ZooKeeper's controller refuses a change since the topic goes, that is INVALID_TOPIC.
    """
    first, controller, follower = site.trio()
    made = site.create("asked", *[(first, controller, follower)] * 2)
    group = committed(site, made)
    site.kill(follower)
    with ThreadPoolExecutor(1) as pool:
        parked = pool.submit(fetch, site, made, first, 12, 120_000)
        assert site.delete("asked") is Error.NONE
        # It had waited for two minutes of records that never come.
        assert parked.result(PATIENCE_SECONDS) in GONE
    site.wait_successful(made, 4)
    unknown, unknown_id = Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID
    for node in (first, controller):
        assert site.described("asked", node=node).error_code == unknown
        assert site.described(topic_id=made.id, node=node).error_code == unknown_id
        assert site.try_write(made, 0, node) is unknown
        assert produce_by_id(site, made, node) is unknown_id
        assert fetch(site, made, node, 12) is unknown
        assert fetch(site, made, node, 17) is unknown_id
        assert offset_of(site, made, node) is unknown
        assert commit_offset(site, made, node, 9) is unknown
        assert commit_offset(site, made, node, 10) is unknown_id
    refused = Error.INVALID_TOPIC_EXCEPTION if site.is_classic else unknown
    assert grow(site, "asked", 5) is refused
    assert elect(site, "asked")["asked"] is refused
    assert configure(site, "asked", 1) is unknown
    assert move(site, "asked", (first, controller)) is unknown
    with Closing(client_of("confluent").admin(site.cluster.address(first))) as admin:
        eventually(
            lambda: patiently(lambda: admin.group_offsets(group)),
            {}.__eq__,
            within=PATIENCE_SECONDS,
            what="the end of the offsets",
        )
    site.start(follower)
    site.wait_receipt(made)


@kinds(*MODES)
def test_what_waits_for_replicas_is_ended_by_the_deletion(
    kind: Kind, new_cluster: NewCluster
) -> None:
    """Both: a Produce that waits for a frozen follower is told what the next one would be.

    Here a broker that is silent stays in sync, so that nothing else ends the wait.
    """
    patient = dict.fromkeys(
        (
            "broker_session_timeout_ms",
            "zookeeper_session_timeout_ms",
            "replica_lag_time_max_ms",
        ),
        str(LONG_MS),
    )
    with site_of(kind, new_cluster, 3, **patient) as site:
        first, controller, follower = site.trio()
        made = site.create("waiting", (first, controller, follower))
        site.cluster.pause(follower)
        with ThreadPoolExecutor(2) as pool:
            by_name, by_id = (
                pool.submit(produce_and_wait, site, made, first, version) for version in (9, 13)
            )
            eventually(
                lambda: site.words("waiting", 0, first), [made.word, made.word, made.word].__eq__
            )
            assert [by_name.done(), by_id.done()] == [False, False]
            assert site.delete("waiting") is Error.NONE
            assert by_name.result(PATIENCE_SECONDS) is Error.UNKNOWN_TOPIC_OR_PARTITION
            assert by_id.result(PATIENCE_SECONDS) is Error.UNKNOWN_TOPIC_ID
        site.cluster.resume(follower)
        site.wait_receipt(made)


ON_ITS_WAY = {
    Error.COORDINATOR_LOAD_IN_PROGRESS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_COORDINATOR
}  # fmt: skip
GONE = {Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_LEADER_OR_FOLLOWER}


def committed(site: Site, made: Made) -> str:
    """Commit an offset of a topic for a group."""
    group = f"of-{made.name}"
    eventually(partial(known_to_all, site.cluster.bootstrap, made.name), what="all to know it")
    # kafka-python's: librdkafka does not end a request for which it finds no coordinator at once.
    with Closing(client_of("kafka_python").admin(site.cluster.bootstrap)) as admin:
        patiently(lambda: admin.set_group_offset(group, (made.name, 0), 1))
        assert patiently(lambda: admin.group_offsets(group)) == {(made.name, 0): 1}
    return group


def patiently(act: Callable[[], T]) -> T:
    """Ask again while the group's coordinator is on its way to another broker."""

    def attempt() -> list[T] | None:
        try:
            return [act()]
        except Refused as refusal:
            if refusal.code not in ON_ITS_WAY:
                raise
            return None

    found = eventually(attempt, within=PATIENCE_SECONDS, what="a coordinator")
    assert found is not None
    return found[0]


# -- 5: reassignments --------------------------------------------------------------------------


def test_a_reassignment_is_under_way(site: Site) -> None:
    """ZooKeeper: halted, and served, until it ends. KRaft: it ends with the topic.

    The replica that is being added goes like the others.
    """
    first, controller, target = site.trio()
    made = site.create("moved", (first, controller))
    site.cluster.pause(target)
    assert move(site, "moved", (first, controller, target)) is Error.NONE
    if site.is_classic:
        assert site.delete("moved", timeout_ms=0) is Error.REQUEST_TIMED_OUT
        entry = site.entry_with(
            made, lambda entry: entry.halted is HaltReason.REASSIGNMENT, "halted"
        )
        assert not entry.has_begun
        site.write(made, 0)
        assert moves(site) == {"moved"}
    else:
        assert site.delete("moved") is Error.NONE
        assert moves(site) == set()
        entry = site.wait_successful(made, 2)
        assert entry.status(target, 0) is not None
        assert not entry.is_finished
    site.cluster.resume(target)
    site.wait_receipt(made, 3)
    assert moves(site) == set()


# -- 6: elections ------------------------------------------------------------------------------


def test_a_preferred_election_is_asked_for_at_the_same_time(site: Site) -> None:
    """Both: it ends, the topic goes, and those that were asked for beside it are elected.

    That the ledger says "halted: preferred election" meanwhile, and that it goes on from there, is
    shown in tests/unit/host/zookeeper/test_halted_deletions.py: ZooKeeper's controller writes one
    decision after another, so an election is over before anybody could look at the ledger.
    """
    first, controller, last = site.trio()
    made = site.create("elected", *[(first, controller)] * 3)
    beside = site.create("beside", (controller, last))
    for name, leader in (("elected", controller), ("beside", last)):
        replicas = (leader, first if name == "elected" else controller)
        assert move(site, name, replicas) is Error.NONE
        eventually(lambda name=name: name in moves(site), False.__eq__, what="the new order")  # type: ignore[misc]
    with repeated(lambda: elect(site, "elected", "beside")) as found:
        assert site.delete("elected") is Error.NONE
        site.wait_receipt(made)
    answers = Counter(each["elected"] for each in found)
    refused = {Error.UNKNOWN_TOPIC_OR_PARTITION} | (
        {Error.INVALID_TOPIC_EXCEPTION} if site.is_classic else set()
    )
    assert set(answers) <= {Error.NONE, Error.ELECTION_NOT_NEEDED} | refused
    assert found[-1]["elected"] is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert {each["beside"] for each in found} <= {Error.NONE, Error.ELECTION_NOT_NEEDED}
    assert site.described("beside").partitions[0].leader_id == last
    assert site.words("beside", 0, last) == [beside.word]
    if site.is_classic:
        check_by_znodes(site)


def check_by_znodes(site: Site) -> None:
    """Ask for both in one write: whichever the controller hears of first, both end."""
    first, _, last = site.trio()
    made = site.create("by-znodes", (first, last))
    assert move(site, "by-znodes", (last, first)) is Error.NONE
    eventually(lambda: moves(site), set().__eq__, what="the new order")
    both = site.zookeeper.transaction()
    both.create(
        paths.PREFERRED_ELECTION,
        b'{"version":1,"partitions":[{"topic":"by-znodes","partition":0}]}',
    )
    both.create(paths.marker("by-znodes"), b"")
    assert not any(isinstance(each, Exception) for each in both.commit())
    site.wait_receipt(made)
    for path in (paths.PREFERRED_ELECTION, paths.marker("by-znodes"), paths.topic("by-znodes")):
        eventually(lambda path=path: not site.zookeeper.exists(path), what=path)  # type: ignore[misc]


# -- 7: configurations -------------------------------------------------------------------------


def test_its_configuration_is_changed_at_the_same_time(site: Site) -> None:
    """Both: changes count until the deletion is asked for, and are refused from then on.

    A topic of the same name that is made afterwards has none of them.
    """
    first, controller, last = site.trio()
    made = site.create("configured", *[(first, controller, last)] * 3)
    numbers = iter(range(100_000, 1_000_000))
    with repeated(lambda: configure(site, "configured", next(numbers))) as found:
        assert site.delete("configured") is Error.NONE
        site.wait_receipt(made)
    assert set(found) == {Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert sorted(found) == found, "a change counted after one was refused"
    if site.is_classic:
        assert site.zookeeper.exists("/config/topics/configured") is None
    site.create("configured", (first,))
    eventually(partial(known_to_all, site.cluster.bootstrap, "configured"), what="all to know it")
    with Closing(client_of("confluent").admin(site.cluster.bootstrap)) as admin:
        assert admin.topic_config("configured")["retention.ms"] == "604800000"
