"""What could bring a deleted topic back, keep it for ever, or take one that lives: nothing does.

Method: as `test_deletion_cases.py`, on a cluster of its own. Names are taken again while a broker
is away, topics grow while they go, orders come late, a log directory breaks, a broker is given up.
What a test expects of ZooKeeper clusters and of KRaft's is said where they differ.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.metadata.deletions import DeletionImage, DeletionState, Reason, ReplicaStatus
from ottla.metadata.znodes import paths
from ottla.testing import cluster_facts
from ottla.wire.messages import delete_replicas as order_wire
from ottla.wire.messages import delete_topics as delete_wire
from ottla.wire.messages import find_coordinator as coordinator_wire
from ottla.wire.messages import stop_replica as stop_wire
from ottla.wire.messages import unregister_broker as unregister_wire

from .clients import eventually
from .conftest import Kind, NewCluster, kinds, revived
from .deletion_requests import elect, grow
from .deletions import MODES, Made, Site, at_once, ineligible, site_of
from .ottla_command import ottla

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.forms(1),
    pytest.mark.drawn(4),
]


@pytest.fixture(scope="module", params=MODES, ids=["kraft", "zookeeper"])
def site_of_module(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Site]:
    with site_of(request.param, new_cluster) as site:
        yield site


@pytest.fixture
def site(site_of_module: Site) -> Site:
    """A cluster all of whose brokers serve."""
    revived(site_of_module.cluster)
    return site_of_module


# -- names that are taken again ----------------------------------------------------------------


def test_a_topic_is_made_anew_while_a_replica_is_away(site: Site) -> None:
    """KRaft: at once, with other partitions. ZooKeeper: once the last replica is gone.

    Not one byte of the old topic is served or kept by the broker that was away, which leads the
    new one in the end.
    """
    first, second, away = site.trio()
    old = site.create("again", *[(first, second, away)] * 3)
    site.kill(away)
    assert site.delete("again") is Error.NONE
    site.wait_successful(old, 6)
    places = [(away, first, second)] * 5
    if site.is_classic:
        error, _ = site.try_create("again", *places)
        assert error is Error.TOPIC_ALREADY_EXISTS
        site.start(away)
        site.wait_receipt(old)
        new = site.create("again", *places)
    else:
        new = site.create("again", *places)
        site.start(away)
        site.wait_receipt(old)
    site.cluster.wait_in_sync("again")
    assert elect(site, "again")["again"] in (Error.NONE, Error.ELECTION_NOT_NEEDED)
    eventually(
        lambda: site.described("again").partitions[0].leader_id, away.__eq__, what="a leader"
    )
    site.write(new, 0)
    for number in range(5):
        for node in (first, second, away):
            found = site.words("again", number, node)
            assert found == [new.word] * (2 if number == 0 else 1), (number, node)
    assert site.keepers(old.word) == []
    assert len(site.directories(new.id)) == 15


def test_an_order_to_delete_comes_after_the_name_is_taken_again(site: Site) -> None:
    """KRaft: it names the old id, which is nobody's.

    ZooKeeper: as well, or it is refused for its epoch.
    """
    first, controller, last = site.trio()
    old = site.create("late", (first, last))
    assert site.delete("late") is Error.NONE
    site.wait_receipt(old)
    new = site.create("late", (first, last))
    directories = site.directories(new.id)
    assert len(directories) == 2
    for node in (first, last):
        if site.is_classic:
            check_late_stop(site, old, controller, node)
        else:
            check_late_order(site, old, new, node)
    site.write(new, 0)
    assert site.directories(new.id) == directories
    for node in (first, last):
        eventually(partial(site.words, "late", 0, node), [new.word, new.word].__eq__, what="both")


def check_late_stop(site: Site, old: Made, controller: int, node: int) -> None:
    """Send StopReplica as it was sent for the topic that was there before."""
    epoch = int(site.zookeeper.get(paths.CONTROLLER_EPOCH)[0])

    def stop(topic_id: Uuid = NO_UUID, leader_epoch: int = -2, **more: int) -> Error:
        state = stop_wire.StopReplicaPartitionState(
            partition_index=0, leader_epoch=leader_epoch, delete_partition=True
        )
        topic = stop_wire.StopReplicaTopicState(
            topic_name="late", partition_states=(state,), topic_id=topic_id
        )
        request = stop_wire.StopReplicaRequest(
            controller_id=controller,
            controller_epoch=more.get("controller_epoch", epoch),
            broker_epoch=more.get("broker_epoch", -1),
            topic_states=(topic,),
        )
        answer = site.ask(request, stop_wire.StopReplicaResponse, node=node, version=4)
        listed = [each.error_code for each in answer.partition_errors]
        return Error(answer.error_code or listed[0])

    assert stop() is Error.FENCED_LEADER_EPOCH  # As a controller sends it that tells no ids.
    assert stop(old.id) is Error.NONE
    assert stop(old.id, leader_epoch=9) is Error.NONE  # As where a reassignment had ended.
    assert stop(controller_epoch=epoch - 1) is Error.STALE_CONTROLLER_EPOCH
    assert stop(broker_epoch=1) is Error.STALE_BROKER_EPOCH


def check_late_order(site: Site, old: Made, new: Made, node: int) -> None:
    """Send DeleteReplicas as it was sent for the topic that was there before."""
    found = cluster_facts.quorum(site.cluster.nodes)
    assert found is not None
    epoch, controller = found.leader_epoch, found.leader_id

    def order(topic_id: Uuid, **more: int) -> Error:
        topic = order_wire.DeleteReplicasTopic(topic_id=topic_id, partitions=(0,))
        request = order_wire.DeleteReplicasRequest(
            controller_id=controller,
            controller_epoch=more.get("controller_epoch", epoch),
            broker_epoch=more.get("broker_epoch", -1),
            topics=(topic,),
        )
        answer = site.ask(request, order_wire.DeleteReplicasResponse, node=node, version=0)
        listed = [each.partitions[0].error_code for each in answer.topics]
        return Error(answer.error_code or listed[0])

    assert order(old.id) is Error.NONE
    assert order(new.id) is Error.OPERATION_NOT_ATTEMPTED
    assert order(old.id, controller_epoch=epoch - 1) is Error.STALE_CONTROLLER_EPOCH
    assert order(old.id, broker_epoch=0) is Error.STALE_BROKER_EPOCH


# -- deletions that meet others' wishes --------------------------------------------------------


def test_a_topic_grows_while_it_is_deleted(site: Site) -> None:
    """Both: what was added before it goes with it, and nothing is added after (KAFKA-6612)."""
    first, controller, last = site.trio()
    for _ in range(3):
        made = site.create("grown", *[(first, controller, last)] * 2)
        grown, deleted = at_once(partial(grow, site, "grown", 5), partial(site.delete, "grown"))
        assert deleted is Error.NONE
        replicas = made.replica_count + (9 if grown is Error.NONE else 0)
        assert grown in (
            Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION, Error.INVALID_TOPIC_EXCEPTION
        )  # fmt: skip
        site.wait_receipt(made, replicas)


def test_a_topic_is_deleted_twice(site: Site) -> None:
    """KRaft: the second one finds no topic. ZooKeeper: it waits for the same end.

    Asked for twice in one request, both refuse it and keep the topic.
    """
    first, controller, last = site.trio()
    made = site.create("twice", *[(first, controller, last)] * 3)
    assert in_one_request(site, ("twice", NO_UUID), ("twice", NO_UUID)) == [Error.INVALID_REQUEST]
    assert set(in_one_request(site, ("twice", NO_UUID), (None, made.id))) == {Error.INVALID_REQUEST}
    site.write(made, 0)
    answers = at_once(*[partial(site.delete, "twice")] * 2)
    receipt = site.wait_receipt(made)
    allowed = {Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert Error.NONE in answers
    assert set(answers) <= allowed
    if not site.is_classic:
        assert sorted(answers) == sorted(allowed)
    assert site.delete("twice") is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert site.delete(topic_id=made.id) is Error.UNKNOWN_TOPIC_ID
    assert site.entry(made) == receipt


def in_one_request(site: Site, *named: tuple[str | None, Uuid]) -> list[Error]:
    topics = tuple(delete_wire.DeleteTopicState(name=name, topic_id=id) for name, id in named)
    request = delete_wire.DeleteTopicsRequest(topics=topics, timeout_ms=30_000)
    answer = site.ask(request, delete_wire.DeleteTopicsResponse)
    return [Error(each.error_code) for each in answer.responses]


def test_internal_topics_are_refused_on_every_path(site: Site) -> None:
    """By name, by id and by the command; by znodes in test_acting_through_znodes.py."""
    request = coordinator_wire.FindCoordinatorRequest(key="anybody")
    eventually(
        lambda: site.ask(request, coordinator_wire.FindCoordinatorResponse, version=3).error_code,
        Error.NONE.__eq__,
        what="a coordinator",
    )
    offsets = site.described("__consumer_offsets")
    assert site.delete("__consumer_offsets") is Error.INVALID_REQUEST
    assert site.delete(topic_id=offsets.topic_id) is Error.INVALID_REQUEST
    assert site.delete("__cluster_metadata") is Error.INVALID_REQUEST
    ran = ottla(
        "topics", "--bootstrap-server", site.cluster.bootstrap,
        "--delete", "--topic", "__consumer_offsets",
    )  # fmt: skip
    assert (ran.code, "INVALID_REQUEST" in ran.err) == (1, True), ran
    assert site.described("__consumer_offsets").topic_id == offsets.topic_id


# -- brokers that cannot, and that never will --------------------------------------------------


def test_a_log_directory_fails_half_way(site: Site) -> None:
    """Both: what lay there is not called gone until the directory is back and was searched."""
    first, _, holder = site.trio()
    broken = give_second_directory(site, holder)
    made = site.create("half", *[(first, holder)] * 16)
    there = {int(each.name.rpartition("-")[2]) for each in site.directories(made.id)
             if each.is_relative_to(broken)}  # fmt: skip
    assert 0 < len(there) < 16
    aside = broken.with_name("aside")
    broken.rename(aside)
    broken.write_text("This is no directory.")
    assert site.delete("half", timeout_ms=0 if site.is_classic else 30_000) in (
        Error.NONE, Error.REQUEST_TIMED_OUT
    )  # fmt: skip

    def is_stuck(entry: DeletionImage) -> bool:
        rows = ineligible(entry)
        failed = {number for node, _, numbers in rows for number in numbers if node == holder}
        return failed >= there and entry.count(DeletionState.STARTED) == 0

    entry = site.entry_with(made, is_stuck, "the directory's failure")
    assert {row[1].reason for row in ineligible(entry)} == {Reason.FOLDER_FAILED}
    assert not entry.is_finished
    site.cluster.kill(holder)
    broken.unlink()
    aside.rename(broken)
    site.start(holder)
    site.wait_receipt(made)


def give_second_directory(site: Site, node: int) -> Path:
    """Let a broker keep its partitions in two directories from now on; return the second."""
    site.cluster.stop(node)
    [directory] = site.log_dirs(node)
    second = directory.with_name("second")
    second.mkdir()
    properties = directory.parent / "node.properties"
    text = properties.read_text()
    assert f"log.dirs={directory}\n" in text
    properties.write_text(
        text.replace(f"log.dirs={directory}\n", f"log.dirs={directory},{second}\n")
    )
    if not site.is_classic:
        text = (directory / "meta.properties").read_text()
        [cluster_id] = [
            line.partition("=")[2] for line in text.splitlines() if line.startswith("cluster.id=")
        ]
        ran = ottla(
            "storage", "format", "--ignore-formatted",
            "--cluster-id", cluster_id, "--config", str(properties),
        )  # fmt: skip
        assert ran.code == 0, ran.err
    site.start(node)
    assert site.log_dirs(node) == [directory, second]
    return second


def test_a_broker_is_given_up_for_good(site: Site) -> None:
    """KRaft: its rows are abandoned, and the receipt says so. ZooKeeper knows no giving up: a
    broker of that id with empty log directories confirms for it.

    In both, what was given up comes back while the receipt is kept: it is deleted, not set aside.
    """
    first, controller, lost = site.trio()
    made = site.create("given-up", *[(first, controller, lost)] * 2)
    site.kill(lost)
    assert site.delete("given-up") is Error.NONE
    site.wait_successful(made, 4)
    held = site.directories(made.id)
    assert [site.broker_of(each) for each in held] == [lost, lost]
    receipt = (replaced if site.is_classic else unregistered)(site, made, lost)
    assert site.directories(made.id) == held
    site.start(lost)
    site.check_gone(made)
    assert not any(each.exists() for each in held)
    assert site.strays(lost) == []
    assert site.entry(made) == receipt
    assert site.described("given-up").error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def unregistered(site: Site, made: Made, lost: int) -> DeletionImage:
    """Take a broker out of the cluster, as one that will never return; return the receipt."""
    request = unregister_wire.UnregisterBrokerRequest(broker_id=lost)
    answer = site.ask(request, unregister_wire.UnregisterBrokerResponse)
    assert answer.error_code == Error.NONE
    receipt = site.entry_with(made, lambda entry: entry.is_finished, "a receipt")
    abandoned = ReplicaStatus(DeletionState.ABANDONED, Reason.UNREGISTERED)
    assert [row for row in receipt.rows() if row[1] == abandoned] == [(lost, abandoned, (0, 1))]
    assert receipt.count(DeletionState.SUCCESSFUL) == 4
    return receipt


def replaced(site: Site, made: Made, lost: int) -> DeletionImage:
    """Let another machine have its id until there is a receipt; then give it its disks back."""
    assert not site.serves(unregister_wire.UnregisterBrokerRequest(broker_id=lost))
    directories = site.log_dirs(lost)
    for each in directories:
        each.rename(each.with_name(f"{each.name}-before"))
        each.mkdir()
    site.start(lost)
    receipt = site.wait_receipt(made)
    site.kill(lost)
    for each in directories:
        each.rename(each.with_name(f"{each.name}-after"))
        each.with_name(f"{each.name}-before").rename(each)
    return receipt


# -- switched off ------------------------------------------------------------------------------


@kinds(Kind.COMBINED, Kind.ZOOKEEPER)
def test_deletions_are_switched_off(kind: Kind, new_cluster: NewCluster) -> None:
    """Both: refused by name and by id, and old clients get an error that they know."""
    off = {"delete_topic_enable": "false"}
    with site_of(kind, new_cluster, 1, **off) as site:
        made = site.create("kept", (1,))
        assert site.delete("kept") is Error.TOPIC_DELETION_DISABLED
        assert site.delete(topic_id=made.id) is Error.TOPIC_DELETION_DISABLED
        request = delete_wire.DeleteTopicsRequest(topic_names=("kept",), timeout_ms=30_000)
        answer = site.ask(request, delete_wire.DeleteTopicsResponse, version=2)
        assert answer.responses[0].error_code == Error.INVALID_REQUEST
        site.write(made, 0)
        assert site.words("kept", 0, 1) == [made.word] * 2
        assert site.entry(made) is None
