"""Runs a job in a Spark session, with its progress on stderr.

The session is one on this machine, or where spark-submit or Spark Connect has placed it.

Spark is imported here only: the command says what to install where it is missing.
"""

import importlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from ottla.cli.errors import CommandError
from ottla.cli.progress import Progress

T = TypeVar("T")

POLL_SECONDS: Final = 0.25
REPORT_SECONDS: Final = 2.0
"""How often progress is printed where it is not one line that changes."""


def check_spark() -> None:
    """Raise CommandError where Spark is not installed."""
    try:
        for name in ("ottla.spark", "pyarrow", "pandas"):
            importlib.import_module(name)
    except ImportError as error:
        raise CommandError(
            f"this command runs on Spark, which is not installed: pip install 'ottla[spark]' "
            f"({error})"
        ) from None


@contextmanager
def local_session(app_name: str, progress: Progress) -> Iterator[Any]:
    """Start a session and stop it, unless there was one before. Raises: CommandError."""
    check_spark()
    from pyspark.sql import SparkSession

    import ottla.spark

    is_ours = SparkSession.getActiveSession() is None
    if is_ours:
        progress.wait("starting Spark")
    try:
        spark = ottla.spark.session(app_name)
    except ottla.spark.NoJavaError as error:
        raise CommandError(str(error)) from None
    try:
        yield spark
    finally:
        progress.done()
        if is_ours:
            spark.stop()


@contextmanager
def reported_errors() -> Iterator[None]:
    """Turn what store, brokers and Spark raise into CommandError."""
    from pyspark.errors import PySparkException

    from ottla.spark import errors
    from ottla.spark.jobs.documents import JournalError

    try:
        yield
    except (
        errors.ClusterError,
        errors.DataLossError,
        errors.OptionError,
        errors.RemoteStorageError,
        errors.WriteError,
        JournalError,
    ) as error:
        raise CommandError(str(error)) from None
    except PySparkException as error:
        reason = last_line(str(error))
        raise CommandError(f"Spark failed: {reason}{_hint(reason)}") from None


def last_line(text: str) -> str:
    """Return the last line of a Python traceback within Spark's: the error itself."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    if begins:
        # Of a chain of errors the last one was raised. Frames are indented, Java's too.
        errors = [each for each in lines[begins[-1] + 1 :] if each[:1].strip()]
        if errors:
            return errors[0].strip()
    return next((each.strip() for each in lines if each.strip()), "no reason given")


def _hint(reason: str) -> str:
    if not reason.startswith("ModuleNotFoundError"):
        return ""
    return '; executors lack it: see "On a cluster" in docs/spark.md'


_TRACEBACK: Final = "Traceback (most recent call last):"


def with_progress(spark: Any, what: str, progress: Progress, act: Callable[[], T]) -> T:
    """Run `act`, a Spark action, and show how many of its tasks are done."""
    result: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            result.append(act())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="spark-action", daemon=True)
    thread.start()
    last, shown_at = "", 0.0
    while thread.is_alive():
        thread.join(POLL_SECONDS)
        line = f"{what}: {_tasks_text(spark)}"
        if line != last and time.monotonic() - shown_at >= REPORT_SECONDS:
            progress.wait(line)
            last, shown_at = line, time.monotonic()
    progress.done()
    if failed:
        raise failed[0]
    return result[0]


def run_reported(
    app_name: str, what: str, job: Callable[..., T], options: object
) -> tuple[T, float]:
    """Run a job with its progress; return its result and the seconds that it took.

    `job` is called with a session, the options, and `act` and `report` as in `ottla.spark.jobs`.
    """
    progress, began = Progress(), time.monotonic()
    with local_session(app_name, progress) as spark:
        result = job(
            spark,
            options,
            act=lambda action: with_progress(spark, what, progress, action),
            report=progress.wait,
        )
    return result, time.monotonic() - began


def _tasks_text(spark: Any) -> str:
    from pyspark.errors import PySparkAttributeError

    try:
        tracker = spark.sparkContext.statusTracker()
    except PySparkAttributeError:  # Spark Connect has none.
        return "running"
    stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
    known = [each for each in stages if each is not None]
    if not known:
        return "planning"
    done = sum(each.numCompletedTasks for each in known)
    return f"{done} of {sum(each.numTasks for each in known)} tasks done"
