"""What an audit finds: one value, and one row of its DataFrame, for each fault."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.base.ids import Uuid

FINDINGS_MAX: Final = 1_000
"""Findings of one kind in one partition that are rows of their own; one more row counts the rest.
A store that lost everything must not fill the driver's memory."""


class Severity(Enum):
    """How bad it is."""

    ERROR = "error"
    """Records cannot be read, or objects are where none may be."""
    WARNING = "warning"
    """Nothing is lost; it costs storage, or is about to become an error."""


class Kind(Enum):
    """What was found. The value is the column `kind`."""

    MISSING_OBJECT = "missing-object"
    """A readable segment has no .log object."""
    WRONG_SIZE = "wrong-size"
    MISSING_AUXILIARY = "missing-auxiliary"
    """A readable segment lacks an index, its producers' state or its leader epochs."""
    DAMAGED_AUXILIARY = "damaged-auxiliary"
    CRC_MISMATCH = "crc-mismatch"
    """A batch is damaged."""
    OFFSETS_NOT_COVERED = "offsets-not-covered"
    """The batches of a segment have not the offsets that its metadata name."""
    WRONG_LEADER_EPOCH = "wrong-leader-epoch"
    """A batch has another leader epoch than the segment's metadata say."""
    ORPHAN_OBJECT = "orphan-object"
    FOREIGN_OBJECT = "foreign-object"
    OFFSET_GAP = "offset-gap"
    OFFSET_OVERLAP = "offset-overlap"
    FENCED_SEGMENT = "fenced-segment"
    """A manifest lists a segment whose epoch was fenced, or is at the floor or below."""
    UNFINISHED_SEGMENT = "unfinished-segment"
    MANIFEST_MISSING = "manifest-missing"
    MANIFEST_DAMAGED = "manifest-damaged"
    MANIFEST_CHAIN_BROKEN = "manifest-chain-broken"
    MANIFEST_BEHIND = "manifest-behind"
    MANIFEST_AHEAD = "manifest-ahead"
    METADATA_MISSING = "metadata-missing"
    """Manifests list segments, and __remote_log_metadata has none of the partition."""
    LEFTOVER = "leftover"
    """An object or a segment of a deleted topic, or of a purge, that is said to be over."""
    UNKNOWN_TOPIC = "unknown-topic"
    NOT_AUDITED = "not-audited"
    """A partition could not be audited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault.

    Fields: `object`: the object's name in the store, or None. `start_offset`, `end_offset`: the
            offsets it is about, both inclusive, or None. `partition`: -1 = of the whole store.
    """

    topic: str
    topic_id: Uuid | None
    partition: int
    kind: Kind
    severity: Severity
    detail: str
    object: str | None = None
    start_offset: int | None = None
    end_offset: int | None = None

    @property
    def identity(self) -> tuple[str, str, int, str | None, int | None, int | None]:
        """What it is about, whatever the detail: for a comparison of two audits."""
        return (
            self.kind.value,
            self.topic,
            self.partition,
            self.object,
            self.start_offset,
            self.end_offset,
        )


def confirmed(first: Iterable[Finding], second: Iterable[Finding]) -> list[Finding]:
    """Return the findings of the second audit that the first one has, too."""
    known = {each.identity for each in first}
    return [each for each in second if each.identity in known]


def limited(findings: Iterable[Finding], most: int = FINDINGS_MAX) -> Iterator[Finding]:
    """Yield findings of one partition, at most so many of a kind, and how many more there are."""
    counts: Counter[Kind] = Counter()
    last: dict[Kind, Finding] = {}
    for each in findings:
        counts[each.kind] += 1
        last[each.kind] = each
        if counts[each.kind] <= most:
            yield each
    for kind, count in counts.items():
        if count > most:
            some = last[kind]
            yield Finding(
                topic=some.topic,
                topic_id=some.topic_id,
                partition=some.partition,
                kind=kind,
                severity=some.severity,
                detail=f"and {count - most} more of this kind in this partition",
            )
