"""Lets Spark find `format("ottla")` by itself.

Spark imports every installed top-level module whose name begins with `pyspark_` and registers its
`DefaultSource`.
"""

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
