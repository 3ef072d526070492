"""The deletion ledger over the wire: DescribeDeletions."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ottla.base.ids import NO_UUID, Uuid, uuid_text
from ottla.cli.errors import CommandError
from ottla.cli.topics.ledger_entry import LedgerEntry
from ottla.cli.topics.topic_filter import compile_filter
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.metadata.deletions import (
    DeletionImage,
    DeletionState,
    HaltReason,
    Policy,
    Reason,
    Remote,
    ReplicaStatus,
)
from ottla.wire.messages import describe_deletions as wire

_NAMES = re.compile(r"[\w-]+(,[\w-]+)*", re.ASCII)
"""Plain names. A name with a dot is a regular expression."""


class LedgerUnsupported(CommandError):
    """The brokers lack DescribeDeletions, or use values that this command does not know."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which ledger entries to show: by name or regular expression, by topic id, or all."""

    text: str | None = None
    topic_id: Uuid | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Return the plain names; None where the text is a regular expression or absent."""
        if self.text is None or not _NAMES.fullmatch(self.text):
            return None
        return tuple(dict.fromkeys(self.text.split(",")))

    @property
    def is_everything(self) -> bool:
        """Tell whether neither name nor id is given."""
        return self.text is None and self.topic_id is None

    def missing(self, found: Iterable[DeletionImage]) -> list[str]:
        """Return descriptions of what was selected and not found."""
        deletions = list(found)
        if self.topic_id is not None:
            return [] if deletions else [f"a topic of the id {uuid_text(self.topic_id)}"]
        if self.text is None:
            return []
        if self.names is None:
            return [] if deletions else [f"a topic that matches {self.text!r}"]
        present = {each.name for each in deletions}
        return [f"a topic {name!r}" for name in self.names if name not in present]


def check_served(client: ClusterClient) -> None:
    """Raise LedgerUnsupported where the cluster does not serve DescribeDeletions."""
    if not client.serves(wire.DescribeDeletionsRequest):
        raise LedgerUnsupported(
            f"the brokers at {client.config.bootstrap} do not serve DescribeDeletions: "
            "they run Kafka or an older version of Ottla"
        )


def fetch(client: ClusterClient, selection: Selection, *, receipts: bool) -> list[DeletionImage]:
    """Return the selected entries, by name, older deletions first. Raises: Refusal."""
    topics: tuple[wire.DescribeDeletionsTopic, ...] = ()
    if selection.topic_id is not None:
        topics = (wire.DescribeDeletionsTopic(topic_id=selection.topic_id),)
    elif selection.names is not None:
        topics = tuple(wire.DescribeDeletionsTopic(name=name) for name in selection.names)
    found = _describe(client, topics, receipts)
    if selection.text is None or topics:
        return found
    pattern = compile_filter(selection.text)
    return [each for each in found if pattern.fullmatch(each.name)]


def fetch_ids(client: ClusterClient, topic_ids: Collection[Uuid]) -> list[DeletionImage]:
    """Return the entries of topic ids, finished ones too. Raises: Refusal."""
    topics = tuple(wire.DescribeDeletionsTopic(topic_id=each) for each in sorted(topic_ids))
    return _describe(client, topics, receipts=True)


def _describe(
    client: ClusterClient, topics: tuple[wire.DescribeDeletionsTopic, ...], receipts: bool
) -> list[DeletionImage]:
    found: list[DeletionImage] = []
    after = NO_UUID
    while True:
        request = wire.DescribeDeletionsRequest(
            topics=topics, include_receipts=receipts, after=after
        )
        response = client.ask(request, wire.DescribeDeletionsResponse)
        check("deletions", response.error_code, response.error_message)
        found += map(deletion_image, response.deletions)
        after = response.next_after
        if after == NO_UUID:
            return sorted(found, key=lambda each: (each.name, each.asked_ms, each.topic_id))


def deletion_image(described: wire.DescribedDeletion) -> DeletionImage:
    """Return the entry of a response as the metadata image holds it. Raises: LedgerUnsupported."""
    deletion: DeletionImage
    try:
        deletion = LedgerEntry(
            topic_id=described.topic_id,
            name=described.name,
            policy=Policy(described.policy),
            asked_ms=described.asked_ms,
            halted=HaltReason(described.halted),
            remote=Remote(described.remote),
            finished_ms=described.finished_ms,
            purge_partitions=described.remote_partitions,
            purge_partitions_left=described.remote_partitions_left,
            purge_segments_left=described.remote_segments_left,
            purge_bytes_left=described.remote_bytes_left,
            purge_error=described.remote_error,
        )
        for row in described.replicas:
            standing = ReplicaStatus(DeletionState(row.state), Reason(row.reason), row.error)
            deletion = deletion.with_status(row.broker_id, standing, row.partitions)
    except ValueError as error:
        raise LedgerUnsupported(
            f"topic {described.name}: the response holds a value that this command does not know "
            f"({error}): use the command of the brokers' version"
        ) from None
    return deletion
