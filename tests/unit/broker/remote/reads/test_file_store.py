"""Remote reads through a store in a directory, with its threads, in real time."""

from pathlib import Path

from ottla.base.object_store import Pool, StoreError
from ottla.base.pending import Pending
from ottla.base.timers import Timers
from ottla.broker.fetch.remote_port import RemoteData, RemoteFetch
from ottla.broker.produce.batch_work import BatchWork
from ottla.broker.remote.reads.reads import RemoteReader, RemoteReadLimits
from ottla.stores.file_backend import FileBackend
from tests.unit.broker.remote.reads.test_reads import NOW_MS, written
from tests.unit.broker.remote.support import RemoteLog, batches_of, copied, tiered
from tests.unit.log.support import InlineWorkers, offset_for_timestamp
from tests.unit.stores.support import RealBench


def test_a_log_is_read_back_from_a_directory(tmp_path: Path) -> None:
    bench = RealBench(lambda: FileBackend(str(tmp_path / "store")), tmp_path)
    store, log = bench.open(), written()
    deadline_ms = bench.deadline()

    def put(name: str, data: bytes) -> None:
        call = store.put(name, data, pool=Pool.COPIER, deadline_ms=deadline_ms)
        assert not isinstance(bench.wait(call), StoreError)

    batches = batches_of(log)
    matches = {at: offset_for_timestamp(log, NOW_MS + at) for at in range(0, 300, 50)}
    remote = RemoteLog(copied(log, log.ports.disk, put))
    until = tiered(log, len(remote.known)).local_log_start_offset
    limits = RemoteReadLimits(chunk_bytes=256, chunk_cache_bytes_max=2_048)
    timers = Timers()
    reader = RemoteReader(store, lambda *_: remote, bench.clock, timers, limits)
    closed: Pending[None] = Pending()
    for offset in range(0, until, 3):
        wanted = RemoteFetch(log, offset, 1, True, False, log.high_watermark)
        found = reader.read(wanted, closed, lambda: None)
        if found is None:
            bench.run_until(lambda: reader.under_way == 0)
            found = reader.read(wanted, closed, lambda: None)
        assert isinstance(found, RemoteData)
        assert found.data == next(each.data for each in batches if each.last >= offset)
    work = BatchWork(InlineWorkers())
    for at, match in matches.items():
        promise = reader.find_timestamp(
            log, NOW_MS + at, work=work, deadline_ms=bench.deadline(), closed=closed
        )
        bench.run_until(lambda promise=promise: promise.done)
        assert promise.value == match
    assert (reader.reserved_bytes, reader.ranges.calls, len(timers)) == (0, 0, 0)
    assert reader.errors == 0
    bench.close()
