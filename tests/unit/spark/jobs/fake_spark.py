"""A session that runs the tasks of a job in this process, one after the other."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa


class FakeSpark:
    """What `ottla.spark.jobs.tasks` needs of a session."""

    class sparkContext:  # noqa: N801
        defaultParallelism = 2  # noqa: N815

    def range(self, start: int, end: int, step: int, tasks: int) -> "FakeFrame":
        return FakeFrame([list(range(number, end, tasks)) for number in range(start, tasks)])


class FakeFrame:
    """The numbers of each task, and what is done with them."""

    def __init__(self, tasks: list[list[int]]) -> None:
        self._tasks = tasks
        self._work: Callable[[Iterator[Any]], Iterator[Any]] | None = None

    def mapInArrow(self, work: Any, schema: str) -> "FakeFrame":  # noqa: N802
        self._work = work
        return self

    def collect(self) -> list[Any]:
        assert self._work is not None
        rows: list[Any] = []
        for numbers in self._tasks:
            batch = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], names=["id"])
            for found in self._work(iter([batch])):
                rows += map(FakeRow, found.to_pylist())
        return rows


class FakeRow:
    """A row."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def asDict(self) -> dict[str, Any]:  # noqa: N802
        return self._values
