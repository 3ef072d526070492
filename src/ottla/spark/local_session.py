"""A SparkSession in which `format("ottla")` works: on this machine, or where it was submitted."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from ottla.spark.java import find_java_home
from ottla.spark.source import OttlaDataSource

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_DEFAULTS: Final = {
    # Not spark.python.unix.domain.socket.enabled: it scans no faster, and makes the processes
    # that plan Python sources end with a broken pipe on stderr.
    # Topics have few partitions compared to Spark's default of 200 for joins and groups.
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_DEFAULTS: Final = {
    # Executors of a cluster could not reach such a driver.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
}
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""In the environment of a driver that spark-submit has started."""
_REMOTE: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""In the environment where sessions are those of a Spark Connect server."""


def session(
    app_name: str = "ottla",
    *,
    master: str = "local[*]",
    config: Mapping[str, str] | None = None,
    log_level: str = "ERROR",
) -> SparkSession:
    """Return a SparkSession in which `format("ottla")` works.

    Under spark-submit, or where SPARK_REMOTE names a Spark Connect server, it is a session there,
    with what was submitted or what the server has; of the fields only `app_name` and `config`
    count then. Else it is one on this machine.

    Fields: `config`: Spark settings; they override the defaults: UTC, no web UI, a driver that
            listens on 127.0.0.1 only, 1 GB of memory.
            `log_level`: Spark's own log level.
    Raises: NoJavaError where there is no Java 17 or newer.
    Order:  sets JAVA_HOME and PYSPARK_PYTHON in the environment where they are not set; returns
            the running session, where there is one, with the settings that can still change.
    """
    if is_placed():
        return _configured(SparkSession.builder.appName(app_name), config or {})
    is_local = master.startswith("local")
    settings = {**_DEFAULTS, **(_LOCAL_DEFAULTS if is_local else {}), **(config or {})}
    if SparkSession.getActiveSession() is None:
        os.environ["JAVA_HOME"] = str(find_java_home())
        # Workers must run this Python, even if the environment is not activated.
        if is_local:
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        settings = _with_logging(settings, log_level)
    spark = _configured(SparkSession.builder.appName(app_name).master(master), settings)
    spark.sparkContext.setLogLevel(log_level)
    return spark


def is_placed() -> bool:
    """Tell whether spark-submit or Spark Connect has said where Spark runs."""
    return any(os.environ.get(name) for name in (_SUBMITTED, *_REMOTE))


def _configured(builder: Any, settings: Mapping[str, str]) -> Any:
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: Any) -> None:
    """Register `format("ottla")` with a session; idempotent."""
    spark.dataSource.register(OttlaDataSource)


def _with_logging(settings: dict[str, str], level: str) -> dict[str, str]:
    """Add a logging configuration: Spark ignores its log level while it starts."""
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "log4j" in options:
        return settings
    quiet = (
        f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} -Dottla.spark.log.level={level.lower()}"
    )
    return {**settings, "spark.driver.extraJavaOptions": f"{quiet} {options}".strip()}
