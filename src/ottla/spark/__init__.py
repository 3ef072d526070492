"""Topics as Spark tables: `format("ottla")`.

Importing this package registers the format with the running Spark session, if there is one.
Where Ottla is installed, later sessions find it by themselves (see `pyspark_ottla`); `session`
starts a local one that is set up for it. Knows brokers as any client does, and the object
store of tiered topics. Start at `source.py`.
"""

try:
    from pyspark.sql import SparkSession as _SparkSession
except ImportError as _error:  # pragma: no cover
    raise ImportError("ottla.spark needs PySpark: pip install 'ottla[spark]'") from _error

from ottla.spark.errors import (
    ClusterError,
    DataLossError,
    OptionError,
    RemoteStorageError,
    StreamOffsetError,
    WriteError,
)
from ottla.spark.java import NoJavaError
from ottla.spark.local_session import register, session
from ottla.spark.source import OttlaDataSource

__all__ = [
    "ClusterError",
    "DataLossError",
    "NoJavaError",
    "OptionError",
    "OttlaDataSource",
    "RemoteStorageError",
    "StreamOffsetError",
    "WriteError",
    "register",
    "session",
]

_active = _SparkSession.getActiveSession()
if _active is not None:
    register(_active)
del _active
