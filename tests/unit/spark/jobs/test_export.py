"""No record may be in the table twice, or be missing, whatever was killed when.

Method: whole exports in this process, from a fake broker into a directory. One run is killed
before and after each of its operations on the target, and in the middle of its moves; what readers
see then is compared with what is committed, and after the next run with the topic.
"""

import io
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.base.ids import Uuid
from ottla.records.builder import encode_batch
from ottla.records.columnar import encode
from ottla.spark.errors import ClusterError, DataLossError, OptionError, RemoteStorageError
from ottla.spark.jobs import export as exporting
from ottla.spark.jobs.documents import OffsetRange
from ottla.spark.jobs.export import (
    Bound,
    ExportOptions,
    Source,
    export,
    exported,
    plan_export,
)
from ottla.spark.jobs.exporting.export_files import date_text, days_of
from ottla.spark.jobs.exporting.export_journal import Phase
from ottla.spark.jobs.exporting.export_state import Journal
from ottla.spark.jobs.heartbeat import RunningError
from ottla.spark.jobs.target_store import TargetStore
from ottla.spark.tiers.store_session import StoreSession
from tests.unit.spark.fake_broker import TIERED, TOPIC, FakeBroker, Log
from tests.unit.spark.jobs.fake_spark import FakeSpark
from tests.unit.spark.tiered_log import half_copied
from tests.unit.spark.tiers.test_tiered_planner import new_store
from tests.unit.stores.moto_server import MotoServer

PARTITIONS = 3
DAY_MS = 86_400_000
BEGIN_MS = 1_700_000_000_000
"""In the evening of 2023-11-14, UTC."""


class Killed(BaseException):
    """The driver was killed."""


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(partitions=PARTITIONS) as running:
        yield running


def fill(broker: FakeBroker, count: int, *, begin_ms: int = BEGIN_MS) -> None:
    """Append records to each partition, a third of a day apart."""
    for log in broker.logs:
        first = log.end
        times = [begin_ms + (first + number) * DAY_MS // 3 for number in range(count)]
        rows = pa.RecordBatch.from_arrays(
            [
                pa.array([b"%d" % (first + number) for number in range(count)], pa.binary()),
                pa.array(times, pa.int64()),
            ],
            names=["value", "timestamp"],
        )
        for batch in encode(rows, timestamp_ms=0):
            log.append(batch)


def options(broker: FakeBroker, path: Path, **changes: Any) -> ExportOptions:
    source = Source(topic=TOPIC, cluster=broker.options(), timeout_s=5)
    return replace(ExportOptions(source=source, to=str(path), patience_s=0), **changes)


def run(broker: FakeBroker, path: Path, **changes: Any) -> exporting.ExportResult:
    return export(FakeSpark(), options(broker, path, **changes))


def visible(path: Path) -> list[Path]:
    """Return the files that a reader of the directory would read."""
    return sorted(
        each
        for each in path.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in each.relative_to(path).parts)
    )


def read(path: Path) -> Counter[tuple[int, int, bytes]]:
    found: Counter[tuple[int, int, bytes]] = Counter()
    for each in visible(path):
        # Each file alone: the directories' names would become a column.
        with each.open("rb") as file:
            for row in pq.ParquetFile(file).read().to_pylist():
                found[row["partition"], row["offset"], row["value"]] += 1
                day = datetime.fromtimestamp(row["timestamp"].timestamp(), UTC).date()
                assert each.parent.name in (f"date={day}", path.name)
    return found


def whole(broker: FakeBroker, end: int | None = None) -> Counter[tuple[int, int, bytes]]:
    return Counter(
        (number, offset, b"%d" % offset)
        for number, log in enumerate(broker.logs)
        for offset in range(log.end if end is None else end)
    )


def test_each_run_adds_what_is_new(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 5)
    first = run(broker, tmp_path)
    assert (first.rows, len(first.ranges)) == (15, 3)
    assert read(tmp_path) == whole(broker)
    assert {each.parent.name for each in visible(tmp_path)} == {
        "date=2023-11-14",
        "date=2023-11-15",
        "date=2023-11-16",
    }
    again = run(broker, tmp_path)
    assert (again.run, again.rows) == (None, 0)
    fill(broker, 4)
    assert run(broker, tmp_path).rows == 12
    assert read(tmp_path) == whole(broker)
    names = set(pq.ParquetFile(visible(tmp_path)[0]).schema_arrow.names)
    assert names == {*exporting.COLUMNS}


def test_a_relative_path_is_that_of_the_driver(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def in_a_worker(action: Callable[[], Any]) -> Any:
        monkeypatch.chdir("elsewhere")
        return action()

    export(FakeSpark(), replace(options(broker, tmp_path), to="table"), act=in_a_worker)
    assert read(tmp_path / "table") == whole(broker)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_first_run_that_has_nothing_to_export_says_where_later_ones_start(
    broker: FakeBroker, tmp_path: Path
) -> None:
    fill(broker, 5)
    for start in (4, 5):  # It can be given again.
        ends = {"start": Bound(offset=start), "end": Bound(offset=start)}
        assert run(broker, tmp_path, **ends).run is None
    fill(broker, 1)
    result = run(broker, tmp_path)
    assert result.ranges == tuple(OffsetRange(number, 5, 6) for number in range(PARTITIONS))
    with pytest.raises(OptionError, match="a start can only be given for the first run"):
        run(broker, tmp_path, start=Bound(offset=5))


def test_what_was_exported_before_a_transaction_ended_is_not_exported_again(
    broker: FakeBroker, tmp_path: Path
) -> None:
    fill(broker, 5)
    broker.logs[0].first_open = 2
    uncommitted = replace(options(broker, tmp_path).source, read_committed=False)
    assert run(broker, tmp_path, source=uncommitted).rows == 15
    broker.logs[1].append(encode_batch([(None, b"5", (), BEGIN_MS)]))
    careless = replace(options(broker, tmp_path).source, skip_lost=True)
    result = run(broker, tmp_path, source=careless)
    assert (result.rows, result.losses) == (1, ())
    broker.logs[0].first_open = None
    assert run(broker, tmp_path).run is None
    assert read(tmp_path) == whole(broker)


def test_the_store_alone_may_have_less_than_was_exported(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Records are not exported again once they are copied."""
    root, path = new_store(tmp_path_factory.mktemp("stored")), tmp_path_factory.mktemp("table")
    log = half_copied(6)
    log.write(root)
    with FakeBroker(versions=TIERED) as broker:
        broker.logs[0] = log.served()
        assert run(broker, path).rows == 30
    stored = Source(
        topic=TOPIC, cluster=None, remote_storage=f"file://{root}", skip_lost=True, timeout_s=5
    )
    found = plan_export(ExportOptions(source=stored, to=str(path)))
    assert (found.ranges, found.losses, found.offsets) == ((), (), {0: 30})


def test_one_directory_and_bounds(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 9)
    chosen = {"partition_by": "none", "start": Bound(offsets={0: 2, 2: 8}), "end": Bound(offset=8)}
    assert run(broker, tmp_path, **chosen).rows == 6 + 8 + 0
    with pytest.raises(OptionError, match="a start can only be given for the first run"):
        run(broker, tmp_path, **chosen)
    # It continues where the first run was to start, also where that had nothing to export.
    assert run(broker, tmp_path, partition_by="none").rows == 3
    found = read(tmp_path)
    assert found == whole(broker) - Counter(
        {key: 1 for key in whole(broker) if (key[0], key[1]) in ((0, 0), (0, 1))}
        | {key: 1 for key in whole(broker) if key[0] == 2 and key[1] < 8}
    )
    with pytest.raises(OptionError, match="the target has the partitioning none, not date"):
        run(broker, tmp_path)
    with pytest.raises(OptionError, match="the end names partition 5: topic t has 0 to 2"):
        run(broker, tmp_path / "other", end=Bound(offsets={5: 1}))


def test_bounds_by_time(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 9)
    start, end = Bound(time_ms=BEGIN_MS + DAY_MS), Bound(time_ms=BEGIN_MS + 2 * DAY_MS)
    result = run(broker, tmp_path, start=start, end=end)
    assert [(each.start, each.end) for each in result.ranges] == [(3, 6)] * 3


class Killer:
    """Raises Killed before or after one of the operations that change a target."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.count = 0
        self.at, self.after = at, after

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(store: TargetStore, *arguments: Any) -> Any:
            number = self.count
            self.count += 1
            if number == self.at and not self.after:
                raise Killed
            result = real(store, *arguments)
            if number == self.at:
                raise Killed
            return result

        return operation


OPERATIONS = ("put", "put_if_absent", "delete", "move")


def killed_at(
    monkeypatch: pytest.MonkeyPatch, killer: Killer, act: Callable[[], object]
) -> BaseException | None:
    with monkeypatch.context() as patch:
        for name in OPERATIONS:
            patch.setattr(TargetStore, name, killer.wrap(getattr(TargetStore, name)))
        try:
            act()
        except Killed as error:
            return error
    return None


@pytest.mark.drawn(8, of="every step")
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_killed_at_each_operation(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    fill(broker, 4)
    run_flat = partial(run, broker, partition_by="none")
    phases: Counter[Phase | None] = Counter()
    end = 4
    for at in range(100):
        path = tmp_path / str(at)
        run_flat(path, end=Bound(offset=2))
        before = read(path)
        killer = Killer(at, after=after)
        if killed_at(monkeypatch, killer, partial(run_flat, path)) is None:
            break
        with TargetStore(str(path)) as store:
            last = Journal(store).last
        phase = last and last.phase
        phases[phase] += 1
        # What is not committed is not visible; what is visible is there once.
        seen = read(path)
        assert seen == before or phase in (Phase.COMMITTED, Phase.PUBLISHED)
        assert not seen - whole(broker, end)
        result = run_flat(path)
        expected = {Phase.BEGUN: "discarded", Phase.COMMITTED: "completed"}
        assert result.recovered == expected.get(phase, "") if phase else True
        assert read(path) == whole(broker)
        assert not list((path / "_ottla").rglob("*.parquet"))
    else:
        pytest.fail("the run has too many operations")
    assert at >= 9
    assert phases[Phase.BEGUN] >= 5
    assert phases[Phase.COMMITTED] >= 1


def test_the_first_run_is_killed_and_repeated(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is exported before the commit: what is repeated may have the same start."""
    fill(broker, 9)
    start, other = Bound(offset=4), Bound(offset=6)
    run_flat = partial(run, broker, partition_by="none")
    seen = set()
    for at in range(100):
        path = tmp_path / str(at)
        killer = Killer(at, after=True)
        if killed_at(monkeypatch, killer, partial(run_flat, path, start=start)) is None:
            break
        with TargetStore(str(path)) as store:
            last = Journal(store).last
        if last is None:
            continue
        seen.add(last.phase)
        if last.phase is Phase.BEGUN:
            assert plan_export(options(broker, path, partition_by="none", start=other)).ranges == (
                *(OffsetRange(number, 6, 9) for number in range(PARTITIONS)),
            )
            assert run_flat(path, start=start).recovered == "discarded"
        else:
            with pytest.raises(OptionError, match="a start can only be given for the first run"):
                run_flat(path, start=start)
        assert {offset for _, offset, _ in read(path)} == set(range(4, 9))
        assert run_flat(path).rows == 0
    assert seen == {Phase.BEGUN, Phase.COMMITTED, Phase.PUBLISHED}


@pytest.mark.drawn(8, of="every step")
def test_a_recovery_that_is_killed(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a kill before the commit, and after one, each operation of the next run is killed."""
    fill(broker, 4)
    run_flat = partial(run, broker, partition_by="none")
    for first in (5, 6):
        for at in range(100):
            path = tmp_path / f"{first}-{at}"
            assert killed_at(monkeypatch, Killer(first, after=True), partial(run_flat, path))
            killer = Killer(at, after=at % 2 == 1)
            if killed_at(monkeypatch, killer, partial(run_flat, path)) is None:
                break
            assert not read(path) - whole(broker)
            run_flat(path)
            assert read(path) == whole(broker)


def test_moves_that_were_done_in_part(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 6)
    real = TargetStore.move

    def move_some(store: TargetStore, moves: Any, report: Any) -> None:
        real(store, moves[:4], report)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TargetStore, "move", move_some)
        with pytest.raises(Killed):
            run(broker, tmp_path)
    assert len(visible(tmp_path)) == 4
    assert plan_export(options(broker, tmp_path)).ranges == ()
    result = run(broker, tmp_path)
    assert (result.recovered, result.rows) == ("completed", 0)
    assert read(tmp_path) == whole(broker)


def test_a_file_that_is_gone_before_it_is_published(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 2)
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise Killed

        patch.setattr(TargetStore, "move", fail)
        with pytest.raises(Killed):
            run(broker, tmp_path)
    next((tmp_path / "_ottla").rglob("*.parquet")).unlink()
    with pytest.raises(RemoteStorageError, match=r"neither .*_ottla.* nor .* is there"):
        run(broker, tmp_path)


def test_of_two_runs_at_a_time_one_wins(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 3)

    def overtake(action: Callable[[], Any]) -> Any:
        done = action()
        # The first run has written its files; another one takes it for dead.
        assert run(broker, tmp_path).recovered == "discarded"
        return done

    with pytest.raises(RunningError, match="another export writes to"):
        export(FakeSpark(), options(broker, tmp_path), act=overtake)
    assert read(tmp_path) == whole(broker)
    fill(broker, 1)
    run(broker, tmp_path)
    assert read(tmp_path) == whole(broker)


def test_a_topic_that_was_created_again(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 3)
    run(broker, tmp_path)
    broker.topic_id = Uuid(b"j" * 16)
    for log in broker.logs:
        log.data.clear()
        log.end = 0
    fill(broker, 5)
    with pytest.raises(ClusterError, match="topic t was deleted and created again: the target has"):
        run(broker, tmp_path)
    result = run(broker, tmp_path, on_recreate="continue")
    assert (result.rows, result.topic_id) == (15, broker.topic_id)
    assert run(broker, tmp_path).run is None
    assert read(tmp_path) == whole(broker) + whole(broker, 3)
    other = replace(options(broker, tmp_path).source, topic_id=Uuid(b"k" * 16))
    with pytest.raises(ClusterError, match=r"topic t has the id amp.*, not a2t"):
        run(broker, tmp_path / "new", source=other)


def test_records_that_expired(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 3)
    run(broker, tmp_path)
    fill(broker, 3)
    broker.logs[1].start = 5
    with pytest.raises(DataLossError, match=r"t-1: offsets 3 to 4 are no longer available\. With"):
        run(broker, tmp_path)
    lenient = replace(options(broker, tmp_path).source, skip_lost=True)
    result = run(broker, tmp_path, source=lenient)
    assert result.rows == 7
    assert result.losses == ("t-1: offsets 3 to 4 are no longer available",)
    # A log that is shorter than before: another history.
    broker.logs[0].end = 2
    with pytest.raises(DataLossError, match="t-0: the job starts at 6, the log ends at 2"):
        run(broker, tmp_path)


def test_partitions_that_a_broker_does_not_know_yet(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 3)
    run(broker, tmp_path)
    known = broker.logs[:]
    del broker.logs[2:]  # A broker with older metadata, from before the topic had a third one.
    fill(broker, 2)
    assert run(broker, tmp_path).rows == 4
    broker.logs[:] = known
    assert run(broker, tmp_path).rows == 0
    assert read(tmp_path) == whole(broker)


def test_records_of_a_new_partition_that_expired(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 3)
    run(broker, tmp_path)
    broker.logs.append(Log())
    fill(broker, 3)
    broker.logs[3].start = 2
    with pytest.raises(DataLossError, match=r"t-3: offsets 0 to 1 are no longer available\. With"):
        run(broker, tmp_path)
    broker.logs[3].start = 0
    assert run(broker, tmp_path).rows == 12
    assert read(tmp_path) == whole(broker)


def test_what_cannot_be_written(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 1)
    (tmp_path / "file").write_text("x")
    with pytest.raises(RemoteStorageError, match="could not be created"):
        run(broker, tmp_path / "file" / "below")
    with pytest.raises(OptionError, match="to: ftp://x: expected file://"):
        options(broker, tmp_path, to="ftp://x")
    with pytest.raises(OptionError, match="partition_by=hour: expected date or none"):
        options(broker, tmp_path, partition_by="hour")
    with pytest.raises(OptionError, match="nothing to read from"):
        Source(topic="t", cluster=None)
    # Nothing is created by a plan.
    assert len(plan_export(options(broker, tmp_path / "new")).ranges) == 3
    assert not (tmp_path / "new").exists()


class Reader:
    """Notes what Spark is to read; Hadoop takes what follows file:// as the path, literally."""

    def __init__(self) -> None:
        self.read = self
        self.base = ""
        self.names: tuple[str, ...] = ()

    def option(self, name: str, value: str) -> "Reader":
        assert name == "basePath"
        self.base = value
        return self

    def parquet(self, *names: str) -> "Reader":
        self.names = names
        return self


def test_a_directory_whose_name_has_a_space(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 3)
    path = tmp_path / "my lake 100%"
    run(broker, path)
    found = exported(Reader(), str(path))
    assert found.base == f"file://{path}"
    assert sorted(found.names) == [f"file://{each}" for each in visible(path)]


def test_a_target_that_is_no_directory(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 3)
    to = f"memory://{tmp_path.name}"
    run(broker, tmp_path, to=to)
    fill(broker, 2)
    with monkeypatch.context() as patch:

        def fail(*_: Any) -> None:
            raise Killed

        patch.setattr(Journal, "publish", fail)
        with pytest.raises(Killed):
            run(broker, tmp_path, to=to)
    assert run(broker, tmp_path, to=to).recovered == "completed"
    with StoreSession(to, timeout_ms=1000) as session:
        names = [each.name for each in session.list_objects("")]
    files = [each for each in names if not each.startswith("_")]
    assert len(files) == sum(len(entry.files) for entry in commits(to))
    assert not [each for each in names if each.startswith("_ottla/staged")]


def test_a_bucket(broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    fill(broker, 3)
    with MotoServer() as moto:
        client = boto3.client("s3", endpoint_url=moto.url, region_name="us-east-1")
        client.create_bucket(Bucket="lake")
        to = f"s3://lake/orders?endpoint={moto.url}&region=us-east-1"
        assert run(broker, tmp_path, to=to).rows == 9
        fill(broker, 2)
        assert run(broker, tmp_path, to=to).rows == 6
        assert run(broker, tmp_path, to=to).run is None
        found: Counter[tuple[int, int, bytes]] = Counter()
        for each in client.list_objects_v2(Bucket="lake", Prefix="orders/")["Contents"]:
            name = each["Key"].removeprefix("orders/")
            assert not name.startswith("_ottla/staged")
            if not name.startswith("_"):
                data = client.get_object(Bucket="lake", Key=each["Key"])["Body"].read()
                for row in pq.ParquetFile(io.BytesIO(data)).read().to_pylist():
                    found[row["partition"], row["offset"], row["value"]] += 1
    assert found == whole(broker)


def commits(to: str) -> list[Any]:
    with TargetStore(to) as store:
        return Journal(store).commits()


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "1970-01-01"),
        (86_399_999_999, "1970-01-01"),
        (-1, "1969-12-31"),
        (-1_000, "__HIVE_DEFAULT_PARTITION__"),
        (1_700_000_000_000_000, "2023-11-14"),
        (253_402_300_799_999_999, "9999-12-31"),
        (253_402_300_800_000_000, "__HIVE_DEFAULT_PARTITION__"),
        (-62_135_596_800_000_000, "0001-01-01"),
        (-62_135_596_800_000_001, "__HIVE_DEFAULT_PARTITION__"),
        (None, "__HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_dates(micros: int | None, text: str) -> None:
    (day,) = days_of(pa.array([micros], pa.timestamp("us", "UTC"))).tolist()
    assert date_text(day) == text


def test_many_dates_in_one_task(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.spark.jobs.exporting.export_files.FILES_OPEN_MAX", 2)
    monkeypatch.setattr("ottla.spark.jobs.exporting.export_files.GROUP_BYTES", 100)
    for number in range(6):
        fill(broker, 7, begin_ms=BEGIN_MS - 5 * number * DAY_MS)
    run(broker, tmp_path)
    assert read(tmp_path) == whole(broker)
