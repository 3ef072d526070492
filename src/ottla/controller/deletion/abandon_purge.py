"""An operator gives up the purge of a deleted topic: its objects stay in the store.

A purge is repeated for as long as it takes, so a store that is gone for good, or that no broker
uses any more, keeps the deletion open for ever. The purge becomes ABANDONED in the ledger: brokers
stop it, and the deletion ends once no replica is left. The receipt has what was left in the store
by the brokers' last reports. It is final, also when the store returns: the objects bear the id of
the deleted topic, which no other topic has, so nothing reads them, and nothing deletes them.
"""

from dataclasses import dataclass, replace

from ottla.base.errors import ApiError, Error
from ottla.base.ids import Uuid, uuid_text
from ottla.controller.context import DecisionContext
from ottla.controller.step import Decision, Step
from ottla.metadata.deletions import DeletionImage, Remote, header_record
from ottla.metadata.features import ABANDONED_PURGES, OTTLA_VERSION
from ottla.metadata.image import ClusterImage


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedPurge:
    """The entry as it is then. `was_abandoned`: it was so before, and nothing has changed."""

    deletion: DeletionImage
    was_abandoned: bool


def abandon_purge(
    image: ClusterImage, topic_id: Uuid, *, validate_only: bool, context: DecisionContext
) -> Decision[AbandonedPurge]:
    """Abandon a pending purge; one that was abandoned before stays so. Raises: ApiError.

    `validate_only`: nothing is written.
    """
    level = context.mode.ottla_level(image)
    if level < ABANDONED_PURGES:
        raise ApiError(
            Error.UNSUPPORTED_VERSION,
            f"Abandoning a purge needs the feature {OTTLA_VERSION} at level {ABANDONED_PURGES},"
            f" and the cluster has level {level}.",
        )
    deletion = image.deletions.of(topic_id)
    if deletion is None:
        raise _not_deleted(image, topic_id)
    if deletion.remote is Remote.ABANDONED:
        return Decision(Step(), AbandonedPurge(deletion=deletion, was_abandoned=True))
    if not deletion.is_purging:
        raise ApiError(Error.INVALID_REQUEST, _not_purging(deletion))
    left = context.purges.progress(deletion)
    after = replace(
        deletion,
        remote=Remote.ABANDONED,
        segments_left=left.segments_left,
        bytes_left=left.bytes_left,
    )
    records = () if validate_only else (header_record(after),)
    return Decision(Step(records), AbandonedPurge(deletion=after, was_abandoned=False))


def _not_deleted(image: ClusterImage, topic_id: Uuid) -> ApiError:
    topic = image.topics.by_id(topic_id)
    if topic is None:
        return ApiError(
            Error.UNKNOWN_TOPIC_ID,
            f"The deletion ledger has no topic with the id {uuid_text(topic_id)}.",
        )
    return ApiError(
        Error.INVALID_REQUEST,
        f"The topic {topic.name} ({uuid_text(topic_id)}) is not deleted: only the purge of a"
        " deleted topic can be abandoned.",
    )


def _not_purging(deletion: DeletionImage) -> str:
    which = f"of the topic {deletion.name} ({uuid_text(deletion.topic_id)})"
    match deletion.remote:
        case Remote.NONE:
            return f"No purge {which} is pending: it had no remote storage."
        case Remote.PURGED:
            return f"No purge {which} is pending: its remote tier is purged."
        case _:
            return f"The deletion {which} has not begun: it can still be cancelled."
