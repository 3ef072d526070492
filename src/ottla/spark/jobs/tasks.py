"""Numbered units of work as Spark tasks, whose rows come back as Arrow batches."""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkAttributeError

T = TypeVar("T")

ROWS_PER_BATCH: Final = 1_000
TASKS_PER_CORE: Final = 4
CONNECT_CORES: Final = 8


def mapped(spark: Any, work: Callable[[Any], Iterator[Any]], units: int, schema: str) -> Any:
    """Return a DataFrame of what `work` yields for the numbers 0 to `units` - 1, at least for 0."""
    tasks = max(1, min(units, TASKS_PER_CORE * cores_of(spark)))
    return spark.range(0, max(units, 1), 1, tasks).mapInArrow(work, schema)


def cores_of(spark: Any) -> int:
    """Return the parallelism of a session; a guess with Spark Connect, which does not tell it."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkAttributeError:
        return CONNECT_CORES


def to_batches(rows: Iterator[dict[str, Any]], schema: Any) -> Iterator[Any]:
    """Yield rows as Arrow batches."""
    some: list[dict[str, Any]] = []
    for row in rows:
        some.append(row)
        if len(some) == ROWS_PER_BATCH:
            yield pa.RecordBatch.from_pylist(some, schema=schema)
            some = []
    if some:
        yield pa.RecordBatch.from_pylist(some, schema=schema)


def directly(act: Callable[[], T]) -> T:
    """Run a Spark action without showing its progress."""
    return act()


def ignore(line: str) -> None:
    """Show nothing."""
