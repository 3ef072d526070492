"""`ottla dump-log` prints files as kafka-dump-log.sh does; and finds what is wrong with them.

Method: files made with the project's own writers, whose formats other tests compare with Kafka's.
"""

import struct
from pathlib import Path

from ottla.base.ids import Uuid
from ottla.coordinator.records import (
    GroupFact,
    GroupMetadataValue,
    OffsetCommitValue,
    OffsetFact,
    encode_fact,
)
from ottla.log.indexes.offset_index import ENTRY as OFFSET_ENTRY
from ottla.log.indexes.time_index import ENTRY as TIME_ENTRY
from ottla.log.indexes.transaction_index import AbortedTransaction, encode_entry
from ottla.log.producers.producer_snapshot import encode_snapshot
from ottla.log.producers.producer_state import BatchMetadata, ProducerEntry
from ottla.metadata.records import DeletionReplicasRecord, NoOpRecord, encode_record
from ottla.raft.control import leader_change_batch
from ottla.records.builder import encode_batch
from ottla.records.compression import Codec
from ottla.records.control import build_marker
from ottla.tiered import metadata_records as remote
from tests.unit.cli.conftest import Ran, Run

NAME = f"{0:020d}"
FIRST = encode_batch([(b"k", b"v", (("h", b"1"),), 7), (None, None, (), 8)], leader_epoch=3)
SECOND = encode_batch(
    [(None, b"w", (), 9)],
    base_offset=2,
    codec=Codec.GZIP,
    producer_id=5,
    producer_epoch=1,
    base_sequence=4,
)


def write(tmp_path: Path, suffix: str, data: bytes) -> Path:
    path = tmp_path / (NAME + suffix)
    path.write_bytes(data)
    return path


def dump(run: Run, path: Path, *options: str) -> Ran:
    return run("dump-log", "--files", str(path), *options)


def batch_text(run: Run, path: Path) -> list[str]:
    """Return the lines of batches without what changes with the data: sizes and checksums."""
    lines = dump(run, path).out.splitlines()[2:]
    return [line.partition(" size: ")[0] for line in lines]


def test_batches(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, ".log", FIRST + SECOND)
    ran = dump(run, path)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert [line.partition(" size: ")[0] for line in lines[2:]] == [
        "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
        "producerEpoch: -1 partitionLeaderEpoch: 3 isTransactional: false isControl: false "
        "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 8",
        "baseOffset: 2 lastOffset: 2 count: 1 baseSequence: 4 lastSequence: 4 producerId: 5 "
        "producerEpoch: 1 partitionLeaderEpoch: -1 isTransactional: false isControl: false "
        f"deleteHorizonMs: OptionalLong.empty position: {len(FIRST)} CreateTime: 9",
    ]
    (crc,) = struct.unpack_from(">I", FIRST, 17)
    assert lines[2].endswith(
        f" size: {len(FIRST)} magic: 2 compresscodec: none crc: {crc} isvalid: true"
    )
    assert " compresscodec: gzip " in lines[3]


def test_records(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, ".log", FIRST + SECOND)
    deep = [line for line in dump(run, path, "--deep-iteration").out.splitlines() if line[0] == "|"]
    assert deep == [
        "| offset: 0 CreateTime: 7 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [h]",
        "| offset: 1 CreateTime: 8 keySize: -1 valueSize: -1 sequence: -1 headerKeys: []",
        "| offset: 2 CreateTime: 9 keySize: -1 valueSize: 1 sequence: 4 headerKeys: []",
    ]
    ran = dump(run, path, "--print-data-log", "--skip-record-metadata")
    assert [line for line in ran.out.splitlines() if line[0] == "|"] == [
        "| key: k payload: v",
        "|",
        "| payload: w",
    ]


def test_a_damaged_batch_is_reported_and_fails(run: Run, tmp_path: Path) -> None:
    damaged = bytearray(FIRST)
    damaged[-1] ^= 1
    ran = dump(run, write(tmp_path, ".log", bytes(damaged) + SECOND))
    assert ran.code == 1
    assert [line.rpartition(" ")[2] for line in ran.out.splitlines()[2:]] == ["false", "true"]


def test_a_torn_end_is_reported_and_fails(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, ".log", FIRST + SECOND[:-3])
    ran = dump(run, path)
    assert ran.code == 1
    rest = len(SECOND) - 3
    assert ran.out.splitlines()[-1] == f"Found {rest} invalid bytes at the end of {path.name}"
    assert dump(run, path, "--max-bytes", str(len(FIRST))).code == 0


def test_gaps_are_reported_but_are_no_failure(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, ".log", FIRST + encode_batch([(None, b"w", (), 9)], base_offset=7))
    ran = dump(run, path, "--deep-iteration")
    assert (ran.code, ran.err) == (0, f"Non-consecutive offsets in {path}\n  1 is followed by 7\n")


def test_an_empty_log(run: Run, tmp_path: Path) -> None:
    ran = dump(run, write(tmp_path, ".log", b""))
    assert (ran.code, ran.out.splitlines()[1:]) == (0, ["Log starting offset: 0"])


def test_transaction_markers(run: Run, tmp_path: Path) -> None:
    marker = build_marker(
        committed=True, producer_id=1, producer_epoch=2, coordinator_epoch=3, timestamp=4
    )
    ran = dump(run, write(tmp_path, ".log", marker), "--print-data-log")
    assert " isTransactional: true isControl: true " in ran.out
    assert ran.out.splitlines()[-1].endswith(" endTxnMarker: COMMIT coordinatorEpoch: 3")


def test_indexes_that_fit(run: Run, tmp_path: Path) -> None:
    write(tmp_path, ".log", FIRST + SECOND)
    index = write(tmp_path, ".index", OFFSET_ENTRY.pack(2, len(FIRST)))
    times = write(tmp_path, ".timeindex", TIME_ENTRY.pack(8, 1) + TIME_ENTRY.pack(9, 2))
    assert dump(run, index).out.splitlines()[1:] == [f"offset: 2 position: {len(FIRST)}"]
    assert dump(run, times).out.splitlines()[1:] == [
        "timestamp: 8 offset: 1",
        "timestamp: 9 offset: 2",
    ]
    for path in (index, times):
        assert dump(run, path, "--verify-index-only") == (0, f"Dumping {path}\n", "")
        ran = dump(run, path, "--index-sanity-check")
        assert ran.out.splitlines()[1] == f"{path} passed sanity check."


def test_indexes_that_do_not_fit(run: Run, tmp_path: Path) -> None:
    write(tmp_path, ".log", FIRST + SECOND)
    index = write(tmp_path, ".index", OFFSET_ENTRY.pack(1, len(FIRST)))
    ran = dump(run, index, "--verify-index-only")
    assert ran.code == 1
    assert ran.err == f"Mismatches in :{index}\n  Index offset: 1, log offset: 2\n"
    index.unlink()
    times = write(tmp_path, ".timeindex", TIME_ENTRY.pack(5, 1) + TIME_ENTRY.pack(6, 9))
    ran = dump(run, times)
    assert ran.code == 1
    assert ran.err == (
        f"Found timestamp mismatch in :{times}\n  Index timestamp: 5, log timestamp: 8\n"
        "The following indexed offsets are not found in the log.\n"
        "Indexed offset: 9, found log offset: -1\n"
    )


def test_a_corrupt_index_is_refused(run: Run, tmp_path: Path) -> None:
    path = write(tmp_path, ".index", b"\0" * 9)
    ran = dump(run, path)
    assert (ran.code, ran.err) == (
        1,
        f"ottla dump-log: {path}: the offset index has 9 bytes, not a multiple of 8\n",
    )


def test_aborted_transactions_and_producers(run: Run, tmp_path: Path) -> None:
    aborted = write(tmp_path, ".txnindex", encode_entry(AbortedTransaction(5, 1, 4, 5)))
    assert dump(run, aborted).out.splitlines()[1:] == [
        "version: 0 producerId: 5 firstOffset: 1 lastOffset: 4 lastStableOffset: 5"
    ]
    producer = ProducerEntry(5, epoch=1, coordinator_epoch=2, last_timestamp=9, transaction_start=1)
    producer.batches.append(
        BatchMetadata(last_sequence=6, last_offset=3, offset_delta=2, timestamp=9)
    )
    snapshot = write(tmp_path, ".snapshot", encode_snapshot([producer]))
    assert dump(run, snapshot).out.splitlines()[1:] == [
        "producerId: 5 producerEpoch: 1 coordinatorEpoch: 2 currentTxnFirstOffset: "
        "OptionalLong[1] lastTimestamp: 9 firstSequence: 4 lastSequence: 6 lastOffset: 3 "
        "offsetDelta: 2 timestamp: 9"
    ]


def test_offsets_and_groups(run: Run, tmp_path: Path) -> None:
    value = OffsetCommitValue(offset=4, metadata="", commit_timestamp=9)
    group = GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        current_state_timestamp=1,
        members=(),
    )
    facts = [OffsetFact("g", "t", 0, value), OffsetFact("g", "t", 1, None), GroupFact("g", group)]
    rows = [(*encode_fact(fact), (), 1) for fact in facts] + [(b"\0\x63", None, (), 1)]
    ran = dump(run, write(tmp_path, ".log", encode_batch(rows)), "--offsets-decoder")
    texts = [line.partition(" headerKeys: [] ")[2] for line in ran.out.splitlines()[3:]]
    assert texts == [
        'key: {"type":"1","data":{"group":"g","topic":"t","partition":0}} payload: '
        '{"version":"3","data":{"offset":4,"leaderEpoch":-1,"metadata":"","commitTimestamp":9}}',
        'key: {"type":"1","data":{"group":"g","topic":"t","partition":1}} payload: <DELETE>',
        'key: {"type":"2","data":{"group":"g"}} payload: {"version":"3","data":{"protocolType":'
        '"consumer","generation":2,"protocol":null,"leader":null,"currentStateTimestamp":1,'
        '"members":[]}}',
        "key: Unknown record type 99 at offset 3, skipping.",
    ]


def test_cluster_metadata(run: Run, tmp_path: Path) -> None:
    values = (encode_record(NoOpRecord()), b"\x01\x7f\x00", b"\x01\x17\x00\x01\x00\x02\x02m")
    rows = [(None, value, (), 1) for value in values]
    ran = dump(run, write(tmp_path, ".log", encode_batch(rows)), "--cluster-metadata-decoder")
    texts = [line.partition(" headerKeys: [] ")[2] for line in ran.out.splitlines()[3:]]
    assert texts[0] == 'payload: {"type":"NO_OP_RECORD","version":0,"data":{}}'
    assert texts[1].startswith("payload: Error at 1, skipping. ")
    assert texts[2] == (
        'payload: {"type":"BEGIN_TRANSACTION_RECORD","version":0,"data":{"name":"m"}}'
    )


def test_the_deletion_ledger_is_shown(run: Run, tmp_path: Path) -> None:
    row = DeletionReplicasRecord(
        topic_id=Uuid(bytes(range(16))), broker_id=2, state=4, partitions=(0, 1)
    )
    data = encode_batch([(None, encode_record(row), (), 1)])
    ran = dump(run, write(tmp_path, ".log", data), "--cluster-metadata-decoder")
    assert ran.out.splitlines()[3].endswith(
        'payload: {"type":"DELETION_REPLICAS_RECORD","version":0,"data":{"topicId":'
        '"AAECAwQFBgcICQoLDA0ODw","brokerId":2,"state":4,"partitions":[0,1]}}'
    )


def remote_log_metadata() -> list[bytes]:
    """Return one value of each kind that Ottla writes or Kafka defines."""
    partition = remote.TopicIdPartition(name="foo", id=Uuid(bytes(16)), partition=0)
    segment_id = remote.RemoteLogSegmentId(topic_id_partition=partition, id=Uuid(b"\1" * 16))
    segment = remote.RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=segment_id,
        start_offset=0,
        end_offset=100,
        broker_id=1,
        max_timestamp_ms=-1,
        event_timestamp_ms=123,
        segment_leader_epochs=tuple(
            remote.SegmentLeaderEpoch(leader_epoch=epoch, offset=offset)
            for epoch, offset in ((0, 0), (1, 20), (2, 80))
        ),
        segment_size_in_bytes=1024,
        custom_metadata=bytes(10),
        remote_log_segment_state=0,
        txn_index_empty=True,
    )
    update = remote.RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=segment_id,
        broker_id=0,
        event_timestamp_ms=0,
        remote_log_segment_state=1,
        leader_epoch=4,
        tiered_epoch=2,
    )
    deletion = remote.RemotePartitionDeleteMetadataRecord(
        topic_id_partition=partition,
        broker_id=0,
        event_timestamp_ms=0,
        remote_partition_delete_state=0,
    )
    fence = remote.FenceRecord(
        topic_id_partition=partition,
        broker_id=2,
        event_timestamp_ms=5,
        leader_epoch=4,
        tiered_epoch=2,
        tiering_state=1,
        remote_floor_epoch=0,
    )
    restore = remote.RestoreStartedRecord(
        topic_id_partition=partition, broker_id=2, event_timestamp_ms=6, leader_epoch=5
    )
    return [*map(remote.encode_message, (segment, update, deletion, fence, restore))]


def test_remote_log_metadata_are_printed_as_by_kafka(run: Run, tmp_path: Path) -> None:
    values = [*remote_log_metadata(), b"\x01\x09\x00", b""]
    rows = [(None, value, (), 1) for value in values]
    ran = dump(run, write(tmp_path, ".log", encode_batch(rows)), "--remote-log-metadata-decoder")
    texts = [line.partition(" headerKeys: [] ")[2] for line in ran.out.splitlines()[3:]]
    topic = "AAAAAAAAAAAAAAAAAAAAAA:foo-0"
    name = f"RemoteLogSegmentId{{topicIdPartition={topic}, id=AQEBAQEBAQEBAQEBAQEBAQ}}"
    assert texts == [
        f"payload: RemoteLogSegmentMetadata{{remoteLogSegmentId={name}, startOffset=0, "
        "endOffset=100, brokerId=1, maxTimestampMs=-1, eventTimestampMs=123, "
        "segmentLeaderEpochs={0=0, 1=20, 2=80}, segmentSizeInBytes=1024, "
        "customMetadata=Optional[CustomMetadata{10 bytes}], state=COPY_SEGMENT_STARTED, "
        "txnIdxEmpty=true}",
        f"payload: RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={name}, "
        "customMetadata=Optional.empty, state=COPY_SEGMENT_FINISHED, eventTimestampMs=0, "
        "brokerId=0, leaderEpoch=4, tieredEpoch=2}",
        f"payload: RemotePartitionDeleteMetadata{{topicPartition={topic}, "
        "state=DELETE_PARTITION_MARKED, eventTimestampMs=0, brokerId=0}",
        f"payload: Fence{{topicPartition={topic}, state=ENABLED, remoteFloorEpoch=0, "
        "eventTimestampMs=5, brokerId=2, leaderEpoch=4, tieredEpoch=2}",
        f"payload: RestoreStarted{{topicPartition={topic}, eventTimestampMs=6, brokerId=2, "
        "leaderEpoch=5}",
        "payload: Error at offset 5, skipping. Unknown record type",
        "payload: Error at offset 6, skipping. " + texts[6].partition("skipping. ")[2],
    ]
    assert texts[6].partition("skipping. ")[2]


def test_leader_changes_are_printed_as_by_kafka_4_1(run: Run, tmp_path: Path) -> None:
    data = leader_change_batch(
        leader_id=2, voters=(1, 2), granting_voters=(2,), base_offset=0, epoch=3, timestamp=9
    )
    line = dump(run, write(tmp_path, ".log", data), "--cluster-metadata-decoder").out.splitlines()[
        3
    ]
    assert line.partition(" headerKeys: [] ")[2] == (
        'LeaderChange: {"version":0,"leaderId":2,"voters":[{"voterId":1},{"voterId":2}],'
        '"grantingVoters":[{"voterId":2}]}'
    )


def test_names_of_snapshots(run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"{7:020d}-{3:010d}.checkpoint"
    path.write_bytes(b"")
    assert dump(run, path).out.splitlines()[1] == "Snapshot end offset: 7, epoch: 3"
    path = tmp_path / "bootstrap.checkpoint"
    path.write_bytes(b"")
    assert dump(run, path).out.splitlines()[1] == "KRaft bootstrap snapshot"


def test_files_that_are_none(run: Run, tmp_path: Path) -> None:
    other = tmp_path / "leader-epoch-checkpoint"
    other.write_text("0\n0\n")
    ran = dump(run, other)
    assert (ran.code, ran.err) == (0, f"Ignoring unknown file {other}\n")
    ran = dump(run, tmp_path / "none.log")
    assert ran.code == 1
    assert ran.err == f"ottla dump-log: {tmp_path}/none.log: no such file or directory\n"


def test_decoders_of_java_are_refused(run: Run) -> None:
    ran = run("dump-log", "--files", "x.log", "--value-decoder-class", "com.example.Mine")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        "ottla dump-log: --value-decoder-class com.example.Mine: "
        "Java classes cannot be loaded here",
    )
    ran = run("dump-log", "--files", "x.log", "--transaction-log-decoder")
    assert ran.code == 2
