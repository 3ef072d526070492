"""An entry of the deletion ledger as the controller describes it: with the purge's progress."""

from dataclasses import dataclass

from ottla.cli.tier.tier_text import size_text
from ottla.metadata.deletions import DeletionImage, Remote

UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry(DeletionImage):
    """A deletion, and how far a pending purge of the remote tier is.

    Fields: `purge_partitions`, `purge_partitions_left`: all, and those that are not purged.
            `purge_segments_left`, `purge_bytes_left`: as far as reported, also of an abandoned
            purge. -1 = not known, or no purge is pending. `purge_error`: of the last failure, None
            = there is none.
    """

    purge_partitions: int = UNKNOWN
    purge_partitions_left: int = UNKNOWN
    purge_segments_left: int = UNKNOWN
    purge_bytes_left: int = UNKNOWN
    purge_error: str | None = None


def purge_text(deletion: DeletionImage) -> str:
    """Return the state of a deleted topic's remote tier, in words."""
    if deletion.remote is Remote.ABANDONED and isinstance(deletion, LedgerEntry):
        left = segments_text(deletion.purge_segments_left, deletion.purge_bytes_left)
        return "abandoned" if left is None else f"abandoned, {left} left"
    if deletion.remote is not Remote.PENDING:
        return deletion.remote.name.lower()
    if not isinstance(deletion, LedgerEntry) or deletion.purge_partitions_left < 0:
        return "pending"
    text = f"pending, {deletion.purge_partitions_left} of {deletion.purge_partitions} partitions"
    if deletion.purge_segments_left >= 0:
        text += f", {deletion.purge_segments_left} segments"
    text += " left"
    return text if deletion.purge_error is None else f"{text}; last error: {deletion.purge_error}"


def segments_text(segments: int, size_bytes: int) -> str | None:
    """Return what an abandoned purge has left in the store; None where nothing was reported."""
    if segments < 0:
        return None
    text = f"{segments} segment" + ("" if segments == 1 else "s")
    return text if size_bytes < 0 else f"{text} ({size_text(size_bytes)})"
