"""The options of a stream. Source: Spark's KafkaSourceProvider; `commitGroup`, `onRecreate` and
`maxBytesPerTrigger` are ours."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ottla.spark.errors import OptionError
from ottla.spark.options import ReadOptions
from ottla.spark.raw_options import RawOptions
from ottla.spark.streaming.advance import OnRecreate

TRIGGER_DELAY: Final = "15m"
_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What a stream reads, and how much at a time.

    Fields: `offsets_max`, `bytes_max`: what a batch reads at most, about; None = no limit.
            `offsets_min`: a batch waits until so many offsets are there, `delay_ms_max` at most.
            `commit_group`: the consumer group that the stream's position is committed to.
    """

    read: ReadOptions
    offsets_max: int | None
    bytes_max: int | None
    offsets_min: int | None
    delay_ms_max: int
    commit_group: str | None
    on_recreate: OnRecreate

    @staticmethod
    def of(options: Mapping[str, str]) -> "StreamOptions":
        """Parse the options; raise OptionError where one is missing or wrong."""
        raw = RawOptions.of(options)
        read = ReadOptions.of(options, streaming=True)
        default = OnRecreate.FAIL if read.fail_on_data_loss else OnRecreate.RESTART
        choices = tuple(each.value for each in OnRecreate)
        found = StreamOptions(
            read=read,
            offsets_max=raw.number("maxOffsetsPerTrigger", None, 1),
            bytes_max=raw.number("maxBytesPerTrigger", None, 1),
            offsets_min=raw.number("minOffsetsPerTrigger", None, 1),
            delay_ms_max=_delay_ms(raw),
            commit_group=_commit_group(raw, read),
            on_recreate=OnRecreate(raw.choice("onRecreate", default.value, choices)),
        )
        if found.offsets_min is not None and found.offsets_min > (
            found.offsets_max or found.offsets_min
        ):
            raise OptionError(
                f"option minOffsetsPerTrigger={found.offsets_min}: expected at most "
                f"maxOffsetsPerTrigger={found.offsets_max}"
            )
        return found


def _delay_ms(raw: RawOptions) -> int:
    text = raw.text("maxTriggerDelay", TRIGGER_DELAY) or ""
    matched = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.lower())
    if matched is None or matched[2] not in _UNITS_MS:
        raise OptionError(
            f"option maxTriggerDelay={text}: expected a duration such as 500ms, 30s, 15m or 1h"
        )
    return int(matched[1]) * _UNITS_MS[matched[2]]


def _commit_group(raw: RawOptions, read: ReadOptions) -> str | None:
    group = raw.text("commitGroup")
    if group == "":
        raise OptionError("option commitGroup is empty: expected the name of a consumer group")
    if group is not None and read.cluster is None:
        raise OptionError("option commitGroup needs brokers: expected kafka.bootstrap.servers too")
    return group
