"""Computes the offsets of `--reset-offsets`: the parts that need no broker.

Source: ConsumerGroupCommand.prepareOffsetsToReset; java.time.Duration.parse; Utils.getDateTime.
"""

import csv
import io
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from ottla.cli.errors import CommandError, UsageError, shown
from ottla.cli.options import parse_ids
from ottla.client.partitions import TopicPartition

Plan = dict[TopicPartition, int]

_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d{1,18})D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d{1,18})H)?(?:(?P<minutes>[-+]?\d{1,18})M)?"
    r"(?:(?P<seconds>[-+]?\d{1,18}(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)
_OFFSET = re.compile(r"[0-9]{1,19}")  # Clamped to the log before use.
_DURATION_MAX_MS = 2**62  # A timestamp is a signed number of 64 bits.
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


def parse_duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration, as P1DT2H3M4.5S."""
    match = _DURATION.fullmatch(text.strip())
    parts = match.groupdict() if match else {}
    given = {unit: parts[unit] for unit in _UNIT_MS if parts.get(unit)}
    total = sum(
        round(float(value.replace(",", ".")) * _UNIT_MS[unit]) for unit, value in given.items()
    )
    is_empty = not given or (parts["time"] is not None and len(parts["time"]) == 1)
    if is_empty or abs(total) > _DURATION_MAX_MS:
        raise UsageError(
            f"--by-duration {shown(text)}: expected a duration as PnDTnHnMnS, like P1DT2H"
        )
    return -total if parts["sign"] == "-" else total


def parse_datetime_ms(text: str) -> int:
    """Return epoch milliseconds of `YYYY-MM-DDTHH:mm:SS.sss`, in UTC unless it names a zone."""
    expected = UsageError(
        f"--to-datetime {shown(text)}: expected YYYY-MM-DDTHH:mm:SS.sss, with a zone or in UTC"
    )
    if "T" not in text:
        raise expected
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise expected from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def parse_topics(arguments: list[str]) -> tuple[set[TopicPartition], set[str]]:
    """Return the partitions and the whole topics that --topic arguments name (`t` or `t:0,1`)."""
    partitions: set[TopicPartition] = set()
    topics: set[str] = set()
    for argument in arguments:
        topic, separator, listed = argument.partition(":")
        if not separator:
            topics.add(topic)
            continue
        found = parse_ids(listed)
        if not topic or found is None:
            raise UsageError(f"--topic {shown(argument)}: expected TOPIC or TOPIC:0,1,2")
        partitions.update((topic, partition) for partition in found)
    return partitions, topics


def parse_plan(text: str, only_group: str | None) -> dict[str, Plan]:
    """Return the offsets in CSV, by group.

    Lines are `group,topic,partition,offset`, or `topic,partition,offset` with `only_group`.
    """
    plans: dict[str, Plan] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        cells = [cell.strip() for cell in row]
        if not cells:
            continue
        if len(cells) == 3 and only_group is not None:
            cells = [only_group, *cells]
        if len(cells) != 4 or parse_ids(cells[2]) is None or not _OFFSET.fullmatch(cells[3]):
            expected = "topic,partition,offset" if only_group else "group,topic,partition,offset"
            raise CommandError(f"line {number}: {','.join(row)!r}: expected {expected}")
        group, topic, partition, offset = cells
        plans.setdefault(group, {})[topic, int(partition)] = int(offset)
    return plans


def format_plan(planned: Mapping[str, Mapping[TopicPartition, int]], *, one_group: bool) -> str:
    """Return planned offsets as CSV, which `parse_plan` reads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for group, offsets in sorted(planned.items()):
        for (topic, partition), offset in sorted(offsets.items()):
            row = (topic, partition, offset)
            writer.writerow(row if one_group else (group, *row))
    return out.getvalue()


def clamp(
    wanted: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> tuple[Plan, list[str]]:
    """Return offsets clamped to their logs, and a warning for each that changed."""
    plan: Plan = {}
    warnings = []
    for key, offset in sorted(wanted.items()):
        plan[key] = min(max(offset, starts[key]), ends[key])
        if plan[key] != offset:
            side = "higher than the latest" if offset > ends[key] else "lower than the earliest"
            warnings.append(
                f"New offset ({offset}) is {side} offset for topic partition "
                f"{key[0]}-{key[1]}. Value will be set to {plan[key]}"
            )
    return plan, warnings
