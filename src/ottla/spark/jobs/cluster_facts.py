"""What the cluster says of topics whose objects are in the store: existence, tiers, receipts."""

from collections.abc import Collection, Iterable
from typing import Final

from ottla.base.errors import Error
from ottla.base.ids import NO_UUID, Uuid
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, check
from ottla.client.offsets import EARLIEST, list_offsets
from ottla.client.partitions import TopicPartition
from ottla.metadata.deletions import Remote
from ottla.metadata.tiering import DisablePolicy, TieringState
from ottla.spark.jobs.rules.topic_status import Existence, TopicStatus, existence_of_deleted
from ottla.wire.messages import describe_deletions as deletions
from ottla.wire.messages import describe_topic_tiering as tiering

EARLIEST_LOCAL: Final = -4
"""ListOffsets: where the leader's local log begins (KIP-405)."""

NamedId = tuple[str, Uuid]


def statuses(client: ClusterClient, topics: Collection[NamedId]) -> dict[Uuid, TopicStatus]:
    """Return the status of each topic id. Raises: ClientError."""

    def ask() -> dict[Uuid, TopicStatus]:
        names = sorted({name for name, _ in topics})
        existing = {each.topic_id for each in client.topics(names, skip_unknown=True)}
        described = tierings(client, names)
        found: dict[Uuid, TopicStatus] = {}
        for name, topic_id in topics:
            if topic_id in existing:
                found[topic_id] = _existing(name, topic_id, described.get(topic_id))
        missing = sorted(topic_id for _, topic_id in topics if topic_id not in found)
        ledger = ledger_of(client, missing) if missing else {}
        for name, topic_id in topics:
            if topic_id not in found:
                found[topic_id] = ledger.get(topic_id) or TopicStatus(
                    topic=name, topic_id=topic_id, existence=Existence.UNKNOWN
                )
        return found

    return client.with_retries(ask, repeatable=True)


def _existing(
    name: str, topic_id: Uuid, known: tiering.DescribedTopicTiering | None
) -> TopicStatus:
    if known is None or not known.state:
        return TopicStatus(topic=name, topic_id=topic_id, existence=Existence.EXISTS)
    return TopicStatus(
        topic=name,
        topic_id=topic_id,
        existence=Existence.EXISTS,
        tiering=_tiering_text(known),
        tiered_epoch=known.tiered_epoch,
        floor=known.remote_floor_epoch,
        purge_pending=known.purge_pending,
    )


def _tiering_text(known: tiering.DescribedTopicTiering) -> str:
    state = TieringState(known.state).name
    policy = DisablePolicy(known.policy)
    return state if policy is DisablePolicy.NONE else f"{state} ({policy.name.lower()})"


def tierings(
    client: ClusterClient, names: Iterable[str] | None
) -> dict[Uuid, tiering.DescribedTopicTiering]:
    """Return the tiering states of topics, None = all; nothing of brokers without them."""
    if not client.serves(tiering.DescribeTopicTieringRequest):
        return {}
    request = tiering.DescribeTopicTieringRequest(topics=None if names is None else tuple(names))
    response = client.ask(request, tiering.DescribeTopicTieringResponse)
    check("the controller", response.error_code, response.error_message)
    return {each.topic_id: each for each in response.topics}


def disabled_topics(client: ClusterClient) -> list[TopicStatus]:
    """Return the topics with a remote floor: their tiered storage was turned off with delete."""
    found = client.with_retries(lambda: tierings(client, None), repeatable=True)
    statuses = (_existing(each.name, each.topic_id, each) for each in found.values())
    return [each for each in statuses if each.floor]


def ledger_of(client: ClusterClient, topic_ids: Collection[Uuid] | None) -> dict[Uuid, TopicStatus]:
    """Return the deleted topics of the ledger, None = all; nothing of brokers without one."""
    if not client.serves(deletions.DescribeDeletionsRequest):
        return {}
    asked = () if topic_ids is None else tuple(sorted(topic_ids))
    topics = tuple(deletions.DescribeDeletionsTopic(topic_id=each) for each in asked)
    found: dict[Uuid, TopicStatus] = {}
    after = NO_UUID
    while True:
        request = deletions.DescribeDeletionsRequest(topics=topics, after=after)
        response = client.ask(request, deletions.DescribeDeletionsResponse)
        check("the deletion ledger", response.error_code, response.error_message)
        for each in response.deletions:
            found[each.topic_id] = _deleted(each)
        after = response.next_after
        if after == NO_UUID:
            return found


def _deleted(each: deletions.DescribedDeletion) -> TopicStatus:
    is_finished = each.finished_ms >= 0
    remote = Remote(each.remote).name.lower()
    return TopicStatus(
        topic=each.name,
        topic_id=each.topic_id,
        existence=existence_of_deleted(each.remote, is_finished=is_finished),
        receipt=f"{remote}, {'finished' if is_finished else 'not finished'}",
        purge_pending=each.remote == Remote.PENDING,
    )


def log_starts(client: ClusterClient, topic: str, partition: int) -> tuple[int, int] | None:
    """Return where a partition's log and its leader's local log begin; None = it has no leader.

    Also None where the topic is being deleted, or the brokers do not know local logs.
    """
    key = (topic, partition)
    found = _log_starts(client, key)
    if found is None:
        client.refresh()  # Its leader may have moved.
        found = _log_starts(client, key)
    return found


def _log_starts(client: ClusterClient, key: TopicPartition) -> tuple[int, int] | None:
    found = []
    for timestamp in (EARLIEST, EARLIEST_LOCAL):
        try:
            client.leader(key)  # Else a partition without a leader would be waited for.
            answer = list_offsets(client, {key: timestamp})[key]
        except ClientError:
            return None
        if answer.error_code != Error.NONE or answer.offset < 0:
            return None
        found.append(answer.offset)
    return found[0], found[1]
