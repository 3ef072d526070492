"""A segment that is gone must be told apart: deleted, expired, moved, or a store that is not there.

Method: a tiered log in a directory and a fake broker; a split is planned, something happens to its
objects, then it is read.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.spark.errors import DataLossError, RemoteStorageError
from ottla.spark.options import ReadOptions
from ottla.spark.planner import plan
from ottla.spark.tasks import read_remote
from ottla.spark.tiers import relocation
from ottla.spark.tiers.store_session import StoreSession
from ottla.tiered.manifest import Manifest
from ottla.tiered.manifest_codec import encode_manifest
from ottla.tiered.object_names import manifest_name
from ottla.wire.messages.metadata import MetadataRequest
from tests.unit.spark.fake_broker import ID, TIERED, TOPIC, FakeBroker
from tests.unit.spark.tiered_log import TieredLog, half_copied
from tests.unit.spark.tiers.test_tiered_planner import new_store


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relocation, "PAUSES_SECONDS", (0.0, 0.01))


@pytest.fixture
def log() -> TieredLog:
    return half_copied(6)


@pytest.fixture
def root(tmp_path: Path, log: TieredLog) -> Path:
    directory = new_store(tmp_path)
    log.write(directory)
    return directory


@pytest.fixture
def broker(log: TieredLog) -> Iterator[FakeBroker]:
    with FakeBroker(versions=TIERED) as running:
        running.logs[0] = log.served()
        yield running


def options(root: Path, broker: FakeBroker | None, **raw: str) -> ReadOptions:
    base = {
        "subscribe": TOPIC,
        "ottla.remote.storage.uri": root.as_uri(),
        "kafka.default.api.timeout.ms": "500",
    }
    if broker is not None:
        base["kafka.bootstrap.servers"] = f"127.0.0.1:{broker.port}"
    return ReadOptions.of(base | raw)


class Planned:
    """The first remote split of a plan; `offsets` reads it, or what took its place."""

    def __init__(self, root: Path, broker: FakeBroker | None) -> None:
        self._where = (root, broker)
        splits = [each for task in plan(options(root, broker)) for each in task.splits]
        self.split = splits[0]
        assert (self.split.start, self.split.end) == (0, 10)
        assert self.split.remote is not None

    def offsets(self, **raw: str) -> list[int]:
        chosen = options(*self._where, **raw)
        with StoreSession(self._where[0].as_uri(), timeout_ms=500) as session:
            found = list(read_remote(self.split, session, chosen, ("offset",)))
        return [each for batch in found for each in batch.column("offset").to_pylist()]


LENIENT = {"failOnDataLoss": "false"}


def remove_segments(log: TieredLog, root: Path, broker: FakeBroker | None, start: int) -> None:
    """Delete the objects of all segments; the log starts at `start` now."""
    log.start = start
    log.segments.clear()
    log.objects.clear()
    log.write(root, 1)
    if broker is not None:
        broker.logs[0] = log.served()


def test_expired_records(log: TieredLog, root: Path, broker: FakeBroker) -> None:
    planned = Planned(root, broker)
    remove_segments(log, root, broker, 7)
    with pytest.raises(DataLossError, match="t-0: offsets 0 to 6 are no longer available"):
        planned.offsets()
    assert planned.offsets(**LENIENT) == [7, 8, 9]


def test_records_that_brokers_still_have(log: TieredLog, root: Path, broker: FakeBroker) -> None:
    """Such as local ones, after their segment was deleted because tiered storage was disabled."""
    planned = Planned(root, broker)
    remove_segments(log, root, broker, 0)
    assert planned.offsets() == list(range(10))


def test_a_broker_that_does_not_know_the_topic_yet(
    log: TieredLog, root: Path, broker: FakeBroker
) -> None:
    planned = Planned(root, broker)
    remove_segments(log, root, broker, 0)
    broker.faults[MetadataRequest] += [Error.UNKNOWN_TOPIC_OR_PARTITION]
    assert planned.offsets() == list(range(10))


def test_a_deleted_topic(log: TieredLog, root: Path, broker: FakeBroker) -> None:
    planned = Planned(root, broker)
    remove_segments(log, root, broker, 0)
    broker.topic_id = Uuid(b"j" * 16)
    message = "t-0: the topic was deleted, or deleted and re-created, .* offsets 0 to 9 of the form"
    with pytest.raises(DataLossError, match=message):
        planned.offsets()
    assert planned.offsets(**LENIENT) == []
    broker.exists = False
    with pytest.raises(DataLossError, match=message):
        planned.offsets()


@pytest.mark.parametrize("with_brokers", [True, False])
def test_a_store_that_is_not_there(root: Path, broker: FakeBroker, with_brokers: bool) -> None:
    planned = Planned(root, broker if with_brokers else None)
    shutil.rmtree(root)
    with pytest.raises(RemoteStorageError, match=r"could not be read: unavailable: .* no such dir"):
        planned.offsets(**LENIENT)


@pytest.mark.parametrize("with_brokers", [True, False])
def test_an_object_that_only_the_store_lacks(
    root: Path, broker: FakeBroker, with_brokers: bool
) -> None:
    planned = Planned(root, broker if with_brokers else None)
    for path in root.glob("*/0/*.log"):
        path.unlink()
    with pytest.raises(RemoteStorageError, match=r"has no object .*\.log, which is listed as read"):
        planned.offsets(**LENIENT)


def test_expired_records_without_brokers(log: TieredLog, root: Path) -> None:
    planned = Planned(root, None)
    log.expire(10)
    log.write(root, 1)
    with pytest.raises(DataLossError, match="t-0: offsets 0 to 9 are no longer available"):
        planned.offsets()
    assert planned.offsets(**LENIENT) == []


def test_records_in_another_segment_without_brokers(log: TieredLog, root: Path) -> None:
    planned = Planned(root, None)
    log.copy(1, 4)
    del log.segments[:2]
    log.start = 6
    log.write(root, 1)
    assert planned.split.remote is not None
    (root / planned.split.remote.name).unlink()
    with pytest.raises(DataLossError, match="t-0: offsets 0 to 5 are no longer available"):
        planned.offsets()
    assert planned.offsets(**LENIENT) == [6, 7, 8, 9]


def purge_manifest(root: Path) -> None:
    """Write what the purge of a deleted topic writes: all its tiered epochs are given up."""
    largest: dict[str, Any] = {"leader_epoch": 2**31 - 1, "tiered_epoch": 2**31 - 1}
    manifest = Manifest(
        topic=TOPIC, topic_id=ID, partition=0, sequence=1, floor=2**31 - 1, log_start_offset=0,
        epochs=(), is_base=True, **largest,
    )  # fmt: skip
    (root / manifest_name(TOPIC, ID, 0, 1)).write_bytes(encode_manifest(manifest))


@pytest.mark.parametrize("is_purging", [True, False])
def test_a_deleted_topic_without_brokers(root: Path, is_purging: bool) -> None:
    planned = Planned(root, None)
    if is_purging:
        purge_manifest(root)
        for path in root.glob("*/0/*.log"):
            path.unlink()
    else:
        for path in root.iterdir():
            shutil.rmtree(path)
    with pytest.raises(DataLossError, match="t-0: the topic was deleted"):
        planned.offsets()
    assert planned.offsets(**LENIENT) == []
    with pytest.raises(RemoteStorageError, match="has no topic t"):
        plan(options(root, None))
