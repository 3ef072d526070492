"""A driver of its own for one streaming query, to be killed: `python -m … '{"topic": …}'`.

It writes its process ids into a file, so that it can be killed from outside too.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import ottla.spark
from tests.spark.conftest import QUICK
from tests.spark.failing_source import FailingSource


def query(spark: Any, spec: dict[str, Any], failure: dict[str, Any]) -> Any:
    """Start the query of a specification; it ends when it has read everything."""
    directory = Path(spec["directory"])
    reader = spark.readStream.format("failing").option("failure", json.dumps(failure))
    for name, value in spec["options"].items():
        reader = reader.option(name, value)
    writer = reader.load().writeStream.format("parquet").option("path", str(directory / "rows"))
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def main() -> None:
    spec, failure = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    spark = ottla.spark.session("killed", master="local[2]", config=QUICK)
    spark.dataSource.register(FailingSource)
    pids = [os.getpid(), spark.sparkContext._gateway.proc.pid]
    counters = Path(failure["counters"])
    (counters / "pids.new").write_text(json.dumps(pids))
    (counters / "pids.new").rename(counters / "pids")
    if failure["call"]:
        failure["pids"] = pids
    query(spark, spec, failure).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
