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
from ottla.client.cluster import NOT_DONE, ClusterClient
from ottla.client.errors import ClientError, Refusal
from ottla.client.partitions import TopicPartition, by_topic
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
        deletion = _Deletion(client, wanted)
        deletion.run()
        print("Records delete operation completed:")
        outcomes = deletion.outcomes
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


class _Deletion:
    """The deletion of the records before `wanted`. `outcomes`: a text for each partition."""

    def __init__(self, client: ClusterClient, wanted: dict[TopicPartition, int]) -> None:
        self.outcomes: dict[TopicPartition, str] = {}
        self._client = client
        self._left = dict(wanted)

    def run(self) -> None:
        """Delete. A partition without a leader is waited for, and does not hold up the others."""
        missing = "error: the response does not contain it"
        try:
            self._client.with_retries(self._attempt)
        except ClientError as error:
            if not self.outcomes:
                raise
            # What other leaders have deleted is shown all the same: it cannot be undone.
            missing = f"error: {error}"
        for key in self._left:
            self.outcomes.setdefault(key, missing)

    def _attempt(self) -> None:
        """Ask the leaders of what is left. Raises: a Refusal for which a retry may help."""
        self._client.topics(sorted({topic for topic, _ in self._left}), skip_unknown=True)
        refused: list[Refusal] = []
        led: dict[int, list[TopicPartition]] = {}
        for key in sorted(self._left):
            try:
                led.setdefault(self._client.leader(key).node, []).append(key)
            except Refusal as error:
                self._refused(key, error, refused)
        for leader, partitions in sorted(led.items()):
            self._ask(leader, partitions, refused)
        if refused:
            raise refused[0]

    def _ask(self, leader: int, partitions: list[TopicPartition], refused: list[Refusal]) -> None:
        request = wire.DeleteRecordsRequest(
            topics=tuple(
                wire.DeleteRecordsTopic(
                    name=topic,
                    partitions=tuple(
                        wire.DeleteRecordsPartition(
                            partition_index=partition, offset=self._left[topic, partition]
                        )
                        for partition in numbers
                    ),
                )
                for topic, numbers in by_topic(partitions).items()
            ),
            timeout_ms=self._client.timeout_ms,
        )
        try:
            response = self._client.ask(request, wire.DeleteRecordsResponse, node=leader)
        except ClientError as error:
            for key in partitions:
                self._ended(key, f"error: {error}")
            return
        for result in response.topics:
            for each in result.partitions:
                key = (result.name, each.partition_index)
                if each.error_code:
                    name = f"partition {key[0]}-{key[1]}"
                    self._refused(key, Refusal(name, each.error_code), refused)
                else:
                    self._ended(key, f"low_watermark: {each.low_watermark}")

    def _refused(self, key: TopicPartition, error: Refusal, refused: list[Refusal]) -> None:
        text = f"error: {error.reason}"
        if error.code in NOT_DONE:
            refused.append(error)
            self.outcomes[key] = text
        else:
            self._ended(key, text)

    def _ended(self, key: TopicPartition, outcome: str) -> None:
        self._left.pop(key, None)
        self.outcomes[key] = outcome
