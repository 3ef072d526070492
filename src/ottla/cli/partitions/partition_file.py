"""The JSON files of `reassign-partitions` and `leader-election`.

Source: ReassignPartitionsCommand (version 1 of both of its formats), LeaderElectionCommand.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ottla.cli.errors import CommandError
from ottla.client.partitions import TopicPartition

T = TypeVar("T")

VERSION = 1
ANY_LOG_DIR = "any"
NUMBER_MAX = 2**31 - 1

Proposal = tuple[TopicPartition, tuple[int, ...]]
"""A partition and its replicas in the file."""


def read(path: Path) -> str:
    """Return a file's text; raise CommandError naming it."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or '').lower()}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{path}: expected text in UTF-8") from None


def read_as(path: Path, parse: Callable[[str], T]) -> T:
    """Return what `parse` finds in a file; raise CommandError naming the file."""
    text = read(path)
    try:
        return parse(text)
    except CommandError as error:
        raise CommandError(f"{path}: {error}") from None


def parse_reassignment(text: str) -> list[Proposal]:
    """Return the partitions and replicas of a reassignment file, in its order.

    Raises: CommandError for a malformed file, and for a log directory other than "any": brokers of
            this version do not move logs between log directories.
    """
    content = _content(text)
    _check_version(content)
    proposals = []
    for each in content.get("partitions", []):
        match each:
            case {"topic": str(topic), "partition": int(partition), "replicas": list(replicas)} if (
                _is_number(partition) and all(map(_is_number, replicas))
            ):
                _check_log_dirs(f"{topic}-{partition}", replicas, each.get("log_dirs"))
                proposals.append(((topic, partition), tuple(replicas)))
            case _:
                raise CommandError(
                    f'{json.dumps(each)}: expected {{"topic": text, "partition": number from 0, '
                    '"replicas": [broker ids]}'
                )
    return proposals


def check_executable(proposals: Iterable[Proposal]) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas by partition; raise CommandError for an invalid reassignment."""
    wanted: dict[TopicPartition, tuple[int, ...]] = {}
    for partition, replicas in proposals:
        if partition in wanted:
            raise CommandError(
                f"Partition reassignment contains duplicate topic partitions: {name_of(partition)}"
            )
        if not replicas:
            raise CommandError(
                f"Partition replica list cannot be empty: that of {name_of(partition)} is"
            )
        twice = _twice(replicas)
        if twice:
            raise CommandError(
                "Partition replica lists may not contain duplicate entries: "
                f"{name_of(partition)} contains multiple entries for {ids(twice)}"
            )
        wanted[partition] = replicas
    if not wanted:
        raise CommandError("Partition reassignment list cannot be empty")
    return wanted


def format_reassignment(assignment: Mapping[TopicPartition, tuple[int, ...]]) -> str:
    """Return the reassignment file for an assignment, in one line."""
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": list(replicas),
            "log_dirs": [ANY_LOG_DIR] * len(replicas),
        }
        for (topic, partition), replicas in sorted(assignment.items())
    ]
    return json.dumps(
        {"version": VERSION, "partitions": partitions}, separators=(",", ":"), ensure_ascii=False
    )


def parse_topics(text: str) -> list[str]:
    """Return the names in a file of topics to move, in its order."""
    content = _content(text)
    _check_version(content)
    names = []
    for each in content.get("topics", []):
        match each:
            case {"topic": str(name)}:
                names.append(name)
            case _:
                raise CommandError(f'{json.dumps(each)}: expected {{"topic": text}}')
    twice = _twice(names)
    if twice:
        raise CommandError(
            f"List of topics to reassign contains duplicate entries: {','.join(twice)}"
        )
    return names


def parse_partitions(text: str) -> list[TopicPartition]:
    """Return the partitions of an election file, in its order."""
    content = _content(text)
    if "partitions" not in content:
        raise CommandError('Replica election data is missing "partitions" field')
    found = []
    for each in content["partitions"]:
        match each:
            case {"topic": str(topic), "partition": int(partition)} if _is_number(partition):
                found.append((topic, partition))
            case _:
                raise CommandError(
                    f'{json.dumps(each)}: expected {{"topic": text, "partition": number from 0}}'
                )
    twice = _twice(found)
    if twice:
        raise CommandError(
            f"Replica election data contains duplicate partitions: {names_of(twice, ', ')}"
        )
    return found


def name_of(partition: TopicPartition) -> str:
    """Return a partition's name, as `orders-0`."""
    return f"{partition[0]}-{partition[1]}"


def names_of(partitions: Iterable[TopicPartition], separator: str = ",") -> str:
    """Return the names of partitions, sorted by topic and partition."""
    return separator.join(map(name_of, sorted(partitions)))


def ids(broker_ids: Iterable[int]) -> str:
    """Return broker ids, comma separated, in the order given."""
    return ",".join(map(str, broker_ids))


def _content(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise CommandError(f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CommandError("expected a JSON object")
    for name in ("partitions", "topics"):
        if not isinstance(content.get(name, []), list):
            raise CommandError(f'"{name}": expected a list')
    return content


def _check_version(content: Mapping[str, Any]) -> None:
    if content.get("version", VERSION) != VERSION:
        raise CommandError(f"Not supported version field value {content['version']}")


def _check_log_dirs(partition: str, replicas: list[int], log_dirs: object) -> None:
    if log_dirs is None:
        return
    if not isinstance(log_dirs, list) or not all(isinstance(each, str) for each in log_dirs):
        raise CommandError(f'{partition}: "log_dirs": expected a list of text')
    if len(log_dirs) != len(replicas):
        raise CommandError(
            f"Size of replicas list {replicas} is different from size of log dirs list "
            f"{log_dirs} for partition {partition}"
        )
    for log_dir in log_dirs:
        if log_dir != ANY_LOG_DIR:
            raise CommandError(
                f'{partition}: "log_dirs": {log_dir}: expected "{ANY_LOG_DIR}": choosing a '
                "replica's log directory is not supported"
            )


def _is_number(value: object) -> bool:
    return type(value) is int and 0 <= value <= NUMBER_MAX


def _twice(values: Iterable[Any]) -> list[Any]:
    return sorted(value for value, count in Counter(values).items() if count > 1)
