"""pyspark's daemon, having loaded what its forks need, which is most of what a small query costs.

    python -m tests.spark.loaded_daemon WORKER

pyspark leaves the imports to each fork, since libraries may start threads: these then do not.
"""

import gc
import os
from importlib import import_module

# Before the libraries are loaded; each of them starts threads otherwise.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["JE_ARROW_MALLOC_CONF"] = "background_thread:false"

LOADED = (
    "ottla.spark.source",
    "pandas",
    "pyarrow.compute",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
)


def main() -> None:
    """Load, then serve until the JVM closes the standard input."""
    from pyspark.daemon import manager

    for name in LOADED:
        import_module(name)
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
