"""A program for spark-submit: reads a tiered topic, and tells where its tasks ran. Prints JSON.

It runs with a packed environment: nothing of the tests is there.
"""

import json
import sys

import ottla.spark

TASKS = 4


def place(batches):  # type: ignore[no-untyped-def]
    """Run in a task: return the places of what it imports."""
    import time

    import obstore
    import pyarrow as pa

    import ottla

    time.sleep(0.5)  # So that each executor gets one.
    for _ in batches:
        yield pa.RecordBatch.from_pylist([{"ottla": ottla.__file__, "obstore": obstore.__file__}])


def main(bootstrap: str, store: str, topic: str) -> None:
    spark = ottla.spark.session("read")
    frame = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("ottla.remote.storage.uri", store)
        .option("subscribe", topic)
        .load()
    )
    rows = frame.select("partition", "offset", "key").collect()
    tasks = spark.range(0, TASKS, 1, TASKS).mapInArrow(place, "ottla string, obstore string")
    found = {
        "master": spark.sparkContext.master,
        "rows": sorted([row.partition, row.offset, row.key.decode()] for row in rows),
        "places": sorted({each for row in tasks.collect() for each in row}),
        "path": sys.path,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
