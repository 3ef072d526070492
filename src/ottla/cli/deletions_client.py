"""Asking a cluster for its deletion ledger, over the wire (DescribeDeletions)."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ottla.base.ids import NO_UUID, Uuid, uuid_text
from ottla.cli.errors import CommandError
from ottla.cli.topic_filter import compile_filter
from ottla.cli.wire_client import WireClient, check
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
"""Names that mean only themselves; a dot would be a regular expression's."""


class CannotTell(CommandError):
    """The brokers do not speak of deletions in words that are understood here: for good."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries of the ledger are meant: of a name or expression, of an id, or all."""

    text: str | None = None
    topic_id: Uuid | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Return the names that are meant; None where it takes the whole ledger to tell."""
        if self.text is None or not _NAMES.fullmatch(self.text):
            return None
        return tuple(dict.fromkeys(self.text.split(",")))

    @property
    def is_everything(self) -> bool:
        """Tell whether nothing in particular is meant."""
        return self.text is None and self.topic_id is None

    def missing(self, found: Iterable[DeletionImage]) -> list[str]:
        """Return what is meant and not found, in words."""
        deletions = list(found)
        if self.topic_id is not None:
            return [] if deletions else [f"a topic of the id {uuid_text(self.topic_id)}"]
        if self.text is None:
            return []
        if self.names is None:
            return [] if deletions else [f"a topic that matches {self.text!r}"]
        present = {each.name for each in deletions}
        return [f"a topic {name!r}" for name in self.names if name not in present]


def check_served(client: WireClient) -> None:
    """Raise CannotTell where the cluster does not know what to answer."""
    if not client.serves(wire.DescribeDeletionsRequest):
        raise CannotTell(
            f"the brokers at {client.bootstrap} cannot tell of deletions: they are Kafka's, or an "
            "older Ottla's"
        )


def fetch(client: WireClient, selection: Selection, *, receipts: bool) -> list[DeletionImage]:
    """Return what the ledger has of it, by name, older deletions first. Raises: Refusal."""
    topics: tuple[wire.DescribeDeletionsTopic, ...] = ()
    if selection.topic_id is not None:
        topics = (wire.DescribeDeletionsTopic(topic_id=selection.topic_id),)
    elif selection.names is not None:
        topics = tuple(wire.DescribeDeletionsTopic(name=name) for name in selection.names)
    found = _ask(client, topics, receipts)
    if selection.text is None or topics:
        return found
    pattern = compile_filter(selection.text)
    return [each for each in found if pattern.fullmatch(each.name)]


def fetch_ids(client: WireClient, topic_ids: Collection[Uuid]) -> list[DeletionImage]:
    """Return the entries of some ids, finished or not. Raises: Refusal."""
    topics = tuple(wire.DescribeDeletionsTopic(topic_id=each) for each in sorted(topic_ids))
    return _ask(client, topics, receipts=True)


def _ask(
    client: WireClient, topics: tuple[wire.DescribeDeletionsTopic, ...], receipts: bool
) -> list[DeletionImage]:
    found: list[DeletionImage] = []
    after = NO_UUID
    while True:
        request = wire.DescribeDeletionsRequest(
            topics=topics, include_receipts=receipts, after=after
        )
        answer = client.ask(request, wire.DescribeDeletionsResponse)
        check("deletions", answer.error_code, answer.error_message)
        found += map(told_deletion, answer.deletions)
        after = answer.next_after
        if after == NO_UUID:
            return sorted(found, key=lambda each: (each.name, each.asked_ms, each.topic_id))


def told_deletion(said: wire.DescribedDeletion) -> DeletionImage:
    """Return an entry as the image has it. Raises: CannotTell."""
    try:
        deletion = DeletionImage(
            topic_id=said.topic_id,
            name=said.name,
            policy=Policy(said.policy),
            asked_ms=said.asked_ms,
            halted=HaltReason(said.halted),
            remote=Remote(said.remote),
            finished_ms=said.finished_ms,
        )
        for row in said.replicas:
            standing = ReplicaStatus(DeletionState(row.state), Reason(row.reason), row.error)
            deletion = deletion.with_status(row.broker_id, standing, row.partitions)
    except ValueError as error:
        raise CannotTell(
            f"topic {said.name}: the brokers say what this version of the command does not know "
            f"({error}): expected one of their version"
        ) from None
    return deletion
