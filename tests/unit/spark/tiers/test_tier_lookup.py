"""What a plan asks brokers and the store for must be as current as the plan, or be asked again.

Method: a fake broker with a tiered log in a directory; segments vanish and brokers change between
one request and the next.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from ottla.base.errors import Error
from ottla.base.ids import NO_EPOCH, Uuid
from ottla.client.cluster import ClusterClient
from ottla.spark.errors import ClusterError, RemoteStorageError
from ottla.spark.options import ReadOptions
from ottla.spark.planner import plan
from ottla.spark.tiers import tier_lookup
from ottla.spark.tiers.store_session import StoreSession
from ottla.tiered.object_names import ObjectKind, object_name
from ottla.wire.messages.describe_remote_log import DescribeRemoteLogRequest
from ottla.wire.messages.fetch import FetchRequest, FetchResponse
from tests.unit.spark.fake_broker import ID, TIERED, TOPIC, FakeBroker
from tests.unit.spark.tiered_log import TieredLog, half_copied

KEY = (TOPIC, 0)


def drawn() -> TieredLog:
    """Return a log with two remote segments; a transaction of the first ends behind both."""
    log = TieredLog()
    log.append(3)
    log.append(2, 11)
    log.end_transaction(11, committed=False)
    log.append(1, 12)
    log.append(4)
    log.end_transaction(12, committed=False)
    log.append(2)
    log.copy(0, 4)
    log.copy(4, 5)
    return log


def options(root: Path, broker: FakeBroker, **raw: str) -> ReadOptions:
    base = {
        "subscribe": TOPIC,
        "kafka.bootstrap.servers": f"127.0.0.1:{broker.port}",
        "ottla.remote.storage.uri": root.as_uri(),
        "isolation": "read_committed",
    }
    return ReadOptions.of(base | raw)


def test_tiers_of_a_partition(tmp_path: Path) -> None:
    log = drawn()
    with FakeBroker(versions=TIERED) as broker, ClusterClient(broker.options()) as client:
        broker.logs[0] = log.served()
        broker.faults[DescribeRemoteLogRequest] += [
            Error.NOT_LEADER_OR_FOLLOWER,
            Error.REPLICA_NOT_AVAILABLE,
        ]
        tiers = tier_lookup.describe(client, {KEY: ID})[KEY]
        assert [each.own for each in tiers.segments] == [(0, 7), (7, 11)]
        names = [each.object(ObjectKind.LOG) for each in tiers.segments]
        assert names == [object_name(each, ObjectKind.LOG) for each in log.segments]
        assert (tiers.local_end, tiers.local_bytes) == (log.end, len(broker.logs[0].data))
        # A topic of the same name that was created meanwhile.
        assert tier_lookup.describe(client, {KEY: Uuid(b"o" * 16)}) == {}


def test_transactions_that_end_where_only_brokers_have_the_marker(tmp_path: Path) -> None:
    log = drawn()
    log.write(tmp_path)
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        [task] = plan(options(tmp_path, broker))
        assert [(each.start, each.end) for each in task.splits] == [(0, 7), (7, 11), (11, 14)]
        aborted = [each.remote and each.remote.aborted for each in task.splits]
        assert aborted == [((11, 3), (12, 6)), ((12, 6),), None]
        assert broker.count(FetchRequest) == 1
        # Nobody is asked where it does not matter.
        broker.received.clear()
        plan(options(tmp_path, broker, isolation="read_uncommitted"))
        assert broker.count(FetchRequest) == 0


@pytest.mark.parametrize("error", [Error.NONE, Error.NOT_LEADER_OR_FOLLOWER])
def test_a_broker_that_has_not_read_the_records_in_time_is_asked_again(
    tmp_path: Path, error: Error
) -> None:
    """A broker names transactions with records only, and its read of remote ones may take long."""
    log = drawn()
    log.write(tmp_path)
    unread = [error, Error.NONE]

    class Slow(FakeBroker):
        def answer(self, request: object) -> tuple[object, bool]:
            found, sent = super().answer(request)
            if isinstance(found, FetchResponse) and unread:
                (topic,) = found.responses
                (data,) = topic.partitions
                empty = replace(
                    data, error_code=unread.pop(0), records=b"", aborted_transactions=()
                )
                found = replace(found, responses=(replace(topic, partitions=(empty,)),))
            return found, sent

    with Slow(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        [task] = plan(options(tmp_path, broker))
        aborted = [each.remote and each.remote.aborted for each in task.splits]
        assert aborted == [((11, 3), (12, 6)), ((12, 6),), None]


def test_transactions_that_cannot_be_looked_up_fail_the_plan(tmp_path: Path) -> None:
    log = drawn()
    log.write(tmp_path)
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        broker.faults[FetchRequest] += [Error.OFFSET_OUT_OF_RANGE]
        with pytest.raises(ClusterError, match="aborted transactions of t-0 at offset 11"):
            plan(options(tmp_path, broker))


def test_brokers_that_do_not_describe_tiers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeBroker() as broker:
        broker.logs[0] = drawn().served()
        [task] = plan(options(tmp_path, broker))
        assert [each.remote for each in task.splits] == [None]
    assert "do not serve DescribeRemoteLog" in caplog.text


def test_a_segment_that_goes_while_a_query_is_planned(tmp_path: Path) -> None:
    log = drawn()
    log.write(tmp_path)

    class Expiring(FakeBroker):
        """The first segment is deleted right after it was listed."""

        def answer(self, request: object) -> tuple[object, bool]:
            found = super().answer(request)
            if isinstance(request, DescribeRemoteLogRequest) and len(log.segments) == 2:
                log.expire(7)
                log.write(tmp_path, 1)
                self.logs[0] = log.served()
            return found

    with Expiring(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        [task] = plan(options(tmp_path, broker))
        assert broker.count(DescribeRemoteLogRequest) == 2
        # Its offsets were there when the range was looked up; whoever reads them sees the loss.
        places = [(each.start, each.end, each.remote is not None) for each in task.splits]
        assert places == [(0, 7, False), (7, 11, True), (11, 14, False)]


def test_a_store_that_is_not_that_of_the_brokers(tmp_path: Path) -> None:
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = drawn().served()
        with pytest.raises(
            RemoteStorageError, match=r"has no object .*\.txnindex, which is listed"
        ):
            plan(options(tmp_path, broker))


def test_without_a_transaction_index_there_is_no_plan(tmp_path: Path) -> None:
    log = drawn()
    log.write(tmp_path)
    (tmp_path / object_name(log.segments[0], ObjectKind.TXN_INDEX)).unlink()
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        with pytest.raises(RemoteStorageError, match=r"\.txnindex, which is listed as readable"):
            plan(options(tmp_path, broker))
        assert plan(options(tmp_path, broker, isolation="read_uncommitted"))


def test_a_segment_that_kafka_copied_may_have_no_transaction_index(tmp_path: Path) -> None:
    log = half_copied(4)
    changed = {"txn_index_empty": False, "tiered_epoch": NO_EPOCH}
    log.segments = [replace(each, **changed) for each in log.segments]
    log.write(tmp_path)
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        [task] = plan(options(tmp_path, broker))
    assert [each.remote and each.remote.aborted for each in task.splits] == [(), (), None]


def test_indexes_that_cannot_be_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = drawn()
    log.write(tmp_path)
    first, second = (tmp_path / object_name(each, ObjectKind.OFFSET_INDEX) for each in log.segments)
    first.unlink()
    second.write_bytes(b"123")
    with FakeBroker(versions=TIERED) as broker, ClusterClient(broker.options()) as client:
        broker.logs[0] = log.served()
        segments = tier_lookup.describe(client, {KEY: ID})[KEY].segments
        with StoreSession(tmp_path.as_uri(), timeout_ms=500) as session:
            assert list(tier_lookup.read_positions(session, segments)) == [None, None]
    assert "the segment is read from its beginning" in caplog.text
    assert "is not whole entries" in caplog.text
