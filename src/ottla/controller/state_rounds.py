"""What one round of either state machine gathers, and the checks that both make."""

from dataclasses import dataclass

from ottla.base.ids import NO_UUID, Uuid
from ottla.controller.request_batch import new_batch
from ottla.controller.state_context import PartitionKey, ReplicaKey, StateContext
from ottla.metadata.records import PartitionChangeRecord, PartitionRecord
from ottla.metadata.topics import PartitionImage, changed_partition, partition_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A partition or replica that stays as it was. `illegal`: its table has no such transition,
    else the transition was legal and could not be done, as `reason` says.
    """

    subject: PartitionKey | ReplicaKey
    reason: str
    illegal: bool = False


class Round:
    """One round: the next context, the records, the batch, and who was refused."""

    def __init__(self, context: StateContext) -> None:
        self.context = context
        self.draft = context.draft()
        self.batch = new_batch(context)
        self.records: list[PartitionRecord | PartitionChangeRecord] = []
        self.refused: list[Refused] = []
        self.unclean = 0

    def refuse(
        self, subject: PartitionKey | ReplicaKey, reason: str, *, illegal: bool = False
    ) -> None:
        """Leave one as it was."""
        self.refused.append(Refused(subject=subject, reason=reason, illegal=illegal))

    def is_another_controllers(self, key: PartitionKey) -> bool:
        """Tell whether a newer controller has written this partition: then this one is deposed."""
        return self.draft.written_by(key) > self.context.controller_epoch

    def change(
        self, key: PartitionKey, before: PartitionImage, record: PartitionChangeRecord
    ) -> PartitionImage:
        """Note a change of a partition; return the partition after it."""
        after = changed_partition(before, record)
        # Who else would know which replicas have every acknowledged record? (KAFKA-708)
        assert after.isr
        self.records.append(record)
        self.draft.set_partition(key, after, written_by=self.context.controller_epoch)
        return after

    def create(self, key: PartitionKey, record: PartitionRecord) -> PartitionImage:
        """Note a partition's first leadership; return the partition with it."""
        created = partition_of(record)
        assert created.isr
        self.records.append(record)
        self.draft.set_partition(key, created, written_by=self.context.controller_epoch)
        return created

    def topic_id(self, key: PartitionKey) -> Uuid:
        """Return the id of a partition's topic, zero where it has none."""
        return self.context.topic_ids.get(key.topic, NO_UUID)
