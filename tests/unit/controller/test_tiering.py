"""Goal: remote storage is turned on, off and on again in one step with the configuration.

Method: each path that writes a topic's configuration, with and without validation alone, in both
modes; the cluster's level from features and from registrations. Which configuration does what in
which state: `test_tiering_table.py`.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.controller.context import DecisionContext
from ottla.controller.mode_policy import KRAFT_MODE, ZOOKEEPER_MODE, ModePolicy
from ottla.controller.step import Decision
from ottla.controller.tiering import disabled
from ottla.controller.topics.configs import Alteration, AlteredResource, alter_configs
from ottla.controller.topics.create_topics import CreatedTopic, NewTopic, create_topics
from ottla.metadata.brokers import FeatureRange
from ottla.metadata.features import LEDGER, OTTLA_VERSION, TIERING
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import FeatureLevelRecord, TopicTieringRecord
from ottla.metadata.tiering import (
    DisablePolicy,
    TieringState,
    TopicTiering,
    emptied,
    tiering_record,
)
from ottla.metadata.topic_names import DIRECTORY_STORE_NAME_LENGTH_MAX
from ottla.metadata.topics import partition_record
from ottla.tiered.object_names import partition_prefix

from .builders import THREE, advance, after, context

ENABLE = "remote.storage.enable"
POLICY = "remote.log.disable.policy"
DELETES = "remote.log.delete.on.disable"
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


def topic_id(image: ClusterImage, name: str = "t") -> Uuid:
    found = image.topics.id_of(name)
    assert found is not None
    return found


def state(image: ClusterImage, name: str = "t") -> TopicTiering:
    return image.tiering[topic_id(image, name)]


def acknowledged(image: ClusterImage) -> ClusterImage:
    """Return the image after the last acknowledgement of t."""
    return advance(image, [tiering_record(disabled(state(image)))])


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
    name: str = "t",
) -> Decision[tuple[AlteredResource, ...]]:
    return alter_configs(
        image,
        [Alteration((TOPIC, name), changes)],
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
    decided = alter(enabled, mode, (ENABLE, SET, "false"), validate_only=True)
    assert [each.error for each in decided.reply] == [Error.NONE]
    assert decided.step.records == ()
    disabling = after(enabled, alter(enabled, mode, (ENABLE, SET, "false")))
    [result] = alter(disabling, mode, (ENABLE, SET, "true"), validate_only=True).reply
    assert result.error is Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS


@both_modes
@pytest.mark.parametrize(
    ("incremental", "changes"),
    [
        (True, [(ENABLE, SET, "false")]),
        (True, [(ENABLE, SET, " FALSE ")]),
        (True, [(ENABLE, DELETE, None)]),
        (False, [(ENABLE, SET, "false")]),
        (False, [("retention.ms", SET, "9")]),
        (False, []),
        (True, [(POLICY, SET, "retain"), (ENABLE, SET, "false")]),
        (True, [(POLICY, SET, "retain"), (ENABLE, DELETE, None)]),
    ],
)
def test_turning_it_off_retains_what_is_remote(
    mode: ModePolicy,
    at_level: AtLevel,
    incremental: bool,
    changes: list[tuple[str, int, str | None]],
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    decided = alter(image, mode, *changes, incremental=incremental)
    assert [(each.error, each.message) for each in decided.reply] == [(Error.NONE, None)]
    assert decided.step.atomic, "state, epoch and policy change with the configuration"
    assert state(after(image, decided)) == TopicTiering(
        topic_id=topic_id(image),
        state=TieringState.DISABLING,
        tiered_epoch=2,
        policy=DisablePolicy.RETAIN,
        remote_floor_epoch=0,
        purge_pending=False,
    )


@both_modes
@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize("policy", [(POLICY, SET, " delete "), (DELETES, SET, "true")])
def test_turning_it_off_with_delete_raises_the_floor(
    mode: ModePolicy, at_level: AtLevel, incremental: bool, policy: tuple[str, int, str]
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    decided = alter(image, mode, policy, (ENABLE, SET, "false"), incremental=incremental)
    assert [(each.error, each.message) for each in decided.reply] == [(Error.NONE, None)]
    assert state(after(image, decided)) == TopicTiering(
        topic_id=topic_id(image),
        state=TieringState.DISABLING,
        tiered_epoch=2,
        policy=DisablePolicy.DELETE,
        remote_floor_epoch=1,
        purge_pending=True,
    )


@both_modes
def test_several_topics_of_a_request_succeed_and_fail_each_by_itself(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    image = at_level(TIERING)
    for name in ("t", "u", "v"):
        image = after(image, create(image, mode, name=name))
    image = after(image, alter(image, mode, (ENABLE, SET, "false")))
    off = ((ENABLE, SET, "false"), (POLICY, SET, "delete"))
    decided = alter_configs(
        image,
        [Alteration((TOPIC, name), off) for name in ("t", "u", "missing", "v", "v")],
        incremental=True,
        validate_only=False,
        context=of(mode),
    )
    assert [(each.resource[1], each.error) for each in decided.reply] == [
        ("t", Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS),
        ("u", Error.NONE),
        ("missing", Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("v", Error.INVALID_REQUEST),
        ("v", Error.INVALID_REQUEST),
    ]
    made = after(image, decided)
    assert state(made, "t") == state(image, "t")
    assert state(made, "u").state is TieringState.DISABLING
    assert state(made, "v") == state(image, "v")
    assert made.configs.of(TOPIC, "t") == image.configs.of(TOPIC, "t"), "nothing is half done"


@both_modes
def test_a_name_that_is_set_and_removed_in_one_request_is_refused(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    decided = alter(image, mode, (ENABLE, SET, "false"), (ENABLE, DELETE, None))
    [result] = decided.reply
    assert result.error is Error.INVALID_REQUEST
    assert decided.step.records == ()
    decided = alter(image, mode, (ENABLE, SET, "false"), ("retention.ms", DELETE, None))
    assert state(after(image, decided)).state is TieringState.DISABLING


@both_modes
def test_hole_18_while_disabling_identical_and_unrelated_writes_pass(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    image = after(image, alter(image, mode, (POLICY, SET, "delete"), (ENABLE, SET, "false")))
    for changes, incremental in (
        ([("retention.ms", SET, "9")], True),
        ([(ENABLE, SET, "FALSE"), (POLICY, SET, "delete"), ("retention.ms", SET, "9")], False),
        ([(POLICY, SET, "delete")], False),
        ([(POLICY, DELETE, None), (DELETES, SET, "true")], True),
    ):
        decided = alter(image, mode, *changes, incremental=incremental)
        assert [(each.error, each.message) for each in decided.reply] == [(Error.NONE, None)]
        assert state(after(image, decided)) == state(image)
    for changes, incremental in (
        ([(ENABLE, SET, "true")], True),
        ([(POLICY, SET, "retain")], True),
        ([(POLICY, DELETE, None)], True),
        ([("remote.log.copy.disable", SET, "true")], True),
        ([("retention.ms", SET, "9")], False),
    ):
        decided = alter(image, mode, *changes, incremental=incremental)
        [result] = decided.reply
        assert (result.error, result.message) == (
            Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS,
            "Tiered storage of the topic t is being disabled (remote.log.disable.policy=delete,"
            " tiered epoch 2): brokers have to acknowledge it before its tiering configuration can"
            " be changed. Wait until 'ottla tier describe --topic t' shows DISABLED, then try"
            " again.",
        )
        assert decided.step.records == ()


@both_modes
def test_hole_4_a_later_edit_of_the_policy_does_not_change_the_disablement(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    stored = after(image, alter(image, mode, (POLICY, SET, "delete")))
    assert state(stored) == state(image), "a policy alone is inert while ENABLED"
    image = after(stored, alter(stored, mode, (ENABLE, SET, "false")))
    assert state(image).policy is DisablePolicy.DELETE
    [result] = alter(image, mode, (POLICY, SET, "retain")).reply
    assert result.error is Error.TIERED_STORAGE_DISABLEMENT_IN_PROGRESS


@both_modes
def test_hole_19_delete_may_follow_retain_and_not_the_other_way(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    image = acknowledged(after(image, alter(image, mode, (ENABLE, SET, "false"))))
    assert state(image).state is TieringState.DISABLED
    image = after(image, alter(image, mode, (POLICY, SET, "delete")))
    deleting = state(image)
    assert (deleting.state, deleting.tiered_epoch, deleting.remote_floor_epoch) == (
        TieringState.DISABLING, 3, 2,
    )  # fmt: skip
    image = acknowledged(image)
    decided = alter(image, mode, (POLICY, SET, "retain"))
    [result] = decided.reply
    assert result.error is Error.INVALID_REQUEST
    assert result.message is not None
    assert "are deleted already" in result.message
    assert decided.step.records == ()
    purged = advance(image, [tiering_record(replace(state(image), purge_pending=False))])
    decided = alter(purged, mode, (POLICY, SET, "retain"))
    assert [each.error for each in decided.reply] == [Error.NONE]
    assert state(after(purged, decided)) == state(purged), "it behaves as never tiered"


@both_modes
def test_hole_1_the_epoch_grows_with_each_transition_into_disabling_and_enabled(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    seen = [state(image).tiered_epoch]
    for _ in range(3):
        image = after(image, alter(image, mode, (ENABLE, SET, "false")))
        seen.append(state(image).tiered_epoch)
        image = acknowledged(image)
        seen.append(state(image).tiered_epoch)
        image = after(image, alter(image, mode, (ENABLE, SET, "true")))
        seen.append(state(image).tiered_epoch)
    assert seen == [1, 2, 2, 3, 4, 4, 5, 6, 6, 7]
    assert state(image).remote_floor_epoch == 0, "hole 2: what was retained stays valid"


@both_modes
@pytest.mark.parametrize("pending", [True, False])
def test_hole_20_a_topic_is_enabled_again_also_while_its_purge_runs(
    mode: ModePolicy, at_level: AtLevel, pending: bool
) -> None:
    """Scenario 1 of KIP-950."""
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    image = after(image, alter(image, mode, (POLICY, SET, "delete"), (ENABLE, SET, "false")))
    image = acknowledged(image)
    image = advance(image, [tiering_record(replace(state(image), purge_pending=pending))])
    image = after(image, alter(image, mode, (ENABLE, SET, "true")))
    assert state(image) == TopicTiering(
        topic_id=topic_id(image),
        state=TieringState.ENABLED,
        tiered_epoch=3,
        policy=DisablePolicy.NONE,
        remote_floor_epoch=1,
        purge_pending=pending,
    )
    # The inert policy is there, and a second disablement deletes the second epoch's segments.
    image = after(image, alter(image, mode, (ENABLE, SET, "false")))
    assert (state(image).tiered_epoch, state(image).remote_floor_epoch) == (4, 3)
    assert state(image).purge_pending


@both_modes
@pytest.mark.parametrize("empty", [True, False])
def test_scenarios_2_and_3_what_was_retained_stays_valid_when_it_is_enabled_again(
    mode: ModePolicy, at_level: AtLevel, empty: bool
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    image = acknowledged(after(image, alter(image, mode, (ENABLE, SET, "false"))))
    if empty:
        image = advance(image, [tiering_record(emptied(state(image)))])
        assert not state(image).has_remote_log
    image = after(image, alter(image, mode, (ENABLE, SET, "true")))
    assert (state(image).state, state(image).tiered_epoch) == (TieringState.ENABLED, 3)
    assert state(image).remote_floor_epoch == (2 if empty else 0)
    assert state(image).has_remote_log


@both_modes
def test_kafkas_names_stop_copies_and_begin_them_again(mode: ModePolicy, at_level: AtLevel) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    image = after(image, alter(image, mode, ("remote.log.copy.disable", SET, "true")))
    assert (state(image).state, state(image).policy) == (
        TieringState.DISABLING,
        DisablePolicy.RETAIN,
    )
    assert image.configs.of(TOPIC, "t")[ENABLE] == "true"
    image = acknowledged(image)
    off = after(image, alter(image, mode, (DELETES, SET, "true"), (ENABLE, SET, "false")))
    assert state(off).policy is DisablePolicy.DELETE
    on = after(image, alter(image, mode, ("remote.log.copy.disable", SET, "false")))
    assert (state(on).state, state(on).tiered_epoch) == (TieringState.ENABLED, 3)


@both_modes
def test_hole_25_local_limits_are_ignored_while_disabled_and_checked_when_it_is_enabled(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    image = acknowledged(after(image, alter(image, mode, (ENABLE, SET, "false"))))
    limits = (("retention.ms", SET, "1000"), ("local.retention.ms", SET, "2000"))
    decided = alter(image, mode, *limits)
    assert [each.error for each in decided.reply] == [Error.NONE]
    image = after(image, decided)
    decided = alter(image, mode, (ENABLE, SET, "true"))
    [result] = decided.reply
    assert result.error is Error.INVALID_CONFIG
    assert result.message is not None
    assert "local.retention.ms (2000) must not be more than retention.ms (1000)" in result.message
    assert decided.step.records == ()
    decided = alter(image, mode, (ENABLE, SET, "true"), ("local.retention.ms", DELETE, None))
    assert state(after(image, decided)).state is TieringState.ENABLED


@both_modes
def test_hole_28_compaction_waits_until_the_remote_tier_is_empty(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    compact = ("cleanup.policy", SET, "compact")
    image = after(at_level(TIERING), create(at_level(TIERING), mode))
    [result] = alter(image, mode, compact, (ENABLE, SET, "false")).reply
    assert result.error is Error.INVALID_CONFIG
    image = after(image, alter(image, mode, (ENABLE, SET, "false")))
    for each in (image, acknowledged(image)):
        decided = alter(each, mode, compact)
        [result] = decided.reply
        assert result.error is Error.INVALID_CONFIG
        assert result.message is not None
        assert "may have remote segments" in result.message
        assert decided.step.records == ()
    image = acknowledged(image)
    empty = advance(image, [tiering_record(emptied(state(image)))])
    assert [each.error for each in alter(empty, mode, compact).reply] == [Error.NONE]
    deleting = after(image, alter(image, mode, (POLICY, SET, "delete")))
    assert [each.error for each in alter(deleting, mode, compact).reply] == [Error.INVALID_CONFIG]
    deleted = acknowledged(deleting)
    image = after(deleted, alter(deleted, mode, compact))
    [result] = alter(image, mode, (ENABLE, SET, "true")).reply
    assert result.error is Error.INVALID_CONFIG, "compacted topics cannot have remote storage"


@both_modes
@pytest.mark.parametrize("path", ["create", "incremental", "legacy"])
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({POLICY: "keep"}, "remote.log.disable.policy"),
        ({POLICY: "RETAIN"}, "expected"),
        ({POLICY: "retain", DELETES: "true"}, "contradict each other"),
        ({POLICY: "delete", DELETES: "false", ENABLE: "false"}, "contradict each other"),
    ],
)
def test_an_unsupported_policy_and_contradictions_are_an_invalid_request(
    mode: ModePolicy, at_level: AtLevel, path: str, values: dict[str, str], reason: str
) -> None:
    image = at_level(TIERING)
    error, message = Error.NONE, None
    if path == "create":
        wanted = [NewTopic(name="t", configs=tuple(values.items()))]
        created = create_topics(image, wanted, validate_only=False, context=of(mode))
        assert created.step.records == ()
        error, message = created.reply[0].error, created.reply[0].message
    else:
        image = after(image, create(image, mode))
        changes = [(name, SET, value) for name, value in values.items()]
        decided = alter(image, mode, *changes, incremental=path == "incremental")
        assert decided.step.records == ()
        error, message = decided.reply[0].error, decided.reply[0].message
    assert error is Error.INVALID_REQUEST
    assert message is not None
    assert reason in message


@both_modes
def test_the_state_and_a_smaller_min_isr_are_one_atomic_step(
    mode: ModePolicy, at_level: AtLevel
) -> None:
    image = at_level(TIERING)
    image = after(image, create(image, mode))
    topic = image.topics.by_name("t")
    assert topic is not None
    short = replace(topic.partitions[0], isr=topic.partitions[0].isr[:1], elr=(3,))
    image = advance(image, [partition_record(topic.id, 0, short)])
    changes = (("min.insync.replicas", SET, "1"), (ENABLE, SET, "false"))
    decided = alter(image, mode, *changes)
    kinds = [type(each).__name__ for each in decided.step.records]
    assert kinds[0] == "PartitionChangeRecord", "else the test shows nothing"
    assert "TopicTieringRecord" in kinds
    assert decided.step.atomic


@both_modes
@pytest.mark.parametrize(
    ("name", "value"),
    [
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


@pytest.mark.parametrize("level", [0, LEDGER])
def test_hole_33_with_an_older_broker_nothing_is_disabled_or_enabled_again(level: int) -> None:
    """In ZooKeeper mode an older broker may register at any time; in KRaft mode it may not."""
    mode = ZOOKEEPER_MODE
    image = after(registered(TIERING), create(registered(TIERING), mode))
    disabled = acknowledged(after(image, alter(image, mode, (ENABLE, SET, "false"))))
    for each, value in ((image, "false"), (disabled, "true")):
        older = replace(each, brokers=registered(level).brokers)
        decided = alter(older, mode, (ENABLE, SET, value), ("retention.ms", SET, "9"))
        [result] = decided.reply
        assert result.error is Error.UNSUPPORTED_VERSION
        assert result.message is not None
        assert f"at level 2, and the cluster has level {level}" in result.message
        assert decided.step.records == (), "nothing is half done"
        decided = alter(older, mode, ("retention.ms", SET, "9"))
        assert [each.error for each in decided.reply] == [Error.NONE]


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


@both_modes
def test_a_directory_store_has_no_room_for_a_long_name(mode: ModePolicy, at_level: AtLevel) -> None:
    """The topic's directory there would have a longer name than a file system keeps."""
    image, longest = at_level(TIERING), "t" * DIRECTORY_STORE_NAME_LENGTH_MAX
    assert len(partition_prefix(longest, NO_UUID, 0).split("/")[0]) == 255
    assert [each.error for each in create(image, mode, name=longest).reply] == [Error.NONE]
    name = longest + "t"
    [result] = create(image, mode, name=name).reply
    assert result.error is Error.INVALID_CONFIG
    assert result.message is not None
    assert f"the name of the topic {name} has 233 characters" in result.message
    assert "it may have at most 232" in result.message
    image = after(image, create(image, mode, "false", name=name))
    enable = (ENABLE, SET, "true")
    [refused] = alter(image, mode, enable, name=name).reply
    assert (refused.error, refused.message) == (Error.INVALID_CONFIG, result.message)
    bucket = {**TIERED, "ottla.remote.storage.uri": "s3://bucket"}
    enabled = after(image, alter(image, mode, enable, name=name, properties=bucket))
    assert state(enabled, name).state is TieringState.ENABLED
    [other] = alter(enabled, mode, ("retention.ms", SET, "9"), name=name).reply
    assert other.error is Error.NONE, "of one that is enabled everything else can be changed"


def test_a_configuration_without_its_state_gets_it_with_the_next_alteration() -> None:
    """As after a tool wrote the configuration's znode."""
    image = after(finalized(TIERING), create(finalized(TIERING), KRAFT_MODE))
    image = replace(image, tiering=image.tiering.delete(next(iter(image.tiering))))
    image = after(image, alter(image, KRAFT_MODE, ("retention.ms", SET, "9")))
    assert [each.state for each in image.tiering.values()] == [TieringState.ENABLED]
