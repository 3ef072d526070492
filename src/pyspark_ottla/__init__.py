"""Lets Spark find `format("ottla")` by itself.

Spark imports every installed top-level module whose name begins with `pyspark_` and registers its
`DefaultSource`. Where what the format needs is not installed this module has none: an error here
would make Spark fail for other formats too.
"""

from contextlib import suppress

with suppress(ImportError):
    from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
