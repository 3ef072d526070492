"""Lets Spark find `format("ottla")` by itself.

Spark imports every installed top-level module whose name begins with `pyspark_` and registers its
`DefaultSource`. Where what the format needs is not installed this module has none: an error here
would make Spark fail for other formats too. A warning on the driver's stderr says what is missing.
"""

import logging

try:
    from ottla.spark.source import OttlaDataSource as DefaultSource
except ImportError as _error:
    logging.getLogger("ottla.spark").warning(
        'format("ottla") is not available: %s; see "On a cluster" in docs/spark.md', _error
    )

__all__ = ["DefaultSource"]
