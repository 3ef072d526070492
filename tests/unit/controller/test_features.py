"""Feature levels change all or none, to levels that everybody registered can work at.

Method: decisions on replayed images. Tables say for each feature what becomes of each level asked
for from each other one; nodes that cannot follow and partitions that would suffer are made.
"""

from dataclasses import replace

import pytest

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid
from ottla.controller.context import DecisionContext
from ottla.controller.deletion.delete_topics import TopicReference, delete_topics
from ottla.controller.features import (
    NOT_SERVED,
    FeatureUpdate,
    UpdatedFeature,
    UpgradeType,
    update_features,
)
from ottla.controller.topics.configs import Alteration, Operation, alter_configs
from ottla.metadata.brokers import FeatureRange
from ottla.metadata.features import (
    ABANDONED_PURGES,
    ELR_VERSION,
    LEDGER,
    METADATA_VERSION,
    OTTLA_VERSION,
    SUPPORTED,
    TIERING,
    elr_enabled,
    ledger_enabled,
    tiering_enabled,
)
from ottla.metadata.image import ClusterImage, ResourceType
from ottla.metadata.records import (
    ConfigRecord,
    ControllerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    Record,
    RegisterControllerRecord,
    TopicRecord,
)

from .builders import THREE, advance, after, broker, cluster, context

UPGRADE, SAFE, UNSAFE = UpgradeType
TOPIC = Uuid(b"topic-----------")
NONE, FAILED, INVALID = Error.NONE, Error.FEATURE_UPDATE_FAILED, Error.INVALID_UPDATE_VERSION
MIN_ISR = "min.insync.replicas"
ALL_BUT_OTTLA = tuple(each for each in SUPPORTED if each.name != OTTLA_VERSION)


def level(name: str, value: int) -> Record:
    return FeatureLevelRecord(name=name, feature_level=value)


def at(image: ClusterImage, **levels: int) -> ClusterImage:
    """Return the image at other levels; `ottla` and `elr` stand for the whole names."""
    names = {"ottla": OTTLA_VERSION, "elr": ELR_VERSION, "metadata": METADATA_VERSION}
    return advance(image, [level(names[name], value) for name, value in levels.items()])


def decide(
    image: ClusterImage,
    *updates: FeatureUpdate,
    validate_only: bool = False,
    decision_context: DecisionContext | None = None,
) -> tuple[tuple[Record, ...], tuple[UpdatedFeature, ...]]:
    """Return the records and the answers of a decision."""
    decided = update_features(
        image, updates, context=decision_context or context(), validate_only=validate_only
    )
    assert decided.step.atomic
    return decided.step.records, decided.reply


def refusal(image: ClusterImage, name: str, value: int, kind: int = UPGRADE) -> str:
    """Return the words with which one level is refused."""
    records, (answer,) = decide(image, FeatureUpdate(name, value, kind))
    assert (records, answer.name, answer.error) == ((), name, INVALID)
    assert answer.message is not None
    return answer.message


def granted(image: ClusterImage, name: str, value: int, kind: int = UPGRADE) -> list[Record]:
    """Return the records with which one level is granted."""
    records, answers = decide(image, FeatureUpdate(name, value, kind))
    assert answers == (UpdatedFeature(name),)
    return list(records)


# -- what a level does -------------------------------------------------------------------------


def test_a_running_cluster_gets_the_ledger() -> None:
    image = at(THREE, elr=1)
    assert not ledger_enabled(image.features)
    assert granted(image, OTTLA_VERSION, 1) == [level(OTTLA_VERSION, 1)]
    topics = [TopicRecord(name="t", topic_id=TOPIC), partition()]
    raised = advance(image, [level(OTTLA_VERSION, 1), *topics])
    wanted = [TopicReference(name="t")]
    gone = after(raised, delete_topics(raised, wanted, context=context(), wall_ms=1))
    assert gone.deletions.of(TOPIC) is not None


def partition(
    *, isr: tuple[int, ...] = (1, 2), elr: tuple[int, ...] = (), last: tuple[int, ...] = ()
) -> PartitionRecord:
    return PartitionRecord(
        partition_id=0,
        topic_id=TOPIC,
        replicas=(1, 2),
        isr=isr,
        leader=isr[0] if isr else -1,
        leader_epoch=0,
        partition_epoch=0,
        eligible_leader_replicas=elr,
        last_known_elr=last,
    )


@pytest.mark.parametrize("kind", UpgradeType)
@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("name", [OTTLA_VERSION, ELR_VERSION])
def test_the_level_that_is_there_is_granted_without_a_record(
    name: str, value: int, kind: UpgradeType
) -> None:
    image = at(THREE, ottla=value, elr=value)
    assert granted(image, name, value, kind) == []
    assert granted(image, METADATA_VERSION, 25, kind) == []


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
@pytest.mark.parametrize("name", [OTTLA_VERSION, ELR_VERSION])
def test_a_higher_level_is_no_downgrade(name: str, kind: UpgradeType) -> None:
    assert refusal(THREE, name, 1, kind) == f"{name} is at level 0: level 1 is not a downgrade."


@pytest.mark.parametrize("name", [OTTLA_VERSION, ELR_VERSION])
def test_a_lower_level_is_no_upgrade(name: str) -> None:
    image = at(THREE, ottla=1, elr=1)
    assert refusal(image, name, 0) == f"{name} is at level 1: level 0 is not an upgrade."


@pytest.mark.parametrize("kind", UpgradeType)
@pytest.mark.parametrize("value", [-32768, -1, 4, 32767])
@pytest.mark.parametrize(("name", "highest"), [(OTTLA_VERSION, 3), (ELR_VERSION, 1)])
def test_levels_that_there_are_not(name: str, highest: int, value: int, kind: UpgradeType) -> None:
    message = refusal(THREE, name, value, kind)
    assert message == f"Level {value} of {name} is not supported: expected 0 to {highest}."


@pytest.mark.parametrize("before", [0, 1])
def test_the_level_of_tiering_keeps_the_ledger(before: int) -> None:
    image = at(THREE, ottla=before)
    assert not tiering_enabled(image.features)
    raised = advance(image, granted(image, OTTLA_VERSION, TIERING))
    assert tiering_enabled(raised.features)
    assert ledger_enabled(raised.features)
    message = refusal(raised, OTTLA_VERSION, LEDGER, SAFE)
    assert message.startswith(f"{OTTLA_VERSION} cannot go back to level 1: the records of topics'")
    newest = advance(raised, granted(raised, OTTLA_VERSION, ABANDONED_PURGES))
    assert refusal(newest, OTTLA_VERSION, LEDGER, SAFE) == message
    message = refusal(newest, OTTLA_VERSION, TIERING, SAFE)
    assert message.startswith(
        f"{OTTLA_VERSION} cannot go back to level 2: the records of abandoned"
    )


@pytest.mark.parametrize("kind", UpgradeType)
@pytest.mark.parametrize("value", [-1, 0, 1, 24, 26])
def test_the_metadata_version_is_the_one_that_is_written(value: int, kind: UpgradeType) -> None:
    message = refusal(THREE, METADATA_VERSION, value, kind)
    assert (
        message == f"Level {value} of {METADATA_VERSION} is not supported: expected 25 (4.0-IV3)."
    )


def test_metadata_from_an_older_kafka_is_raised_to_it() -> None:
    image = at(cluster(), metadata=21)
    assert granted(image, METADATA_VERSION, 25) == [level(METADATA_VERSION, 25)]
    message = refusal(image, METADATA_VERSION, 25, SAFE)
    assert message == f"{METADATA_VERSION} is at level 21: level 25 is not a downgrade."


@pytest.mark.parametrize("name", sorted(NOT_SERVED))
@pytest.mark.parametrize("kind", UpgradeType)
def test_what_is_kafkas_and_not_served_stays_as_it_is(name: str, kind: UpgradeType) -> None:
    assert granted(THREE, name, 0, kind) == []
    message = refusal(THREE, name, 1, kind)
    assert message == f"{name} stays at level 0, and not 1: {NOT_SERVED[name]}."


def test_kraft_version_refuses_and_names_the_voters_property() -> None:
    assert "controller.quorum.voters" in refusal(THREE, "kraft.version", 1)


@pytest.mark.parametrize("value", [0, 1])
def test_an_unknown_feature_names_those_that_there_are(value: int) -> None:
    assert refusal(THREE, "otla.version", value) == (
        "Unknown feature otla.version: expected one of eligible.leader.replicas.version,"
        " metadata.version, ottla.version."
    )


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_the_ledger_is_for_good(kind: UpgradeType) -> None:
    message = refusal(at(THREE, ottla=1), OTTLA_VERSION, 0, kind)
    assert message.startswith(f"{OTTLA_VERSION} cannot go back to level 0: the records of the")


# -- who must be able to follow ----------------------------------------------------------------


@pytest.mark.parametrize("fenced", [True, False])
def test_a_broker_that_cannot_follow_is_named(fenced: bool) -> None:
    old = broker(2, features=ALL_BUT_OTTLA, fenced=fenced)
    image = cluster(broker(1), old, broker(3))
    assert refusal(image, OTTLA_VERSION, 1) == (
        "Level 1 of ottla.version is not supported by broker 2, which has registered with 0 to 0:"
        " start it with newer software, or unregister it."
    )
    assert granted(image, ELR_VERSION, 1), "the others are none of its business"


def test_a_broker_of_another_range_is_named_too() -> None:
    above = broker(3, features=(*ALL_BUT_OTTLA, FeatureRange(OTTLA_VERSION, 2, 3)))
    message = refusal(cluster(broker(1), above), OTTLA_VERSION, 1)
    assert "by broker 3, which has registered with 2 to 3" in message


def test_who_names_no_metadata_version_is_from_before_it_had_a_name() -> None:
    image = at(cluster(broker(1, features=())), metadata=1)
    message = refusal(image, METADATA_VERSION, 25)
    assert "by broker 1, which has registered with 1 to 1" in message


def controller(node_id: int, *features: FeatureRange) -> Record:
    return RegisterControllerRecord(
        controller_id=node_id,
        incarnation_id=Uuid(b"controller------"),
        end_points=(),
        features=tuple(
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_version,
                max_supported_version=each.max_version,
            )
            for each in features
        ),
    )


def test_a_registered_controller_that_cannot_follow_is_named() -> None:
    image = advance(THREE, [controller(101, *SUPPORTED), controller(102, *ALL_BUT_OTTLA)])
    assert refusal(image, OTTLA_VERSION, 1) == (
        "Level 1 of ottla.version is not supported by controller 102, which has registered with"
        " 0 to 0."
    )
    assert granted(advance(THREE, [controller(101, *SUPPORTED)]), OTTLA_VERSION, 1)


def test_a_brokers_registration_counts_for_its_controller_role() -> None:
    """Kafka registers both; here only the broker's registration is renewed at each start."""
    image = advance(THREE, [controller(2, *ALL_BUT_OTTLA)])
    assert granted(image, OTTLA_VERSION, 1)


def test_this_controller_knows_what_it_can_do_itself() -> None:
    own = context({"process.roles": "controller", "listeners": "CONTROLLER://localhost:9093"})
    image = advance(cluster(broker(2)), [controller(1, *ALL_BUT_OTTLA)])
    records, _ = decide(image, FeatureUpdate(OTTLA_VERSION, 1), decision_context=own)
    assert records == (level(OTTLA_VERSION, 1),)


# -- eligible leader replicas ------------------------------------------------------------------


def min_isr(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=ResourceType.BROKER, resource_name=name, name=MIN_ISR, value=value
    )


def test_eligible_leaders_come_with_one_min_isr_for_all() -> None:
    own = min_isr("2", "3"), min_isr("3", "1")
    others = [replace(min_isr(each, "1"), name="log.cleaner.threads") for each in ("1", "3")]
    image = advance(THREE, [*own, *others])
    decision_context = context({MIN_ISR: "2"})
    records, _ = decide(image, FeatureUpdate(ELR_VERSION, 1), decision_context=decision_context)
    assert records == (
        min_isr("2", None),
        min_isr("3", None),
        min_isr("", "2"),
        level(ELR_VERSION, 1),
    )
    raised = advance(image, records)
    assert elr_enabled(raised.features)
    assert dict(raised.configs.of(ResourceType.BROKER, "3")) == {"log.cleaner.threads": "1"}
    broken = Alteration(
        resource=(ResourceType.BROKER, "2"), changes=((MIN_ISR, Operation.SET, "1"),)
    )
    (answer,) = alter_configs(
        raised, [broken], incremental=True, validate_only=False, context=decision_context
    ).reply
    assert answer.error is Error.INVALID_CONFIG, "what was removed cannot come back"


def test_a_min_isr_that_is_set_for_all_stays() -> None:
    image = advance(THREE, [min_isr("", "3")])
    assert granted(image, ELR_VERSION, 1) == [level(ELR_VERSION, 1)]


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_eligible_leaders_go_while_nobody_relies_on_them(kind: UpgradeType) -> None:
    image = advance(at(THREE, elr=1), [TopicRecord(name="t", topic_id=TOPIC), partition()])
    assert granted(image, ELR_VERSION, 0, kind) == [level(ELR_VERSION, 0)]
    lowered = advance(image, granted(image, ELR_VERSION, 0, kind))
    assert not elr_enabled(lowered.features)


@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
@pytest.mark.parametrize(
    "suffering",
    [partition(isr=(1,), elr=(2,)), partition(isr=(), elr=(2,)), partition(isr=(), last=(1,))],
)
def test_eligible_leaders_stay_while_a_partition_needs_them(
    suffering: PartitionRecord, kind: UpgradeType
) -> None:
    image = advance(at(THREE, elr=1), [TopicRecord(name="t", topic_id=TOPIC), suffering])
    message = refusal(image, ELR_VERSION, 0, kind)
    assert message.startswith(f"{ELR_VERSION} cannot go to level 0 now: t-0 has eligible leader")


# -- the request -------------------------------------------------------------------------------


def test_several_at_once_the_metadata_version_first() -> None:
    image = at(cluster(), metadata=24)
    wanted = [
        FeatureUpdate(OTTLA_VERSION, 1),
        FeatureUpdate(METADATA_VERSION, 25),
        FeatureUpdate(ELR_VERSION, 1),
    ]
    records, answers = decide(image, *wanted)
    assert records == (
        level(METADATA_VERSION, 25),
        min_isr("", "1"),
        level(ELR_VERSION, 1),
        level(OTTLA_VERSION, 1),
    )
    assert answers == tuple(UpdatedFeature(each.name) for each in wanted)


def test_one_refusal_is_everybodys() -> None:
    wanted = [
        FeatureUpdate(OTTLA_VERSION, 1),
        FeatureUpdate(ELR_VERSION, 7),
        FeatureUpdate("what.version", 1),
    ]
    records, answers = decide(THREE, *wanted)
    assert records == ()
    assert [(each.name, each.error) for each in answers] == [
        (OTTLA_VERSION, FAILED),
        (ELR_VERSION, INVALID),
        ("what.version", INVALID),
    ]
    assert answers[0].message == f"Not changed, since {ELR_VERSION} was refused."


def test_what_is_only_validated_is_answered_the_same_and_not_done() -> None:
    update = FeatureUpdate(OTTLA_VERSION, 1)
    assert decide(THREE, update, validate_only=True) == ((), (UpdatedFeature(OTTLA_VERSION),))
    bad = FeatureUpdate(OTTLA_VERSION, 4)
    assert decide(THREE, bad, validate_only=True) == decide(THREE, bad)
    assert decide(THREE, bad)[1][0].error is INVALID


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ([], "The request names no feature."),
        ([FeatureUpdate(OTTLA_VERSION, 1)] * 2, "The request names ottla.version twice."),
        ([FeatureUpdate(OTTLA_VERSION, 1, 0)], "the unknown type 0: expected 1 (upgrade), 2"),
        ([FeatureUpdate(OTTLA_VERSION, 0, 4)], "The update of ottla.version has the unknown type"),
    ],
)
def test_requests_that_make_no_sense(wanted: list[FeatureUpdate], words: str) -> None:
    with pytest.raises(ApiError) as caught:
        decide(THREE, *wanted)
    assert caught.value.error is Error.INVALID_REQUEST
    assert words in caught.value.message
