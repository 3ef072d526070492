"""What a tool writes into `/config/topics` enables remote storage as a request does, or not at all.

Method: controllers over a simulated ZooKeeper, and a tool that writes znodes; what is stored, what
the brokers received and in which order, and what is logged.
"""

import json
from collections.abc import Mapping

import pytest

from ottla.base.errors import Error
from ottla.controller.mode_policy import ZOOKEEPER_MODE
from ottla.controller.topics.configs import Alteration, AlteredResource, alter_configs
from ottla.metadata.features import LEDGER
from ottla.metadata.tiering import TieringState
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import encode_reassignment
from ottla.metadata.znodes.config import encode_config
from ottla.metadata.znodes.notifications import encode_config_change
from ottla.wire.messages import leader_and_isr as lai
from ottla.wire.messages import update_metadata as update

from .controller_harness import ControllerHarness, Node

ENABLE = "remote.storage.enable"
TOPIC = (2, "t")
SYSTEM = {
    "remote_log_storage_system_enable": "true",
    "ottla_remote_storage_uri": "file:///remote",
}


def started(properties: Mapping[str, str] = SYSTEM) -> ControllerHarness:
    sim = ControllerHarness(**properties)
    sim.start(1, 2, 3)
    return sim


def configure(sim: ControllerHarness, values: Mapping[str, str], notify: bool = True) -> None:
    """Write a topic's configuration as Kafka's old tools do."""
    sim.put(paths.config(TOPIC), encode_config(values))
    if notify:
        name = f"{paths.CONFIG_CHANGE}{len(sim.names(paths.CONFIG_CHANGES)):010d}"
        sim.put(name, encode_config_change(TOPIC))
    sim.settle()


def stored(sim: ControllerHarness) -> tuple[object, bytes | None] | None:
    """Return what both znodes of the tiering state hold."""
    state = sim.data(paths.tiering_state("t"))
    if state is None:
        assert sim.data(paths.tiering("t")) is None
        return None
    return json.loads(state), sim.data(paths.tiered_epoch("t"))


ENABLED = (
    {
        "version": 1,
        "state": "ENABLED",
        "tiered_epoch": 1,
        "policy": "none",
        "remote_floor_epoch": 0,
        "purge_pending": False,
    },
    b"1",
)


def received(node: Node, kind: type) -> list[object]:
    """Return the tiering state of the topic in each request of a kind that names it."""
    return [
        states.tiering
        for request in node.requests
        if isinstance(request, kind)
        for states in request.topic_states
        if states.topic_name == "t"
    ]


def alter(sim: ControllerHarness, *changes: tuple[str, int, str | None]) -> AlteredResource:
    node = sim.controller
    [result] = sim.run_on(
        node,
        lambda image: alter_configs(
            image,
            [Alteration(TOPIC, changes)],
            incremental=True,
            validate_only=False,
            context=node.controller.context,
        ),
    )
    return result  # type: ignore[no-any-return]


def test_a_configuration_enables_a_topic_and_all_brokers_receive_the_state() -> None:
    sim = started()
    sim.create("t", (2, 3))
    for node in sim.nodes.values():
        node.requests.clear()
    configure(sim, {ENABLE: " TRUE ", "local.retention.bytes": "1"})
    assert stored(sim) == ENABLED
    assert [each.state for each in sim.image.tiering.values()] == [TieringState.ENABLED]
    for node in sim.nodes.values():
        [state] = received(node, update.UpdateMetadataRequest)
        assert state is not None


def test_brokers_have_the_state_before_they_lead() -> None:
    """Kafka's tools write the configuration first, then the topic, without a notification."""
    sim = started()
    configure(sim, {ENABLE: "true"}, notify=False)
    sim.create("t", (2, 3))
    assert stored(sim) == ENABLED
    for node in (sim.nodes[2], sim.nodes[3]):
        states = received(node, lai.LeaderAndIsrRequest)
        assert states
        assert None not in states


def test_a_new_controller_reads_what_was_written_without_one() -> None:
    sim = started()
    sim.create("t", (2, 3))
    for node in sim.nodes.values():
        node.kill()
    sim.run(60_000)
    configure(sim, {ENABLE: "true"})
    assert stored(sim) is None
    sim.start(1, 2, 3)
    sim.until(lambda: stored(sim) == ENABLED)
    sim.settle()
    assert received(sim.nodes[1], update.UpdateMetadataRequest)[-1] is not None


def test_a_state_is_kept_by_the_next_controller() -> None:
    sim = started()
    sim.create("t", (2, 3))
    assert alter(sim, (ENABLE, 0, "true")).error is Error.NONE
    assert stored(sim) == ENABLED
    sim.controller.kill()
    sim.until(lambda: bool(sim.active_controllers()))
    sim.settle()
    assert [each.tiered_epoch for each in sim.image.tiering.values()] == [1]
    assert stored(sim) == ENABLED
    assert sim.version(paths.tiering_state("t")) == 0


@pytest.mark.parametrize(
    ("values", "properties", "reason"),
    [
        ({ENABLE: "maybe"}, SYSTEM, "Invalid value"),
        ({ENABLE: "true", "cleanup.policy": "compact"}, SYSTEM, "cannot be compacted"),
        ({ENABLE: "true", "local.retention.ms": "-1"}, SYSTEM, "local.retention.ms must not be -1"),
        ({ENABLE: "true", "remote.log.copy.disable": "x"}, SYSTEM, "remote.log.copy.disable"),
        ({ENABLE: "true"}, {}, "Tiered Storage functionality is disabled in the broker"),
    ],
)
def test_what_a_request_is_refused_for_has_no_effect_and_is_logged_once(
    values: dict[str, str],
    properties: dict[str, str],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sim = started(properties)
    sim.create("t", (2, 3))
    configure(sim, values)
    configure(sim, values | {"min.insync.replicas": "2"})
    assert stored(sim) is None
    assert not sim.image.tiering
    found = [text for text in logged(caplog) if reason in text]
    assert len(found) == 1
    assert found[0].startswith("ignoring remote storage in a configuration: /config/topics/t: ")
    if properties:
        configure(sim, {ENABLE: "true"})
        assert stored(sim) == ENABLED


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records]


def state_of(sim: ControllerHarness) -> tuple[str, int, str, bool] | None:
    """Return the state, epoch, policy and pending purge that are stored."""
    data = sim.data(paths.tiering_state("t"))
    if data is None:
        return None
    fields = json.loads(data)
    assert sim.data(paths.tiered_epoch("t")) == str(fields["tiered_epoch"]).encode()
    return fields["state"], fields["tiered_epoch"], fields["policy"], fields["purge_pending"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, ("DISABLED", 2, "retain", False)),
        ({ENABLE: "false"}, ("DISABLED", 2, "retain", False)),
        ({ENABLE: "true", "remote.log.copy.disable": "true"}, ("DISABLED", 2, "retain", False)),
        ({"remote.log.disable.policy": "delete"}, ("DISABLED", 2, "delete", True)),
        (
            {ENABLE: "false", "remote.log.delete.on.disable": "true"},
            ("DISABLED", 2, "delete", True),
        ),
    ],
)
def test_a_tool_turns_it_off_and_on_again(
    values: dict[str, str], expected: tuple[str, int, str, bool]
) -> None:
    sim = started()
    sim.create("t", (2, 3))
    configure(sim, {ENABLE: "true"})
    configure(sim, values)
    sim.until(lambda: state_of(sim) == expected)
    configure(sim, {ENABLE: "true"})
    assert state_of(sim) == ("ENABLED", 3, "none", expected[3])


def test_what_a_tool_writes_while_it_is_disabling_takes_effect_afterwards(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sim = started()
    sim.create("t", (2, 3))
    configure(sim, {ENABLE: "true"})
    sim.nodes[3].disabling_errors["t", 0] = Error.OPERATION_NOT_ATTEMPTED
    configure(sim, {ENABLE: "false"})
    assert state_of(sim) == ("DISABLING", 2, "retain", False)
    configure(sim, {ENABLE: "true"})
    assert state_of(sim) == ("DISABLING", 2, "retain", False)
    assert any("is being disabled" in each for each in logged(caplog))
    # A request that does not touch it is not refused for what the tool wrote.
    assert alter(sim, ("retention.ms", 0, "1000000")).error is Error.NONE
    sim.nodes[3].disabling_errors.clear()
    sim.until(lambda: state_of(sim) == ("ENABLED", 3, "none", False))


@pytest.mark.parametrize(
    "values",
    [
        {ENABLE: "true", "cleanup.policy": "compact"},
        {ENABLE: "false", "cleanup.policy": "compact"},
        {ENABLE: "false", "remote.log.disable.policy": "archive"},
        {
            ENABLE: "false",
            "remote.log.disable.policy": "retain",
            "remote.log.delete.on.disable": "true",
        },
    ],
)
def test_a_topic_stays_as_it_is_where_a_request_would_be_refused(
    values: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    sim = started()
    sim.create("t", (2, 3))
    configure(sim, {ENABLE: "true"})
    configure(sim, values)
    assert stored(sim) == ENABLED
    assert [each.state for each in sim.image.tiering.values()] == [TieringState.ENABLED]
    assert any("the topic's remote storage stays as it is" in each for each in logged(caplog))


def test_an_older_broker_delays_it_until_it_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    sim = ControllerHarness(**SYSTEM)
    sim.levels[3] = LEDGER
    sim.start(1, 2, 3)
    assert ZOOKEEPER_MODE.ottla_level(sim.image) == LEDGER
    sim.create("t", (1, 2))
    refused = alter(sim, (ENABLE, 0, "true"))
    assert refused.error is Error.UNSUPPORTED_VERSION
    assert sim.data(paths.config(TOPIC)) is None
    assert stored(sim) is None
    configure(sim, {ENABLE: "true"})
    assert stored(sim) is None
    assert any("needs the feature ottla.version at level 2" in each for each in logged(caplog))
    sim.nodes[3].kill()
    sim.until(lambda: stored(sim) == ENABLED)


def test_an_older_broker_that_comes_later_is_logged_and_configurations_can_be_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sim = started()
    sim.create("t", (2, 3))
    text = "broker 3 does not support remote storage, and 1 topics have it"
    configure(sim, {ENABLE: "true"})
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    sim.levels[3] = LEDGER
    sim.revive(3)
    sim.until(lambda: 3 in sim.image.brokers)
    sim.settle()
    assert len([each for each in logged(caplog) if text in each]) == 1
    assert alter(sim, ("retention.ms", 0, "1000000")).error is Error.NONE
    assert stored(sim) == ENABLED
    sim.controller.kill()
    sim.until(lambda: bool(sim.active_controllers()))
    sim.settle()
    assert len([each for each in logged(caplog) if text in each]) == 2
    sim.create("other", (2, 3))
    assert "ignoring remote storage" not in " ".join(logged(caplog))


def test_a_topic_that_waits_for_its_deletion_is_left_alone() -> None:
    sim = started()
    sim.create("t", (2, 3))
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    sim.write_marker("t")
    sim.settle()
    assert sim.image.is_queued_for_deletion("t")
    configure(sim, {ENABLE: "true"})
    assert stored(sim) is None
    sim.revive(3)
    sim.until(lambda: sim.data(paths.topic("t")) is None)


def test_a_cancelled_deletion_lets_it_take_effect() -> None:
    sim = started()
    sim.create("t", (1, 2))
    sim.nodes[3].kill()
    sim.until(lambda: 3 not in sim.image.brokers)
    move = encode_reassignment({("t", 0): (1, 3)})
    sim.put(paths.REASSIGN_PARTITIONS, move)  # It waits for broker 3, and the deletion for it.
    sim.settle()
    sim.write_marker("t")
    sim.settle()
    assert sim.image.is_queued_for_deletion("t")
    configure(sim, {ENABLE: "true"})
    assert stored(sim) is None
    sim.delete(paths.marker("t"))
    sim.until(lambda: stored(sim) == ENABLED)


def test_a_deleted_topic_leaves_no_state() -> None:
    sim = started()
    sim.create("t", (2, 3))
    configure(sim, {ENABLE: "true"})
    assert stored(sim) == ENABLED
    sim.write_marker("t")
    sim.until(lambda: sim.data(paths.topic("t")) is None)
    sim.settle()
    assert stored(sim) is None
    assert not sim.image.tiering
    sim.create("t", (1, 2))
    assert stored(sim) is None
