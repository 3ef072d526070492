"""`ottla pipeline`: jobs over topics and their remote segments, on Spark on this machine.

The jobs are functions of `ottla.spark.jobs`. Under spark-submit the same commands run on a cluster.
"""

from ottla.cli.pipeline.audit_command import audit
from ottla.cli.pipeline.backfill_command import backfill
from ottla.cli.pipeline.export_command import export
from ottla.cli.pipeline.purge_check_command import purge_check
from ottla.cli.pipeline.replay_command import replay
from ottla.cli.pipeline.retention_command import retention_report
from ottla.cli.typing_app import examples, new_app, run_app

app = new_app()

EPILOG = examples(
    "ottla pipeline audit --bootstrap-server localhost:9092 --remote-storage s3://bucket/prefix",
    "ottla pipeline audit --remote-storage file:///mnt/store --topic orders --plan",
    "ottla pipeline audit --bootstrap-server localhost:9092 --remote-storage … --deep --json",
    "ottla pipeline purge-check --bootstrap-server localhost:9092 --remote-storage …",
    "ottla pipeline retention-report --remote-storage … --retention-ms 7d,30d,unlimited",
    "ottla pipeline export --bootstrap-server localhost:9092 --topic orders --to /lake/orders",
    "ottla pipeline replay --bootstrap-server localhost:9092 --topic orders --to orders-again "
    "--state /var/replays/1",
    "ottla pipeline backfill --bootstrap-server localhost:9092 --remote-storage … --topic orders",
)


@app.callback(epilog=EPILOG)
def pipeline() -> None:
    """Fill, check and measure tiered storage, export and replay topics, with Spark."""


app.command("audit", epilog=EPILOG)(audit)
app.command("purge-check", epilog=EPILOG)(purge_check)
app.command("retention-report", epilog=EPILOG)(retention_report)
app.command("export", epilog=EPILOG)(export)
app.command("replay", epilog=EPILOG)(replay)
app.command("backfill", epilog=EPILOG)(backfill)


def run(words: list[str]) -> int:
    """Run a job."""
    return run_app(app, "pipeline", words, {})
