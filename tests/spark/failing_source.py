"""`format("failing")`: the source under test, with failures at named calls of its stream reader.

    {"call": "partitions", "when": "before", "nth": 2, "pids": [41, 42], "counters": "/tmp/run-7"}

At the second call of `partitions` of this run, before it does anything, the processes are killed;
without `pids` the call raises. For `read`, `middle` is after its first rows. Calls are counted in
files, because they are made in several processes.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from ottla.spark.source import OttlaDataSource
from ottla.spark.streaming.options import StreamOptions
from ottla.spark.streaming.reader import StreamReader


class Failure(Exception):
    """What a call raises."""


class FailingReader(StreamReader):
    """The stream reader under test."""

    def __init__(self, options: StreamOptions, columns: tuple[str, ...], point: Any) -> None:
        super().__init__(options, columns)
        self.point = point

    def reach(self, call: str, when: str) -> None:
        """Fail here, if this is where."""
        if (call, when) != (self.point["call"], self.point["when"]):
            return
        counter = Path(self.point["counters"]) / f"{call}-{when}"
        with counter.open("ab", buffering=0) as file:
            file.write(b".")
            # Where this byte is, not how many there are: another task may just have written one.
            number = file.tell()
        if number == self.point["nth"]:
            fail(self.point.get("pids", []))

    def called(self, call: str, act: Callable[[], Any]) -> Any:
        self.reach(call, "before")
        result = act()
        self.reach(call, "after")
        return result

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self.called("initialOffset", super().initialOffset)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.called("prepare", super().prepareForTriggerAvailableNow)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return self.called(
            "latestOffset", lambda: super(FailingReader, self).latestOffset(start, limit)
        )

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        act = super().partitions
        return self.called("partitions", lambda: act(start, end))

    def commit(self, end: dict[str, Any]) -> None:
        act = super().commit
        self.called("commit", lambda: act(end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        self.reach("read", "before")
        for batch in super().read(partition):
            half = max(1, batch.num_rows // 2)
            yield batch.slice(0, half)
            self.reach("read", "middle")
            yield batch.slice(half)
        self.reach("read", "after")


class FailingSource(OttlaDataSource):
    """The format under test; its option `failure` says where it fails."""

    def __init__(self, options: dict[str, str]) -> None:
        mine = {name: value for name, value in options.items() if name.lower() != "failure"}
        super().__init__(mine)
        self.point = json.loads({name.lower(): each for name, each in options.items()}["failure"])

    @classmethod
    def name(cls) -> str:
        return "failing"

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802
        reader = super().streamReader(schema)
        return FailingReader(reader.options, reader.columns, self.point)


def fail(pids: list[int]) -> None:
    if not pids:
        raise Failure("this call fails")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    time.sleep(5)  # It must not go on before the others have ended.
    os._exit(1)
