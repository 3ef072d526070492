"""How ranges of offsets are printed: those that a job would read, has read, or has lost."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.progress import print_stderr

if TYPE_CHECKING:
    from ottla.spark.jobs.documents import OffsetRange

PLAN_TITLES = ("PARTITION", "OFFSETS", "COUNT")


def range_json(each: "OffsetRange") -> dict[str, int]:
    """Return a range as JSON."""
    return {"partition": each.partition, "start_offset": each.start, "end_offset": each.end}


def range_cells(topic: str, each: "OffsetRange") -> tuple[str, str]:
    """Return the first cells of a range's row."""
    return f"{topic}-{each.partition}", f"{each.start}..{each.end - 1}"


def plan_rows(topic: str, ranges: "Sequence[OffsetRange]") -> list[tuple[str, ...]]:
    """Return the table of what would be read, with its titles."""
    return [PLAN_TITLES, *((*range_cells(topic, each), str(len(each))) for each in ranges)]


def print_result(
    losses: Sequence[str], document: dict[str, Any], lines: Sequence[str], *, as_json: bool
) -> None:
    """Print what a job did, and on stderr what it could not read any more."""
    for each in losses:
        print_stderr(f"lost: {each}")
    print(json.dumps(document) if as_json else "\n".join(lines))
