"""A ZooKeeper controller has brokers acknowledge that tiered storage is disabled, in every term.

Method: controllers over a simulated ZooKeeper, brokers that know what they were sent; what is in
the znodes, what brokers received and in which order. Every death of the controller at one of its
writes is tried, by enumeration.
"""

import json
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.controller.disabling.acknowledgements import Reason
from ottla.controller.topics.configs import Alteration, alter_configs
from ottla.metadata.features import LEDGER
from ottla.metadata.znodes import paths
from ottla.testing.sim.zookeeper.zookeeper import Written
from ottla.wire.messages import disable_remote_topic as disable
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import update_metadata as update

from .controller_harness import ControllerHarness, Node
from .test_observed_tiering import ENABLE, TOPIC, alter, received, started, state_of

POLICY = "remote.log.disable.policy"
DISABLED = {
    "retain": ("DISABLED", 2, "retain", False),
    "delete": ("DISABLED", 2, "delete", True),
}
both_policies = pytest.mark.parametrize("policy", sorted(DISABLED))


def tiered(*assignment: tuple[int, ...]) -> ControllerHarness:
    sim = started()
    sim.create("t", *(assignment or ((2, 3),)))
    assert alter(sim, (ENABLE, 0, "true")).error is Error.NONE
    sim.settle()
    return sim


def turn_off(sim: ControllerHarness, policy: str) -> None:
    assert alter(sim, (POLICY, 0, policy), (ENABLE, 0, "false")).error is Error.NONE


def orders(node: Node) -> list[disable.DisableRemoteTopicRequest]:
    return [each for each in node.requests if isinstance(each, disable.DisableRemoteTopicRequest)]


@both_policies
def test_a_topic_is_disabled_once_all_brokers_have_acknowledged(policy: str) -> None:
    sim = tiered()
    turn_off(sim, policy)
    assert json.loads(sim.data(paths.config(TOPIC)) or b"")["config"] == {
        ENABLE: "false", POLICY: policy,
    }  # fmt: skip
    sim.until(lambda: state_of(sim) == DISABLED[policy])
    assert [len(orders(sim.nodes[each])) for each in (1, 2, 3)] == [0, 1, 1]


@both_policies
def test_the_state_reaches_every_broker_also_one_without_replicas(policy: str) -> None:
    sim = tiered()
    turn_off(sim, policy)
    sim.until(lambda: state_of(sim) == DISABLED[policy])
    sim.settle()
    for node in sim.nodes.values():
        states: list[Any] = received(node, update.UpdateMetadataRequest)[-2:]
        assert [(each.state, each.tiered_epoch) for each in states] == [(2, 2), (3, 2)]


def test_a_broker_that_starts_receives_the_state_before_it_may_lead() -> None:
    sim = tiered()
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    turn_off(sim, "delete")
    sim.until(lambda: state_of(sim) == DISABLED["delete"])
    sim.revive(3)
    sim.until(lambda: bool(received(sim.nodes[3], lai.LeaderAndIsrRequest)))
    states: list[Any] = received(sim.nodes[3], lai.LeaderAndIsrRequest)
    assert states[0].tiered_epoch == 2
    assert not orders(sim.nodes[3]), "it has the state: nothing is left to acknowledge"


@both_policies
def test_an_order_does_not_delay_leader_and_isr(policy: str) -> None:
    """It has a connection of its own: the answer may take a second, and many may be waiting."""
    sim = tiered((2, 3), (3, 2))
    sim.nodes[2].disabling_errors["t", 0] = Error.OPERATION_NOT_ATTEMPTED
    turn_off(sim, policy)
    sim.settle()
    controller = sim.controller.controller
    assert controller.disabling.channels is not controller.channels
    assert dict(controller.disabling.channels.queue_sizes()).keys() == {2, 3}
    sim.create("u", (2, 3))
    assert sim.nodes[2].led("u") is not None


@both_policies
def test_broker_dies_in_disabling(policy: str) -> None:
    sim = tiered()
    sim.nodes[3].disabling_errors["t", 0] = Error.OPERATION_NOT_ATTEMPTED
    turn_off(sim, policy)
    sim.settle()
    assert state_of(sim) == ("DISABLING", *DISABLED[policy][1:])
    sim.nodes[3].kill()
    sim.until(lambda: state_of(sim) == DISABLED[policy])


def test_a_partition_without_a_live_leader_is_waited_for_with_delete() -> None:
    sim = tiered((2, 3), (3,))
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    turn_off(sim, "delete")
    sim.run(10_000)
    assert state_of(sim) == ("DISABLING", 2, "delete", True)
    node = sim.controller
    [tiering] = sim.image.tiering.values()
    [row] = node.controller.context.acknowledgements.missing(sim.image, tiering)
    assert (row.partition, row.reason) == (1, Reason.NO_LEADER)
    sim.revive(3)
    sim.until(lambda: state_of(sim) == DISABLED["delete"])


def test_below_level_tiering_nothing_is_half_done() -> None:
    sim = tiered((1, 2))
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    sim.levels[3] = LEDGER
    sim.revive(3)
    sim.until(lambda: 3 in sim.image.brokers)
    sim.settle()
    before = sim.data(paths.config(TOPIC))
    refused = alter(sim, (POLICY, 0, "delete"), (ENABLE, 0, "false"))
    assert refused.error is Error.UNSUPPORTED_VERSION
    assert sim.data(paths.config(TOPIC)) == before
    assert state_of(sim) == ("ENABLED", 1, "none", False)
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    turn_off(sim, "delete")
    sim.until(lambda: state_of(sim) == DISABLED["delete"])


def test_a_deposed_controller_that_orders_is_rejected_by_its_epoch() -> None:
    sim = tiered()
    old = sim.controller
    sim.nodes[3].disabling_errors["t", 0] = Error.OPERATION_NOT_ATTEMPTED
    turn_off(sim, "delete")
    sim.settle()
    old.expire()
    sim.until(lambda: [each for each in sim.active_controllers() if each is not old] != [])
    sim.nodes[3].disabling_errors.clear()
    sim.until(lambda: state_of(sim) == DISABLED["delete"])
    epochs = {each.controller_epoch for each in orders(sim.nodes[3])}
    assert len(epochs) == 2, "the new one asked again"


@both_policies
def test_hole_38_state_and_configuration_are_written_in_one_multi(policy: str) -> None:
    """KIP-950 writes two znodes: a controller that dies in between would leave half of it."""
    sim = tiered()
    written: list[set[str]] = []
    sim.model.observe(lambda done: written.append({each.path for each in done.operations}))
    turn_off(sim, policy)
    sim.until(lambda: state_of(sim) == DISABLED[policy])
    assert alter(sim, (ENABLE, 0, "true")).error is Error.NONE
    state, epoch, config = paths.tiering_state("t"), paths.tiered_epoch("t"), paths.config(TOPIC)
    found = [each & {state, epoch, config} for each in written if state in each or config in each]
    assert found == [{state, epoch, config}, {state, epoch}, {state, epoch, config}]


# -- the controller dies at each of its writes -------------------------------------------------


def request(
    sim: ControllerHarness, expected: tuple[str, int], *changes: tuple[str, int, str | None]
) -> None:
    """Have a configuration written by whoever is the controller, until its state is stored."""
    for _ in range(50):
        found = state_of(sim)
        if found is not None and found[:2] == expected:
            return
        active = sim.active_controllers()
        if active:
            controller = active[0].controller
            answer = controller.run(
                lambda image, where=controller.context: alter_configs(
                    image,
                    [Alteration(TOPIC, changes)],
                    incremental=True,
                    validate_only=False,
                    context=where,
                )
            )
            for _ in range(40):
                if answer.done:
                    break
                sim.run(50)
        sim.run(500)
    raise AssertionError(f"{expected} does not come; stored: {state_of(sim)}")


def whole_story(sim: ControllerHarness) -> None:
    """Off with retain, delete after it, on again, off with delete, on again."""
    request(sim, ("DISABLED", 2), (POLICY, 0, "retain"), (ENABLE, 0, "false"))
    request(sim, ("DISABLED", 3), (POLICY, 0, "delete"))
    request(sim, ("ENABLED", 4), (ENABLE, 0, "true"))
    request(sim, ("DISABLED", 5), (ENABLE, 0, "false"))
    request(sim, ("ENABLED", 6), (ENABLE, 0, "true"))


class Deaths:
    """Kills the controller at one of its acts: the number of a write, or of an order received."""

    def __init__(self, sim: ControllerHarness, kind: str, number: int) -> None:
        self.sim = sim
        self.count = 0
        self.has_killed = False
        self._kind = kind
        self._number = number
        sim.model.observe(self._written)
        for node in sim.nodes.values():
            self._watch(node)

    def _watch(self, node: Node) -> None:
        receive = node.receive

        def watched(request: Any) -> Any:
            response = receive(request)
            if isinstance(request, disable.DisableRemoteTopicRequest):
                self._act("order")
            return response

        node.receive = watched  # type: ignore[method-assign]

    def _written(self, written: Written) -> None:
        """Note a transaction that writes the tiering state: it is done, and not answered yet."""
        if any(each.path == paths.tiering_state("t") for each in written.operations):
            self._act("write")

    def _act(self, kind: str) -> None:
        if kind != self._kind:
            return
        self.count += 1
        if self.count == self._number:
            self.has_killed = True
            victim = self.sim.controller
            victim.kill()
            again = 25_000 * 1_000
            self.sim.scheduler.after(again, lambda: self._revive(victim.id))

    def _revive(self, broker_id: int) -> None:
        self.sim.revive(broker_id)
        self._watch(self.sim.nodes[broker_id])


WRITES = 8
"""Of `whole_story`: two each to turn it off or to delete, one each to turn it on."""
ORDERS = 6


def test_the_story_has_so_many_acts_without_deaths() -> None:
    """Else the enumeration below leaves some out."""
    counts = []
    for kind in ("write", "order"):
        sim = tiered()
        deaths = Deaths(sim, kind, 0)
        whole_story(sim)
        counts.append(deaths.count)
    assert counts == [WRITES, ORDERS]


@pytest.mark.drawn(8, of="every step")
@pytest.mark.parametrize(
    ("kind", "number"),
    [("write", each + 1) for each in range(WRITES)]
    + [("order", each + 1) for each in range(ORDERS)],
)
def test_the_controller_may_die_at_each_of_its_acts(kind: str, number: int) -> None:
    sim = tiered()
    deaths = Deaths(sim, kind, number)
    whole_story(sim)
    assert deaths.has_killed
    sim.until(lambda: len(sim.image.brokers) == 3 if sim.active_controllers() else False)
    sim.settle()
    assert state_of(sim) == ("ENABLED", 6, "none", True)
    assert sim.controller.controller.image.tiering == sim.image.tiering
    config = json.loads(sim.data(paths.config(TOPIC)) or b"")["config"]
    assert config == {ENABLE: "true", POLICY: "delete"}
    assert not sim.leader_epochs.sent_too_early
