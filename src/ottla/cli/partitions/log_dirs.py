"""`ottla log-dirs`: the disk usage of replicas. As kafka-log-dirs.sh, JSON included."""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Any

import typer

from ottla.cli.errors import CommandError, UsageError, shown
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    connect,
    parse_ids,
)
from ottla.cli.typing_app import examples, new_app
from ottla.client.errors import check, reason_of
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

app = new_app()

EPILOG = examples(
    "ottla log-dirs --bootstrap-server localhost:9092 --describe",
    "ottla log-dirs --bootstrap-server localhost:9092 --describe --topic-list orders "
    "--broker-list 1,2",
)

VERSION = 1


@app.command("log-dirs", epilog=EPILOG)
def log_dirs(
    bootstrap_server: BootstrapServer = None,
    describe: Annotated[bool, typer.Option("--describe", help="Show the log directories.")] = False,
    topic_list: Annotated[
        str, typer.Option("--topic-list", metavar="A,B", help="Only these topics.")
    ] = "",
    broker_list: Annotated[
        str, typer.Option("--broker-list", metavar="1,2", help="Only these brokers.")
    ] = "",
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Show the log directories of brokers, and the size of each replica in them.

    Segments that are in remote storage alone are not counted: see `ottla tier describe`.
    """
    if not describe:
        raise UsageError("--describe is required")
    topics = {topic for topic in topic_list.split(",") if topic}
    words = ",".join(word for word in broker_list.split(",") if word.strip())
    wanted = parse_ids(words) if words else []
    if wanted is None:
        raise UsageError(f"--broker-list {shown(broker_list)}: expected broker ids, as 1,2")
    with connect(bootstrap_server, command_config, timeout, "log-dirs-tool") as client:
        live = client.broker_ids()
        unknown = sorted(set(wanted) - set(live))
        if unknown:
            raise CommandError(
                f"no live broker has the id {_ids(unknown)}: expected some of {_ids(live)}"
            )
        queried = sorted(set(wanted)) or live
        print("Querying brokers for log directories information")
        results = {}
        for broker in queried:
            response = client.ask(
                DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, node=broker
            )
            check(f"broker {broker}", response.error_code)
            results[broker] = response.results
    print(f"Received log directory information from brokers {_ids(queried)}")
    print(format_json(results, topics))


def format_json(
    results: Mapping[int, tuple[DescribeLogDirsResult, ...]], topics: AbstractSet[str]
) -> str:
    """Return the tool's JSON; no topics means all."""
    brokers = [
        {"broker": broker, "logDirs": [_directory(each, topics) for each in results[broker]]}
        for broker in sorted(results)
    ]
    return json.dumps({"version": VERSION, "brokers": brokers}, separators=(",", ":"))


def _directory(result: DescribeLogDirsResult, topics: AbstractSet[str]) -> dict[str, Any]:
    partitions = [
        {
            "partition": f"{topic.name}-{each.partition_index}",
            "size": each.partition_size,
            "offsetLag": each.offset_lag,
            "isFuture": each.is_future_key,
        }
        for topic in sorted(result.topics, key=lambda topic: topic.name)
        if not topics or topic.name in topics
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    ]
    return {
        "partitions": partitions,
        "error": reason_of(result.error_code) if result.error_code else None,
        "logDir": result.log_dir,
    }


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids))
