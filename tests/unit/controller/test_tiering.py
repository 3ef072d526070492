"""Goal: remote.storage.enable=true and the tiering state come in one step, and stay.

Method: each path that writes a topic's configuration, with and without validation alone, in both
modes; the cluster's level from features and from registrations.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.controller.configs import Alteration, AlteredResource, alter_configs
from ottla.controller.context import DecisionContext
from ottla.controller.mode_policy import KRAFT_MODE, ZOOKEEPER_MODE, ModePolicy
from ottla.controller.step import Decision
from ottla.controller.topics import CreatedTopic, NewTopic, create_topics
from ottla.metadata.brokers import FeatureRange
from ottla.metadata.features import LEDGER, OTTLA_VERSION, TIERING
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import FeatureLevelRecord, TopicTieringRecord
from ottla.metadata.tiering import DisablePolicy, TieringState, TopicTiering

from .builders import THREE, advance, after, context

ENABLE = "remote.storage.enable"
TIERED = {"remote.log.storage.system.enable": "true", "ottla.remote.storage.uri": "file:///r"}
SET, DELETE = 0, 1
TOPIC = 2


def finalized(level: int) -> ClusterImage:
    return advance(THREE, [FeatureLevelRecord(name=OTTLA_VERSION, feature_level=level)])


def registered(level: int) -> ClusterImage:
    """Return the image of brokers of which one supports that level, the others a later one."""
    brokers = THREE.brokers
    for broker_id, broker in THREE.brokers.items():
        highest = level if broker_id == 2 else TIERING + 1
        ranges = (FeatureRange(OTTLA_VERSION, 1, highest),) if highest else ()
        brokers = brokers.set(broker_id, replace(broker, features=ranges))
    return replace(THREE, brokers=brokers)


MODES = [(KRAFT_MODE, finalized), (ZOOKEEPER_MODE, registered)]
both_modes = pytest.mark.parametrize(("mode", "at_level"), MODES, ids=["kraft", "zookeeper"])
AtLevel = Callable[[int], ClusterImage]


def of(mode: ModePolicy, properties: dict[str, str] | None = None) -> DecisionContext:
    return replace(context(TIERED if properties is None else properties), mode=mode)


def create(
    image: ClusterImage, mode: ModePolicy, value: str = "true", *, name: str = "t", **how: bool
) -> Decision[tuple[CreatedTopic, ...]]:
    wanted = [NewTopic(name=name, configs=((ENABLE, value),))]
    return create_topics(
        image, wanted, validate_only=how.get("validate_only", False), context=of(mode)
    )


def alter(
    image: ClusterImage,
    mode: ModePolicy,
    *changes: tuple[str, int, str | None],
    incremental: bool = True,
    validate_only: bool = False,
    properties: dict[str, str] | None = None,
) -> Decision[tuple[AlteredResource, ...]]:
    return alter_configs(
        image,
        [Alteration((TOPIC, "t"), changes)],
        incremental=incremental,
        validate_only=validate_only,
        context=of(mode, properties),
    )


@both_modes
@pytest.mark.parametrize("value", ["true", " TRUE "])
def test_a_topic_is_created_with_its_state(mode: ModePolicy, at_level: AtLevel, value: str) -> None:
    image = at_level(TIERING)
    decided = create(image, mode, value)
    [result] = decided.reply
    assert (result.error, result.message) == (Error.NONE, None)
    names = [type(each).__name__ for each in decided.step.records]
    assert names == ["TopicRecord", "ConfigRecord", "TopicTieringRecord", "PartitionRecord"]
    assert decided.step.atomic
    made = after(image, decided)
    expected = TopicTiering(
        topic_id=result.topic_id,
        state=TieringState.ENABLED,
        tiered_epoch=1,
        policy=DisablePolicy.NONE,
        remote_floor_epoch=0,
        purge_pending=False,
    )
    assert dict(made.tiering) == {result.topic_id: expected}
    assert made.has_remote_log("t")


@both_modes
def test_without_remote_storage_there_is_no_state(mode: ModePolicy, at_level: AtLevel) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode, "false"))
    assert not image.tiering
    assert not image.has_remote_log("t")
    assert not image.has_remote_log("unknown")


@both_modes
@pytest.mark.parametrize("incremental", [True, False])
def test_an_alteration_enables_a_topic_once(
    mode: ModePolicy, at_level: AtLevel, incremental: bool
) -> None:
    image = at_level(TIERING)
    image = after(image, create(image, mode, "false"))
    decided = alter(image, mode, (ENABLE, SET, "true"), incremental=incremental)
    assert [each.error for each in decided.reply] == [Error.NONE]
    assert [type(each).__name__ for each in decided.step.records] == [
        "ConfigRecord",
        "TopicTieringRecord",
    ]
    assert decided.step.atomic
    image = after(image, decided)
    assert [each.tiered_epoch for each in image.tiering.values()] == [1]
    again = alter(image, mode, (ENABLE, SET, "true"), ("retention.ms", SET, "9"))
    assert not any(isinstance(each, TopicTieringRecord) for each in again.step.records)


@both_modes
def test_what_is_only_validated_is_not_done(mode: ModePolicy, at_level: AtLevel) -> None:
    image = at_level(TIERING)
    assert create(image, mode, validate_only=True).step.records == ()
    image = after(image, create(image, mode, "false"))
    assert alter(image, mode, (ENABLE, SET, "true"), validate_only=True).step.records == ()
    enabled = after(image, alter(image, mode, (ENABLE, SET, "true")))
    [result] = alter(enabled, mode, (ENABLE, SET, "false"), validate_only=True).reply
    assert result.error is Error.INVALID_CONFIG


@both_modes
@pytest.mark.parametrize(
    ("incremental", "changes"),
    [
        (True, [(ENABLE, SET, "false")]),
        (True, [(ENABLE, DELETE, None)]),
        (False, [(ENABLE, SET, "false")]),
        (False, [("retention.ms", SET, "9")]),
        (False, []),
    ],
)
def test_an_enabled_topic_stays_so(
    mode: ModePolicy,
    at_level: AtLevel,
    incremental: bool,
    changes: list[tuple[str, int, str | None]],
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    decided = alter(image, mode, *changes, incremental=incremental)
    [result] = decided.reply
    assert result.error is Error.INVALID_CONFIG
    assert result.message is not None
    assert "must stay true: turning remote storage off is not supported yet" in result.message
    assert decided.step.records == ()


@both_modes
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
        ("remote.log.disable.policy", "retain"),
        ("cleanup.policy", "compact"),
        ("local.retention.ms", "-1"),
    ],
)
def test_what_an_enabled_topic_does_not_take(
    mode: ModePolicy, at_level: AtLevel, name: str, value: str
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    [result] = alter(image, mode, (name, SET, value)).reply
    assert result.error is Error.INVALID_CONFIG
    assert result.message is not None
    assert name in result.message


@both_modes
@pytest.mark.parametrize("level", [0, LEDGER])
def test_below_its_level_there_is_no_remote_storage(
    mode: ModePolicy, at_level: AtLevel, level: int
) -> None:
    image = at_level(level)
    [created] = create(image, mode).reply
    assert created.error is Error.UNSUPPORTED_VERSION
    assert created.message == (
        f"remote.storage.enable=true needs the feature ottla.version at level 2, and the cluster"
        f" has level {level}."
    )
    image = after(image, create(image, mode, "false"))
    [altered] = alter(image, mode, (ENABLE, SET, "true")).reply
    assert altered.error is Error.UNSUPPORTED_VERSION


@both_modes
def test_a_controller_without_remote_storage_refuses_it(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode, "false"))
    [result] = alter(image, mode, (ENABLE, SET, "true"), properties={}).reply
    assert (result.error, result.message) == (
        Error.INVALID_CONFIG,
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with"
        " remote log storage.",
    )


@both_modes
@pytest.mark.parametrize("name", ["__consumer_offsets", "__remote_log_metadata"])
def test_internal_topics_have_no_remote_storage(
    mode: ModePolicy, at_level: AtLevel, name: str
) -> None:
    [result] = create(at_level(TIERING), mode, name=name).reply
    assert result.error is Error.INVALID_CONFIG
    assert result.message is not None
    assert f"the internal topic {name} cannot have remote storage" in result.message


def test_a_configuration_without_its_state_gets_it_with_the_next_alteration() -> None:
    """As after a tool wrote the configuration's znode."""
    image = after(finalized(TIERING), create(finalized(TIERING), KRAFT_MODE))
    image = replace(image, tiering=image.tiering.delete(next(iter(image.tiering))))
    image = after(image, alter(image, KRAFT_MODE, ("retention.ms", SET, "9")))
    assert [each.state for each in image.tiering.values()] == [TieringState.ENABLED]
