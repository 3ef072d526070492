"""A replay must give another topic the records of the first, in order, with all that they have.

Method: the command in this process and its Spark session, between topics of one cluster; topics are
read and compared. The archive as a source is in `test_tiered.py`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.testing import Cluster

pytestmark = pytest.mark.spark

BEGIN_MS = 1_700_000_000_000
RECORDS = 500
COLUMNS = ("partition", "offset", "key", "value", "timestamp", "headers")


@pytest.fixture
def run(
    spark: Any, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, Any]]:
    """Run the command; return its code, and its JSON or its error."""
    assert spark is not None

    def run(topic: str, to: str, state: Path, *words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = main(
            ["pipeline", "replay", "--bootstrap-server", cluster.bootstrap, "--topic", topic,
             "--to", to, "--state", str(state), "--json", *words]
        )  # fmt: skip
        captured = capsys.readouterr()
        return code, json.loads(captured.out) if not code else captured.err

    return run


@pytest.fixture
def source(make_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    topic = make_topic(2)
    times = [BEGIN_MS + number for number in range(RECORDS)]
    for partition in range(2):
        messages = [(b"k%d" % (number % 7), b"v%d" % number) for number in range(RECORDS)]
        messages[3:5] = [(None, None), (b"", b"")]
        produce(topic, messages, partition=partition, timestamps=times, headers=[("h", b"x")])
    return topic


def rows(load: Callable[..., Any], topic: str) -> list[str]:
    return sorted(map(str, load(topic, includeHeaders="true").select(*COLUMNS).collect()))


def test_a_replay(
    run: Callable[..., Any],
    load: Callable[..., Any],
    make_topic: Callable[..., str],
    source: str,
    tmp_path: Path,
) -> None:
    target = make_topic(3)
    code, done = run(source, target, tmp_path, "--compression", "lz4")
    assert (code, done["rows"], done["continued"]) == (0, 2 * RECORDS, False)
    assert rows(load, target) == rows(load, source)
    assert run(source, target, tmp_path, "--compression", "lz4")[1]["rows"] == 0
    # A part of it once more, with the time of writing.
    chosen = ("--from-offset", "10", "--to-time", str(BEGIN_MS + 20), "--timestamps", "now")
    assert run(source, target, tmp_path / "part", *chosen)[1]["rows"] == 20
    again = load(target).where(f"offset >= {RECORDS}").orderBy("partition", "offset").collect()
    assert [bytes(row.value) for row in again] == 2 * [b"v%d" % n for n in range(10, 20)]
    assert min(row.timestamp.year for row in again) > 2024


def test_targets_that_cannot_take_it(
    run: Callable[..., Any],
    load: Callable[..., Any],
    make_topic: Callable[..., str],
    source: str,
    tmp_path: Path,
) -> None:
    small, stamped = make_topic(1), make_topic(2, message_timestamp_type="LogAppendTime")
    code, error = run(source, small, tmp_path)
    assert (code, f"topic {small} has 1 partitions, and 2 are needed" in error) == (1, True)
    code, error = run(source, stamped, tmp_path)
    assert (code, "message.timestamp.type=LogAppendTime" in error) == (1, True)
    code, error = run(source, source, tmp_path)
    assert (code, "is the source itself" in error) == (1, True)
    assert run(source, stamped, tmp_path, "--timestamps", "now")[1]["rows"] == 2 * RECORDS
    code, done = run(source, small, tmp_path / "key", "--partitioning", "key")
    assert (code, done["rows"], load(small).count()) == (0, 2 * RECORDS, 2 * RECORDS)
