"""An operator gives up a purge: which entries of the ledger that may change, and what follows.

Method: the decider over every kind of entry, in both modes; then whole deletions, as in
`test_purge_reports`. `test_deletion_walk` has it in all orders of events.
"""

from dataclasses import replace
from itertools import product

import pytest
from immutables import Map

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid, uuid_text
from ottla.controller.deletion.abandon_purge import abandon_purge
from ottla.controller.deletion.purge_reports import PartitionPurge, PurgeReport, take_report
from ottla.controller.mode_policy import KRAFT_MODE, ZOOKEEPER_MODE, ModePolicy
from ottla.metadata.brokers import FeatureRange, record_of
from ottla.metadata.deletions import (
    NOT_FINISHED,
    STARTED,
    SUCCESSFUL,
    DeletionImage,
    Policy,
    Remote,
    deletion_records,
    header_record,
)
from ottla.metadata.features import ABANDONED_PURGES, OTTLA_VERSION
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import FeatureLevelRecord, TopicRecord
from tests.unit.controller.builders import advance, broker, context, uuid
from tests.unit.controller.deletion_harness import DeletionHarness

ID, OTHER = uuid("t"), uuid("u")
MODES = pytest.mark.parametrize("mode", [KRAFT_MODE, ZOOKEEPER_MODE], ids=["kraft", "zookeeper"])
POLICIES = pytest.mark.parametrize("policy", [Policy.CLASSIC, Policy.AT_ONCE])


def cluster(*entries: DeletionImage, level: int = ABANDONED_PURGES) -> ClusterImage:
    """Return a cluster whose level of `ottla.version` is the same in both modes."""
    features = (FeatureRange(OTTLA_VERSION, 0, level),)
    return advance(
        EMPTY,
        [
            FeatureLevelRecord(name=OTTLA_VERSION, feature_level=level),
            record_of(broker(1, features=features)),
            *(record for each in entries for record in deletion_records(each)),
        ],
    )


def entry(remote: Remote, **changes: object) -> DeletionImage:
    made = DeletionImage(topic_id=ID, name="t", policy=Policy.AT_ONCE, asked_ms=5, remote=remote)
    return replace(made.with_status(1, STARTED, (0, 1)), **changes)  # type: ignore[arg-type]


def refusal(image: ClusterImage, topic_id: Uuid, mode: ModePolicy) -> ApiError:
    with pytest.raises(ApiError) as caught:
        abandon_purge(image, topic_id, validate_only=False, context=replace(context(), mode=mode))
    return caught.value


@MODES
def test_only_a_pending_purge_of_a_deletion_that_has_begun_can_be_abandoned(
    mode: ModePolicy,
) -> None:
    """Every remote state, finished or not, begun or not, by both policies, validated or done."""
    abandoned = 0
    for remote, finished, begun, policy, validate in product(
        Remote, (NOT_FINISHED, 9), (True, False), Policy, (True, False)
    ):
        before = entry(remote, finished_ms=finished, policy=policy, segments_left=2)
        if not begun:
            before = replace(before, replicas=Map())
        image = cluster(before)
        own = replace(context(), mode=mode)
        if remote is Remote.ABANDONED:
            decision = abandon_purge(image, ID, validate_only=validate, context=own)
            assert decision.step.records == ()
            assert decision.reply.was_abandoned
            assert decision.reply.deletion == before
        elif before.is_purging:
            decision = abandon_purge(image, ID, validate_only=validate, context=own)
            after = replace(before, remote=Remote.ABANDONED, segments_left=-1, bytes_left=-1)
            assert decision.step.records == (() if validate else (header_record(after),))
            assert decision.reply.deletion == after
            assert not decision.reply.was_abandoned
            abandoned += 1
        else:
            assert refusal(image, ID, mode).error is Error.INVALID_REQUEST
    assert abandoned == 2 * 2  # By policy, and whether it is only validated.


@MODES
def test_refusals_say_why(mode: ModePolicy) -> None:
    text = uuid_text(ID)
    queued = entry(Remote.PENDING, replicas=Map())
    living = advance(cluster(), [TopicRecord(name="t", topic_id=ID)])
    cases = {
        f"No purge of the topic t ({text}) is pending: it had no remote storage.": cluster(
            entry(Remote.NONE)
        ),
        f"No purge of the topic t ({text}) is pending: its remote tier is purged.": cluster(
            entry(Remote.PURGED, finished_ms=7)
        ),
        f"The deletion of the topic t ({text}) has not begun: it can still be cancelled.": cluster(
            queued
        ),
        f"The topic t ({text}) is not deleted: only the purge of a deleted topic can be"
        " abandoned.": living,
    }
    for message, image in cases.items():
        error = refusal(image, ID, mode)
        assert (error.error, error.message) == (Error.INVALID_REQUEST, message)
    error = refusal(cluster(entry(Remote.PENDING)), OTHER, mode)
    assert (error.error, error.message) == (
        Error.UNKNOWN_TOPIC_ID,
        f"The deletion ledger has no topic with the id {uuid_text(OTHER)}.",
    )


@MODES
def test_below_its_level_it_is_not_written(mode: ModePolicy) -> None:
    """Nodes of an older version cannot read it."""
    image = cluster(entry(Remote.PENDING), level=ABANDONED_PURGES - 1)
    error = refusal(image, ID, mode)
    assert error.error is Error.UNSUPPORTED_VERSION
    assert "needs the feature ottla.version at level 3, and the cluster has level 2" in (
        error.message
    )


def test_the_receipt_has_what_was_last_reported() -> None:
    own = context()
    image = cluster(entry(Remote.PENDING))
    partitions = (
        PartitionPurge(partition=0, is_purged=True, segments_left=0, bytes_left=0),
        PartitionPurge(partition=1, segments_left=3, bytes_left=40, error="denied: 403"),
    )
    report = PurgeReport(broker_id=1, broker_epoch=101, topics={ID: partitions})
    assert take_report(image, own.purges, report).reply == {ID: Error.NONE}
    found = abandon_purge(image, ID, validate_only=False, context=own).reply.deletion
    assert (found.segments_left, found.bytes_left) == (3, 40)


def deleted(policy: Policy) -> tuple[DeletionHarness, Uuid]:
    harness = DeletionHarness(policy, (1, 2))
    topic_id = harness.create("t", {0: (1, 2), 1: (2, 1)})
    harness.tier(topic_id)
    harness.settle()
    if policy is Policy.CLASSIC:
        harness.mark("t")
    else:
        harness.delete("t")
    return harness, topic_id


@POLICIES
def test_the_deletion_ends_and_a_topic_of_the_same_name_goes_on(policy: Policy) -> None:
    harness, topic_id = deleted(policy)
    harness.settle()
    new = harness.create("t", {0: (1, 2)})
    harness.tier(new)
    harness.settle()
    assert not harness.entry(topic_id).is_finished
    assert not harness.abandon(topic_id).was_abandoned
    assert harness.image.deletions.purges() == []
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert harness.entry(topic_id).remote is Remote.ABANDONED
    assert harness.report(topic_id, 0, 1) is Error.UNKNOWN_TOPIC_ID  # Late; the store is back.
    again = harness.abandon(topic_id)
    assert again.was_abandoned
    assert again.deletion == harness.entry(topic_id)
    assert harness.image.topics.by_name("t") is not None
    with pytest.raises(ApiError) as caught:
        harness.abandon(new)
    assert caught.value.error is Error.INVALID_REQUEST
    assert harness.logs_of(new) == {(1, 0), (2, 0)}
    assert not harness.wrongs


@POLICIES
def test_replicas_that_are_left_are_waited_for(policy: Policy) -> None:
    harness, topic_id = deleted(policy)
    harness.decide()
    harness.stop(2)
    harness.settle()
    harness.abandon(topic_id)
    harness.elect()
    harness.settle()
    assert not harness.entry(topic_id).is_finished
    harness.start(2)
    harness.settle()
    assert harness.entry(topic_id).is_finished
    assert harness.entry(topic_id).remote is Remote.ABANDONED
    assert {standing for _, standing, _ in harness.entry(topic_id).rows()} == {SUCCESSFUL}


def test_partitions_that_are_added_by_hand_do_not_begin_it_again() -> None:
    harness, topic_id = deleted(Policy.CLASSIC)
    harness.decide()
    harness.abandon(topic_id)
    harness.stop(2)
    harness.decide()
    harness.grow(topic_id, {2: (1, 2)})
    harness.elect()
    harness.settle()
    assert 2 in harness.entry(topic_id).partitions()
    assert harness.entry(topic_id).remote is Remote.ABANDONED
    harness.start(2)
    harness.settle()
    assert harness.entry(topic_id).is_finished
