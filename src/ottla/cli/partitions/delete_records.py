"""`ottla delete-records`: delete records up to an offset. As kafka-delete-records.sh."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.cli.errors import CommandError
from ottla.cli.options import (
    DEFAULT_TIMEOUT_SECONDS,
    BootstrapServer,
    CommandConfig,
    Timeout,
    connect,
)
from ottla.cli.typing_app import examples, new_app
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, reason_of
from ottla.client.partitions import TopicPartition
from ottla.wire.messages import delete_records as wire

app = new_app()

EPILOG = examples(
    "ottla delete-records --bootstrap-server localhost:9092 --offset-json-file cut.json",
) + (
    '\n\n\b\nThe file:\n  {"partitions": [{"topic": "orders", "partition": 0, "offset": 1000}], '
    '"version": 1}\n\nOffset -1 deletes all records up to the high watermark.'
)

VERSION = 1
HIGH_WATERMARK = -1
PARTITION_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1


@app.command("delete-records", epilog=EPILOG)
def delete_records(
    offset_json_file: Annotated[
        Path, typer.Option("--offset-json-file", metavar="FILE", help="Partitions and offsets.")
    ],
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    timeout: Timeout = DEFAULT_TIMEOUT_SECONDS,
) -> None:
    """Delete the records before an offset, partition by partition."""
    try:
        text = offset_json_file.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{offset_json_file}: {(error.strerror or '').lower()}") from None
    try:
        wanted = parse_offsets(text)
    except CommandError as error:
        raise CommandError(f"{offset_json_file}: {error}") from None
    with connect(bootstrap_server, command_config, timeout) as client:
        print("Executing records delete operation")
        outcomes = _delete(client, wanted)
        print("Records delete operation completed:")
        for (topic, partition), outcome in sorted(outcomes.items()):
            print(f"partition: {topic}-{partition}\t{outcome}")
    failed = sum(each.startswith("error") for each in outcomes.values())
    if failed:
        raise CommandError(f"{failed} of {len(outcomes)} partitions failed: see above")


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offset of each partition in the tool's JSON; raise CommandError."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise CommandError(f"not JSON: {error}") from None
    if not isinstance(content, dict) or not isinstance(content.get("partitions"), list):
        raise CommandError('expected an object with the field "partitions", a list')
    if content.get("version", VERSION) != VERSION:
        raise CommandError(f"version {content['version']}: expected {VERSION}")
    wanted: dict[TopicPartition, int] = {}
    for each in content["partitions"]:
        key, offset = _partition_of(each)
        if key in wanted:
            raise CommandError(f"partition {key[0]}-{key[1]} is listed twice: expected it once")
        wanted[key] = offset
    return wanted


def _partition_of(content: Any) -> tuple[TopicPartition, int]:
    match content:
        case {"topic": str(topic), "partition": int(partition), "offset": int(offset)} if (
            0 <= partition <= PARTITION_MAX and HIGH_WATERMARK <= offset <= OFFSET_MAX
        ):
            return (topic, partition), offset
    raise CommandError(
        f"{json.dumps(content)}: expected "
        '{"topic": text, "partition": number from 0, "offset": number from -1}'
    )


def _delete(client: ClusterClient, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, str]:
    outcomes: dict[TopicPartition, str] = {}
    for leader, partitions in sorted(client.by_leader(wanted).items()):
        topics: dict[str, list[wire.DeleteRecordsPartition]] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, []).append(
                wire.DeleteRecordsPartition(
                    partition_index=partition, offset=wanted[topic, partition]
                )
            )
        request = wire.DeleteRecordsRequest(
            topics=tuple(
                wire.DeleteRecordsTopic(name=topic, partitions=tuple(each))
                for topic, each in topics.items()
            ),
            timeout_ms=client.timeout_ms,
        )
        try:
            response = client.ask(request, wire.DeleteRecordsResponse, node=leader)
        except ClientError as error:
            # What other leaders have deleted is shown all the same: it cannot be undone.
            outcomes |= dict.fromkeys(partitions, f"error: {error}")
            continue
        for result in response.topics:
            for each in result.partitions:
                outcomes[result.name, each.partition_index] = (
                    f"error: {reason_of(each.error_code)}"
                    if each.error_code
                    else f"low_watermark: {each.low_watermark}"
                )
    return outcomes
