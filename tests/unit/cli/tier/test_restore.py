"""`ottla tier restore` with a directory as the store, and a fake broker for what it is sent.

Method: manifests and objects are written by hand; what is printed and what is sent is compared.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.errors import Error
from ottla.base.ids import uuid_text
from ottla.cli.tier import restore as command
from ottla.tiered.manifest import Manifest
from ottla.tiered.manifest_codec import encode_manifest
from ottla.tiered.object_names import ObjectKind, manifest_name, object_name
from ottla.tiered.segment_metadata import SegmentMetadata, SegmentState
from ottla.wire.messages import describe_remote_log as described
from ottla.wire.messages import restore_topic as wire
from tests.unit.cli.conftest import Run
from tests.unit.client.fake_broker import FakeBroker, topic
from tests.unit.tiered.support import TOPIC, TOPIC_ID, segment

ID = uuid_text(TOPIC_ID)


def of_partition(partition: int, number: int, start: int, end: int) -> SegmentMetadata:
    found = segment(number, start, end, state=SegmentState.COPY_FINISHED)
    return SegmentMetadata(
        **{name: getattr(found, name) for name in found.__slots__} | {"partition": partition}
    )


def write(
    store: Path, partition: int, *segments: SegmentMetadata, sequence: int = 0, retention: str = "7"
) -> Path:
    """Write the objects of segments, and a manifest of them; return its path.

    The first one is a base, and has the configuration.
    """
    is_base = sequence == 0
    names = {
        object_name(each, kind): each.size_bytes
        for each in segments
        for kind in ObjectKind
        if kind is not ObjectKind.TXN_INDEX
    }
    manifest = Manifest(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=partition,
        sequence=sequence,
        leader_epoch=5,
        tiered_epoch=1,
        floor=0,
        log_start_offset=0,
        epochs=((1, 0),),
        is_base=is_base,
        added=segments,
        partition_count=2 if is_base else None,
        configs=({"remote.storage.enable": "true", "retention.ms": retention} if is_base else None),
    )
    files = {name: bytes(size) for name, size in names.items()}
    written = manifest_name(TOPIC, TOPIC_ID, partition, sequence)
    files[written] = encode_manifest(manifest)
    for name, data in files.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(data)
    return store / written


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path, 0, of_partition(0, 1, 0, 9), of_partition(0, 2, 10, 19))
    write(tmp_path, 1, of_partition(1, 3, 0, 4))
    return tmp_path


def test_what_the_store_has_is_listed(run: Run, store: Path) -> None:
    ran = run("tier", "restore", "--remote-storage", store.as_uri(), "--list")
    assert ran.code == 0, ran.err
    titles, row = ran.out.splitlines()
    assert titles.split() == ["TOPIC", "TOPIC", "ID", "PARTITIONS", "OFFSETS", "SIZE", "FAULT"]
    assert row.split() == [TOPIC, ID, "2", "25", "300", "B", "-"]


def test_an_empty_store(run: Run, tmp_path: Path) -> None:
    ran = run("tier", "restore", "--remote-storage", tmp_path.as_uri(), "--list")
    assert ran.code == 0, ran.err
    assert ran.out == f"The store {tmp_path.as_uri()} has no topics.\n"


def test_a_plan_does_nothing(run: Run, store: Path) -> None:
    ran = run("tier", "restore", "--remote-storage", store.as_uri(), "--topic", TOPIC, "--plan")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        f"{TOPIC} ({ID}): tiered epoch 2",
        "  remote.storage.enable=true",
        "  retention.ms=7",
        "PARTITION  OFFSETS  SEGMENTS  SIZE   LEADER EPOCH",
        "0          0..19    2         200 B  6",
        "1          0..4     1         100 B  6",
    ]


def test_the_configuration_is_that_of_the_newest_base(run: Run, tmp_path: Path) -> None:
    manifests = [
        write(tmp_path, 0, of_partition(0, 1, 0, 9), retention="7"),
        write(tmp_path, 1, of_partition(1, 3, 0, 4), retention="8"),
        write(tmp_path, 0, of_partition(0, 2, 10, 19), sequence=1),
    ]
    for second, path in enumerate(manifests, start=1_000):
        os.utime(path, (second, second))
    ran = run("tier", "restore", "--remote-storage", tmp_path.as_uri(), "--topic", TOPIC, "--plan")
    assert ran.code == 0, ran.err
    assert "  retention.ms=8" in ran.out.splitlines()


def test_a_topic_with_more_objects_than_a_page_is_listed_in_few_requests(
    run: Run, store: Path
) -> None:
    directory = store / f"{TOPIC}-{ID}" / "0"
    for number in range(2_500):
        (directory / f"{number:020d}-{ID}.index").write_bytes(b"")
    ran = run("tier", "restore", "--remote-storage", store.as_uri(), "--list")
    assert ran.out.splitlines()[1].split()[2] == "2"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--topic", "unknown"), "has no topic unknown; --list shows what it has"),
        (("--topic", TOPIC, "--topic-id", "A" * 22), "has no topic orders with the id"),
    ],
)
def test_a_topic_that_is_not_there(
    run: Run, store: Path, words: tuple[str, ...], expected: str
) -> None:
    ran = run("tier", "restore", "--remote-storage", store.as_uri(), *words)
    assert ran.code == 1
    assert expected in ran.err


def test_of_two_topics_of_a_name_one_must_be_named(run: Run, store: Path) -> None:
    other = store / f"{TOPIC}-{'A' * 21}Q" / "0"
    other.mkdir(parents=True)
    (other / "x").write_bytes(b"")
    ran = run("tier", "restore", "--remote-storage", store.as_uri(), "--topic", TOPIC, "--plan")
    assert ran.code == 1
    assert ID in ran.err
    words = ("--topic", TOPIC, "--topic-id", ID, "--plan")
    assert run("tier", "restore", "--remote-storage", store.as_uri(), *words).code == 0


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--list", "--topic", "t"),
        ("--topic", TOPIC, "--topic-id", "short"),
    ],
)
def test_wrong_usage(run: Run, store: Path, words: tuple[str, ...]) -> None:
    ran = run("tier", "restore", "--remote-storage", store.as_uri(), *words)
    assert ran.code == 2


def test_a_bad_uri(run: Run) -> None:
    ran = run("tier", "restore", "--remote-storage", "ftp://x", "--list")
    assert ran.code == 1
    assert "--remote-storage ftp://x" in ran.err


def test_damage_is_refused_with_its_place(run: Run, store: Path) -> None:
    name = manifest_name(TOPIC, TOPIC_ID, 1, 0)
    (store / name).write_bytes(b"damaged")
    where = ("--remote-storage", store.as_uri(), "--topic", TOPIC)
    ran = run("tier", "restore", *where)
    assert ran.code == 1
    assert f"{TOPIC} cannot be restored: partition 1: {name}" in ran.err
    (store / name).unlink()
    missing = object_name(of_partition(0, 2, 10, 19), ObjectKind.LOG)
    (store / missing).write_bytes(b"short")
    ran = run("tier", "restore", *where, "--plan")
    assert ran.code == 1
    assert f"FAULT: partition 0: {missing} has 5 bytes of 100" in ran.out


def ready(partition: int, end: int) -> described.RemoteLogPartition:
    return described.RemoteLogPartition(
        partition=partition,
        error_code=0,
        leader_epoch=6,
        log_start_offset=0,
        remote_end_offset=end,
        local_start_offset=end + 1,
        log_end_offset=end + 1,
        high_watermark=end + 1,
        last_stable_offset=end + 1,
        remote_bytes=1,
        remote_segments=1,
        local_bytes=0,
        lag_bytes=0,
        lag_segments=0,
    )


def test_what_is_sent_and_waited_for(
    run: Run, store: Path, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "POLL_SECONDS", 0.0)
    broker.topics = [topic(TOPIC, partitions=2)]
    broker.answer(wire.RestoreTopicRequest, lambda _: wire.RestoreTopicResponse(error_code=0))
    asked: list[int] = []

    def describe(request: described.DescribeRemoteLogRequest) -> object:
        [number] = request.topics[0].partitions
        asked.append(number)
        # At first not all is taken over.
        row = ready(number, 3 if len(asked) == 1 else 19)
        found = described.RemoteLogTopic(
            name=TOPIC, topic_id=TOPIC_ID, state=1, tiered_epoch=2, remote_floor_epoch=0,
            partitions=(row,),
        )  # fmt: skip
        return described.DescribeRemoteLogResponse(error_code=0, topics=(found,))

    broker.answer(described.DescribeRemoteLogRequest, describe)
    where = ("--remote-storage", store.as_uri(), "--bootstrap-server", broker.address)
    ran = run("tier", "restore", *where, "--topic", TOPIC, "--replication-factor", "1")
    assert ran.code == 0, ran.err
    assert ran.out == f"Restored topic {TOPIC} with 25 offsets.\n"
    assert asked == [0, 1, 0]
    [request] = broker.requests(wire.RestoreTopicRequest)
    assert (request.name, request.topic_id, request.tiered_epoch) == (TOPIC, TOPIC_ID, 2)
    assert request.replication_factor == 1
    assert [
        (each.partition_index, each.leader_epoch, each.log_start_offset, each.end_offset)
        for each in request.partitions
    ] == [(0, 6, 0, 20), (1, 6, 0, 5)]
    assert request.partitions[0].epochs == (wire.RestoreTopicEpoch(epoch=1, start_offset=0),)


def test_leaders_that_are_elected_while_it_waits_are_asked(
    run: Run, store: Path, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first partition 0 has no leader, and partition 1 another one."""
    monkeypatch.setattr(command, "POLL_SECONDS", 0.0)
    led = topic(TOPIC, partitions=2)
    first, second = led.partitions
    before = (replace(first, leader_id=-1), replace(second, leader_id=2))
    broker.topics, broker.others = [replace(led, partitions=before)], {2: None}

    def describe(request: described.DescribeRemoteLogRequest) -> object:
        row = ready(request.topics[0].partitions[0], 19)
        if broker.topics != [led]:
            broker.topics = [led]
            row = replace(row, error_code=Error.NOT_LEADER_OR_FOLLOWER)
        found = described.RemoteLogTopic(
            name=TOPIC, topic_id=TOPIC_ID, state=1, tiered_epoch=2, remote_floor_epoch=0,
            partitions=(row,),
        )  # fmt: skip
        return described.DescribeRemoteLogResponse(error_code=0, topics=(found,))

    broker.answer(wire.RestoreTopicRequest, lambda _: wire.RestoreTopicResponse(error_code=0))
    broker.answer(described.DescribeRemoteLogRequest, describe)
    where = ("--remote-storage", store.as_uri(), "--bootstrap-server", broker.address)
    ran = run("tier", "restore", *where, "--topic", TOPIC, "--timeout", "1")
    assert ran.code == 0, ran.err
    assert ran.out == f"Restored topic {TOPIC} with 25 offsets.\n"


def test_a_refusal_is_printed(run: Run, store: Path, broker: FakeBroker) -> None:
    refusal = wire.RestoreTopicResponse(
        error_code=Error.TOPIC_ALREADY_EXISTS, error_message="Topic 'orders' already exists."
    )
    broker.answer(wire.RestoreTopicRequest, lambda _: refusal)
    where = ("--remote-storage", store.as_uri(), "--bootstrap-server", broker.address)
    ran = run("tier", "restore", *where, "--topic", TOPIC)
    assert ran.code == 1
    assert "orders was not restored: Topic 'orders' already exists." in ran.err


def test_brokers_without_the_key(run: Run, store: Path, broker: FakeBroker) -> None:
    where = ("--remote-storage", store.as_uri(), "--bootstrap-server", broker.address)
    ran = run("tier", "restore", *where, "--topic", TOPIC)
    assert ran.code == 1
    assert "do not serve RestoreTopic" in ran.err
