"""The metrics of a node in ZooKeeper mode: its session and, on the controller, the cluster.

Method: real controllers on a simulated ZooKeeper, fake brokers; the families are rendered and
parsed strictly.
"""

from dataclasses import dataclass

from ottla.base.errors import ApiError
from ottla.base.metrics import Histogram, latency_ns, render
from ottla.controller.step import Decision, Step
from ottla.host.zookeeper.controller_node import ZooKeeperController
from ottla.host.zookeeper.metric_families import IDLE, TAKING_OVER, ZooKeeperFamilies
from ottla.host.zookeeper.session_keeper import SessionKeeper
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ProducerIdsRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import encode_reassignment
from tests.exposition import Scrape, documented

from .controller_harness import ControllerHarness, Node

CONTROLLER = "kafka_controller_kafka_controller"
ELECTIONS = "kafka_controller_controller_stats_leader_elections_total"
UNCLEAN = "kafka_controller_controller_stats_unclean_leader_elections_total"
EVENTS = "kafka_controller_controller_event_manager"
CHANNELS = "kafka_controller_controller_channel_manager"
SESSION = "kafka_server_session_expire_listener"
LATENCY = "kafka_server_zookeeper_client_metrics_zookeeper_request_latency_seconds"

CLUSTER = (
    "active_controller",
    "active_broker",
    "global_topic",
    "global_partition",
)
TROUBLE = ("offline_partitions", "preferred_replica_imbalance")
DELETIONS = (
    "topics_to_delete",
    "replicas_to_delete",
    "topics_ineligible_to_delete",
    "replicas_ineligible_to_delete",
)


@dataclass
class Roles:
    """What `ZooKeeperMode` lets metrics look at."""

    keeper: SessionKeeper
    controller: ZooKeeperController | None
    request_latency: Histogram


class Watched:
    """A simulated cluster and what its nodes' metrics say."""

    def __init__(self, *broker_ids: int, **properties: str) -> None:
        self.sim = ControllerHarness(**properties)
        self.families: dict[Node, ZooKeeperFamilies] = {}
        if broker_ids:
            self.sim.start(*broker_ids)

    def scrape(self, broker_id: int) -> Scrape:
        node = self.sim.nodes[broker_id]
        if node not in self.families:
            roles = Roles(node.client.keeper, node.controller, latency_ns())
            self.families[node] = ZooKeeperFamilies(roles)
        return Scrape("".join(render(self.families[node].collect())))

    def counts(self, broker_id: int, names: tuple[str, ...]) -> tuple[float, ...]:
        found = self.scrape(broker_id)
        return tuple(found.value(f"{CONTROLLER}_{name}_count") for name in names)


def test_the_docs_list_all_metrics() -> None:
    found = set(Watched(1).scrape(1).families)
    listed = documented(besides="KRaft mode") - documented(besides="ZooKeeper mode")
    assert listed <= found
    assert found - listed == {
        *(f"{CONTROLLER}_{name}_count" for name in (*CLUSTER, *TROUBLE, *DELETIONS)),
        *(f"{CHANNELS}_{name}" for name in ("queue_size", "total_queue_size")),
        f"{CHANNELS}_request_queue_time_seconds",
        "ottla_controller_channel_retries_total",
        f"{CONTROLLER}_new_active_controllers_total",
        "ottla_controller_topics_disabling_count",
        "ottla_controller_topics_purge_pending_count",
        ELECTIONS,
        UNCLEAN,
    }


def test_session_metrics_exist_without_a_controller() -> None:
    keeper = Watched(1).sim.nodes[1].client.keeper
    families = ZooKeeperFamilies(Roles(keeper, None, latency_ns()))
    found = Scrape("".join(render(families.collect())))
    assert set(found.families) == {
        LATENCY,
        f"{SESSION}_session_state",
        *(
            f"{SESSION}_zookeeper_{name}_total"
            for name in ("disconnects", "sync_connects", "expires")
        ),
    }


# -- the cluster -------------------------------------------------------------------------------


def test_only_the_elected_controller_has_cluster_gauges() -> None:
    watched = Watched(1, 2, 3)
    watched.sim.create("t", (1, 2), (2, 3))
    watched.sim.create("u", (3,))
    assert watched.counts(1, CLUSTER) == (1, 3, 2, 3)
    assert watched.counts(2, CLUSTER) == watched.counts(3, CLUSTER) == (0, 0, 0, 0)
    watched.sim.nodes[1].kill()
    watched.sim.until(lambda: bool(watched.sim.active_controllers()))
    watched.sim.settle()
    active_controllers = watched.sim.controller.id
    assert watched.counts(active_controllers, CLUSTER) == (1, 2, 2, 3)
    assert watched.counts(5 - active_controllers, CLUSTER) == (0, 0, 0, 0)
    assert (
        watched.scrape(active_controllers).value(f"{CONTROLLER}_new_active_controllers_total") == 2
    )


def test_a_controller_that_stops_has_no_cluster_gauges() -> None:
    watched = Watched(1, 2)
    watched.sim.create("t", (1, 2))
    watched.sim.wait(watched.sim.nodes[1].controller.stop())
    assert watched.counts(1, CLUSTER) == (0, 0, 0, 0)
    found = watched.scrape(1)
    assert found.value(f"{CHANNELS}_total_queue_size") == 0
    assert found.labels(f"{CHANNELS}_queue_size") == set()


def test_offline_partitions_and_those_led_by_others() -> None:
    watched = Watched(1, 2, 3, auto_leader_rebalance_enable="false")
    sim = watched.sim
    sim.create("t", (2, 3), (3, 1))
    sim.create("u", (2,))
    assert watched.counts(1, TROUBLE) == (0, 0)
    assert watched.scrape(1).value(ELECTIONS) == 0, "first leaders are not elections"
    sim.nodes[2].kill()
    sim.until(lambda: sim.partition("t").leader == 3)
    sim.settle()
    assert watched.counts(1, TROUBLE) == (1, 2)
    assert watched.scrape(1).value(ELECTIONS) == 1
    sim.revive(2)
    sim.until(lambda: sim.partition("u").leader == 2)
    assert watched.counts(1, TROUBLE) == (0, 1)
    found = watched.scrape(1)
    assert (found.value(ELECTIONS), found.value(UNCLEAN)) == (2, 0)


def test_an_unclean_election_shows() -> None:
    watched = Watched(1, 2, 3, unclean_leader_election_enable="true")
    sim = watched.sim
    sim.create("t", (2, 3))
    sim.nodes[3].kill()
    sim.until(lambda: sim.partition("t").isr == (2,))
    sim.nodes[2].kill()
    sim.until(lambda: sim.partition("t").leader == -1)
    sim.revive(3)
    sim.until(lambda: sim.partition("t").leader == 3)
    assert watched.scrape(1).value(UNCLEAN) == 1


def test_a_partition_that_was_never_led_is_offline() -> None:
    watched = Watched(1)
    watched.sim.put_topic("t", ((7,),))
    watched.sim.until(lambda: watched.sim.has_topic("t"))
    assert watched.counts(1, (*CLUSTER, *TROUBLE)) == (1, 1, 1, 1, 1, 1)


def test_a_preferred_replica_that_is_being_added_is_not_missed() -> None:
    watched = Watched(1, 2, 3)
    sim = watched.sim
    sim.create("t", (2, 3))
    sim.put(paths.REASSIGN_PARTITIONS, encode_reassignment({("t", 0): (1, 2)}))
    sim.until(lambda: sim.partition("t").adding_replicas == (1,))
    assert sim.partition("t").replicas[0] == 1
    assert watched.counts(1, TROUBLE) == (0, 0)


# -- deletions ---------------------------------------------------------------------------------


def test_a_deletion_that_waits_for_a_dead_broker() -> None:
    watched = Watched(1, 2, 3)
    sim = watched.sim
    sim.create("t", (2, 3), (3, 1))
    sim.create("u", (1,))
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    assert watched.counts(1, DELETIONS) == (0, 0, 0, 0)
    sim.write_marker("t")
    sim.until(lambda: watched.counts(1, DELETIONS) == (1, 2, 1, 2))
    assert watched.counts(1, (*CLUSTER, *TROUBLE)) == (1, 2, 2, 3, 0, 0)
    assert watched.counts(2, DELETIONS) == (0, 0, 0, 0)
    sim.revive(3)
    sim.until(lambda: not sim.has_topic("t"))
    sim.settle()
    assert watched.counts(1, (*DELETIONS, *CLUSTER)) == (0, 0, 0, 0, 1, 3, 1, 1)


def test_the_next_controller_counts_the_same_deletions() -> None:
    watched = Watched(1, 2, 3)
    sim = watched.sim
    sim.create("t", (2, 3))
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    sim.write_marker("t")
    sim.until(lambda: watched.counts(1, DELETIONS) == (1, 1, 1, 1))
    sim.nodes[1].kill()
    sim.until(lambda: bool(sim.active_controllers()))
    sim.settle()
    assert watched.counts(2, DELETIONS) == (1, 1, 1, 1)


def test_kafka_13572_a_topic_that_is_queued_again_counts_once() -> None:
    watched = Watched(1, 2, 3, auto_leader_rebalance_enable="false")
    sim = watched.sim
    sim.create("t", (3, 2))
    sim.nodes[3].kill()
    sim.until(lambda: sim.partition("t").leader == 2)
    sim.settle()
    assert watched.counts(1, TROUBLE) == (0, 1)
    for _ in range(2):
        sim.write_marker("t")
        sim.settle()
        assert watched.counts(1, TROUBLE) == (0, 0)
        assert watched.counts(1, DELETIONS) == (1, 1, 1, 1)
        sim.delete(paths.marker("t"))
        sim.settle()


# -- the controller's work ---------------------------------------------------------------------


def test_taking_over_is_a_state_until_brokers_have_the_complete_state() -> None:
    watched = Watched()
    watched.sim.revive(1)
    node = watched.sim.nodes[1]
    seen: list[tuple[bool, float]] = []
    state, active = f"{CONTROLLER}_controller_state", f"{CONTROLLER}_active_controller_count"

    def look() -> bool:
        found = watched.scrape(1)
        now = (found.value(active) == 1, found.value(state))
        if not seen or seen[-1] != now:
            seen.append(now)
        return node.controller.is_active and now[1] == IDLE

    watched.sim.until(look)
    assert seen == [(False, IDLE), (True, TAKING_OVER), (True, IDLE)]


def test_decisions_that_wait_and_what_they_write() -> None:
    watched = Watched(1)
    sim = watched.sim
    before = watched.scrape(1)
    assert before.value(f"{EVENTS}_event_queue_size") == 0
    sim.model.cut("node 1")

    def one_more(image: ClusterImage) -> Decision[None]:
        first = image.producer_ids.next_producer_id
        record = ProducerIdsRecord(broker_id=1, next_producer_id=first + 1)
        return Decision(Step((record,)), None)

    answers = [sim.nodes[1].controller.run(one_more) for _ in range(3)]
    assert watched.scrape(1).value(f"{EVENTS}_event_queue_size") == 2
    sim.run(100)
    sim.model.heal("node 1")
    for answer in answers:
        assert not isinstance(sim.wait(answer), ApiError)
    found = watched.scrape(1)
    waited = f"{EVENTS}_event_queue_time_seconds"
    assert found.value(f"{waited}_count") - before.value(f"{waited}_count") == 3
    assert found.value(f"{waited}_sum") - before.value(f"{waited}_sum") >= 0.2
    written, took = (
        "ottla_controller_append_records_total",
        "ottla_controller_commit_latency_seconds",
    )
    assert found.value(written) - before.value(written) == 3
    assert found.value(f"{took}_count") - before.value(f"{took}_count") == 3
    assert found.value(f"{took}_sum") >= 0.1


def test_a_broker_that_does_not_answer_has_a_queue() -> None:
    watched = Watched(1, 2, 3)
    sim = watched.sim
    sim.net.cut.add(2)
    sim.create("t", (3, 1))
    sim.create("u", (3, 1))
    found = watched.scrape(1)
    size = found.value(f"{CHANNELS}_queue_size", broker_id="2")
    assert size > 0
    assert found.value(f"{CHANNELS}_total_queue_size") == size
    assert found.value("ottla_controller_channel_retries_total", broker_id="2") > 0
    sent = f"{CHANNELS}_request_queue_time_seconds_count"
    assert found.value(sent, broker_id="3") > found.value(sent, broker_id="2")
    sim.net.cut.clear()
    sim.until(lambda: watched.scrape(1).value(f"{CHANNELS}_total_queue_size") == 0)


# -- the session -------------------------------------------------------------------------------


def session(watched: Watched, broker_id: int) -> tuple[float, ...]:
    """Return connects, disconnects, expiries."""
    found = watched.scrape(broker_id)
    names = ("sync_connects", "disconnects", "expires")
    return tuple(found.value(f"{SESSION}_zookeeper_{name}_total") for name in names)


def state_of(watched: Watched, broker_id: int) -> str:
    (labels,) = watched.scrape(broker_id).labels(f"{SESSION}_session_state")
    return dict(labels)["state"]


def test_a_lost_connection_and_an_expired_session() -> None:
    watched = Watched(1, 2)
    sim = watched.sim
    assert (state_of(watched, 2), session(watched, 2)) == ("connected", (1, 0, 0))
    sim.model.break_connection("node 2")
    sim.until(lambda: state_of(watched, 2) == "suspended")
    assert session(watched, 2) == (1, 1, 0)
    sim.until(lambda: state_of(watched, 2) == "connected")
    assert session(watched, 2) == (2, 1, 0)
    sim.nodes[2].expire()
    sim.until(lambda: session(watched, 2)[2] == 1)
    sim.until(lambda: state_of(watched, 2) == "connected")
    assert session(watched, 2)[0] == 3
    assert session(watched, 1) == (1, 0, 0)
