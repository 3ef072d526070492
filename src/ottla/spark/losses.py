"""What is said of records that are gone."""

from collections.abc import Iterable

from ottla.spark.errors import DataLossError
from ottla.spark.raw_options import log
from ottla.spark.splits import Split


def report_losses(losses: list[str], *, fail: bool) -> None:
    """Raise DataLossError for lost records, or log them with `fail` false."""
    if losses and fail:
        raise DataLossError(
            f"{'; '.join(losses)}. With failOnDataLoss=false the query continues without them."
        )
    for each in losses:
        log.warning("data loss: %s", each)


def missing_records(split: Split, gaps: Iterable[tuple[int, int]]) -> list[str]:
    """Return a message for each gap [from, to) in a topic that is not compacted."""
    return [
        f"{split.topic}-{split.partition}: records are missing among offsets {start} to {end - 1} "
        "of a topic that is not compacted (expected where it was compacted in the past)"
        for start, end in gaps
    ]


def shorter(split: Split, latest: int, offset: int | None = None) -> str:
    """Return the message for a log that ends within a split."""
    first = latest if offset is None else offset
    return (
        f"{split.topic}-{split.partition}: offsets {first} to {split.end - 1} are lost; "
        f"the log ends at {latest}"
    )


def expired(split: Split, offset: int, until: int) -> str:
    """Return the message for offsets below the log start."""
    return (
        f"{split.topic}-{split.partition}: offsets {offset} to {until - 1} are no longer available"
    )


def deleted(split: Split, offset: int) -> str:
    """Return the message for a topic that is not there any more."""
    gone = f"; offsets {offset} to {split.end - 1} of the former one are lost"
    return (
        f"{split.topic}-{split.partition}: the topic was deleted, or deleted and re-created, "
        f"since the query was planned{gone if offset < split.end else ''}"
    )
