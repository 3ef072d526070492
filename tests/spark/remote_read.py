"""A client of the Spark Connect server of SPARK_REMOTE: reads a tiered topic, copies it, runs jobs.

The first queries need nothing of Ottla on the client. It prints JSON.
"""

import contextlib
import io
import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main(bootstrap: str, store: str, topic: str, target: str) -> None:
    spark = SparkSession.builder.getOrCreate()

    def load(name: str) -> Any:
        reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("ottla.remote.storage.uri", store)
        return reader.option("subscribe", name).load()

    rows = load(topic).select("partition", "offset", "key").collect()
    writer = load(topic).select("key", "value").write.format("ottla").mode("append")
    writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target).save()
    before = sorted(name for name in sys.modules if name.startswith("ottla"))

    import ottla.spark
    from ottla.cli.main import main as ottla_command
    from ottla.client.cluster import ClientConfig
    from ottla.spark.jobs.audit import AuditOptions, audit

    again = ottla.spark.session("remote")
    options = AuditOptions(
        remote_storage=store, cluster=ClientConfig(bootstrap=bootstrap), deep=True
    )
    findings = [row.asDict() for row in audit(again, options).collect()]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        ottla_command(
            ["pipeline", "retention-report", "--json", "--topic", topic, "--bootstrap-server",
             bootstrap, "--remote-storage", store, "--retention-ms", "0"]
        )  # fmt: skip
    found = {
        "rows": sorted([row.partition, row.offset, bytes(row.key).decode()] for row in rows),
        "before": before,
        "session": type(again).__module__,
        # Read with the format that `session` has registered.
        "copied": load(target).count(),
        "findings": findings,
        "report": json.loads(printed.getvalue()),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
