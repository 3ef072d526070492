"""A run must be in the Iceberg table whole, and once, whatever was killed or raced when.

Method: whole exports in this process, from a fake broker, with the package pyiceberg and catalogs
in SQLite. A run is killed before and after each of its operations on target and catalog; other
writers come between the reading of a table and the commit to it.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyiceberg import catalog as catalogs
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.utils.config import Config

from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.jobs.export import Bound, export, plan_export
from ottla.spark.jobs.exporting import export_iceberg
from ottla.spark.jobs.exporting.export_iceberg import IcebergTable, catalog_table, place_of
from ottla.spark.jobs.exporting.export_journal import Phase
from ottla.spark.jobs.exporting.export_state import Journal
from ottla.spark.jobs.heartbeat import RunningError
from ottla.spark.jobs.target_store import TargetStore
from tests.unit.spark.fake_broker import FakeBroker
from tests.unit.spark.jobs.fake_spark import FakeSpark
from tests.unit.spark.jobs.test_export import (
    BEGIN_MS,
    DAY_MS,
    OPERATIONS,
    Killed,
    Killer,
    broker,
    fill,
    options,
    whole,
)
from tests.unit.spark.jobs.test_export import run as run_any
from tests.unit.stores.moto_server import MotoServer

__all__ = ["broker"]

run = partial(run_any, format="iceberg")
Rows = Counter[tuple[int, int, bytes]]


def catalog_of(path: Path) -> Any:
    return closing(SqlCatalog("ottla", uri=f"sqlite:///{path}/_ottla/catalog.db"))


def rows_of(table: Any, **scan: Any) -> Rows:
    found = table.scan(**scan).to_arrow().to_pylist()
    return Counter((each["partition"], each["offset"], each["value"]) for each in found)


def read(path: Path, **scan: Any) -> Rows:
    with catalog_of(path) as catalog:
        return rows_of(catalog.load_table("ottla.t"), **scan)


def read_if_there(path: Path) -> Rows:
    with catalog_of(path) as catalog:
        return read(path) if catalog.table_exists("ottla.t") else Counter()


def test_each_run_adds_what_is_new(broker: FakeBroker, tmp_path: Path) -> None:
    path = tmp_path / "my 100% table"
    fill(broker, 4)
    # A record without a timestamp.
    fill(broker, 1, begin_ms=-1 - 4 * DAY_MS // 3)
    assert len(plan(broker, path, format="iceberg").ranges) == 3
    assert not path.exists()
    assert run(broker, path).rows == 15
    first = read(path)
    assert first == whole(broker)
    assert run(broker, path).run is None
    fill(broker, 2, begin_ms=BEGIN_MS)
    second = run(broker, path)
    assert (second.rows, second.to) == (6, path.as_uri())
    assert read(path) == whole(broker)
    with catalog_of(path) as catalog:
        table = catalog.load_table("ottla.t")
        columns = table.scan().to_arrow().to_pylist()
        for row in columns:
            # The timestamp -1 ms says that there is none.
            date = row["timestamp"].date()
            assert row["date"] == (None if date.year == 1969 else date)
            # pyiceberg reads a null list as an empty one.
            assert (row["topic"], row["timestampType"], row["headers"]) == ("t", 0, [])
        summaries = [each.summary for each in table.snapshots()]
        assert [each["ottla.export.offsets"] for each in summaries if each] == [
            '{"0":5,"1":5,"2":5}',
            '{"0":7,"1":7,"2":7}',
        ]
        assert table.properties["ottla.export.run"] == second.run
        # What an older snapshot has, and what a date has.
        assert rows_of(table, snapshot_id=table.snapshots()[0].snapshot_id) == first
        dates = {row["date"] for row in columns}
        assert len(dates) == 4
        for date in dates:
            chosen = "date is null" if date is None else f"date = '{date}'"
            scan = table.scan(row_filter=chosen)
            expected = [row["offset"] for row in columns if row["date"] == date]
            assert sorted(scan.to_arrow()["offset"].to_pylist()) == sorted(expected)
            places = {each.file.file_path.split("/")[-2] for each in scan.plan_files()}
            assert places == {f"date={date or '__HIVE_DEFAULT_PARTITION__'}"}
    with pytest.raises(OptionError, match="the target has the format iceberg, not parquet"):
        run_any(broker, path)


def test_one_directory(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 3)
    run(broker, tmp_path, partition_by="none")
    assert read(tmp_path) == whole(broker)
    with catalog_of(tmp_path) as catalog:
        table = catalog.load_table("ottla.t")
        assert "date" not in table.schema().column_names
        assert table.spec().fields == ()


@pytest.mark.parametrize("partition_by", ["date", "none"])
@pytest.mark.parametrize("beyond_ms", [-63_000_000_000_000, 254_000_000_000_000])
def test_timestamps_beyond_the_years_of_a_datetime(
    broker: FakeBroker, tmp_path: Path, beyond_ms: int, partition_by: str
) -> None:
    fill(broker, 2)
    run(broker, tmp_path, partition_by=partition_by)
    fill(broker, 1, begin_ms=beyond_ms)
    fill(broker, 1)
    assert run(broker, tmp_path, partition_by=partition_by).rows == 6
    fill(broker, 1)
    assert run(broker, tmp_path, partition_by=partition_by).rows == 3
    with catalog_of(tmp_path) as catalog:
        table = catalog.load_table("ottla.t")
        assert rows_of(table, selected_fields=("partition", "offset", "value")) == whole(broker)
        assert "write.metadata.metrics.column.timestamp" not in table.properties
        # What has bounds is narrowed still, and what has none is in no filter's way.
        field = table.schema().find_field("timestamp").field_id
        bounded = [field in each.file.lower_bounds for each in table.scan().plan_files()]
        assert any(bounded)
        assert not all(bounded)
        early = table.scan("timestamp < '0002-01-01T00:00:00+00:00'", selected_fields=("offset",))
        found = early.to_arrow()["offset"].to_pylist()
        assert found == ([2] * len(broker.logs) if beyond_ms < 0 else [])


CATALOG_OPERATIONS = ("_create", "_commit")


def killed_at(
    monkeypatch: pytest.MonkeyPatch, killer: Killer, act: Callable[[], object]
) -> BaseException | None:
    with monkeypatch.context() as patch:
        for kind, names in ((TargetStore, OPERATIONS), (IcebergTable, CATALOG_OPERATIONS)):
            for name in names:
                patch.setattr(kind, name, killer.wrap(getattr(kind, name)))
        try:
            act()
        except Killed as error:
            return error
    return None


@pytest.mark.drawn(8, of="every step")
@pytest.mark.forms(2)
@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_killed_at_each_operation(
    broker: FakeBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: bool,
    has_run: bool,
) -> None:
    fill(broker, 4)
    run_flat = partial(run, broker, partition_by="none")
    phases: Counter[Phase | None] = Counter()
    for at in range(100):
        path = tmp_path / str(at)
        path.mkdir()
        if has_run:
            run_flat(path, end=Bound(offset=2))
        else:
            (path / "_ottla").mkdir()
        before = read_if_there(path)
        killer = Killer(at, after=after)
        if killed_at(monkeypatch, killer, partial(run_flat, path)) is None:
            break
        with TargetStore(str(path)) as store:
            last = Journal(store).last
        phase = last and last.phase
        phases[phase] += 1
        # Nothing of the run is visible, or all.
        assert read_if_there(path) in (before, whole(broker))
        result = run_flat(path)
        expected = {Phase.BEGUN: "discarded", Phase.COMMITTED: "completed"}
        assert result.recovered == (expected.get(phase, "") if phase else "")
        assert read(path) == whole(broker)
        assert run_flat(path).run is None
    else:
        pytest.fail("the run has too many operations")
    assert phases[Phase.BEGUN] >= 5
    # Before and after the moves and the commit.
    assert phases[Phase.COMMITTED] >= 3


def test_a_recovery_that_is_killed(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 4)
    run_flat = partial(run, broker, partition_by="none")

    def fail(*_: object) -> None:
        raise Killed

    for at in range(100):
        path = tmp_path / str(at)
        with monkeypatch.context() as patch:
            patch.setattr(IcebergTable, "add_run", fail)
            with pytest.raises(Killed):
                run_flat(path)
        killer = Killer(at, after=at % 2 == 1)
        if killed_at(monkeypatch, killer, partial(run_flat, path)) is None:
            break
        run_flat(path)
        assert read(path) == whole(broker)
    assert at >= 3


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[IcebergTable, Any], None]) -> Any:
    """Let something happen between the reading of a table and the first commit to it."""
    real = IcebergTable._commit
    waiting = [act]

    def commit(table: IcebergTable, found: Any, entry: Any) -> None:
        if waiting:
            waiting.pop()(table, entry)
        real(table, found, entry)

    monkeypatch.setattr(IcebergTable, "_commit", commit)
    monkeypatch.setattr(export_iceberg, "PAUSE", lambda _: None)


def test_a_run_that_two_processes_complete(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one has read the table before the first one has added the run."""
    fill(broker, 3)
    before_commit(monkeypatch, lambda _, entry: add_again(tmp_path, entry))
    run(broker, tmp_path)
    assert read(tmp_path) == whole(broker)
    # One that comes late still.
    with TargetStore(str(tmp_path)) as store:
        first = Journal(store).commits()[0]
    fill(broker, 2)
    run(broker, tmp_path)
    add_again(tmp_path, first)
    assert read(tmp_path) == whole(broker)


def add_again(path: Path, entry: Any) -> None:
    with IcebergTable(str(path), "t", "date") as other:
        other.add_run(entry)


def test_another_export_takes_a_slow_one_for_dead(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 3)
    before_commit(monkeypatch, lambda *_: ended.append(run(broker, tmp_path)))
    ended: list[Any] = []
    # Both append the same entry to the journal.
    assert run(broker, tmp_path).rows == 9
    assert [(each.recovered, each.run) for each in ended] == [("completed", None)]
    assert read(tmp_path) == whole(broker)


@pytest.mark.parametrize("error", [CommitFailedException, CommitStateUnknownException])
def test_other_writers(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    fill(broker, 2)
    run(broker, tmp_path)
    fill(broker, 1)

    def append(*_: object) -> None:
        with catalog_of(tmp_path) as catalog:
            table = catalog.load_table("ottla.t")
            table.append(table.scan(limit=1).to_arrow())

    with monkeypatch.context() as patch:
        before_commit(patch, append)
        run(broker, tmp_path)
    foreign = read(tmp_path) - whole(broker)
    assert (foreign.total(), read(tmp_path) - foreign) == (1, whole(broker))
    fill(broker, 1)

    def lose(*_: object) -> None:
        raise error

    pauses: list[float] = []
    with monkeypatch.context() as patch:
        patch.setattr(IcebergTable, "_commit", lose)
        patch.setattr(export_iceberg, "PAUSE", pauses.append)
        with pytest.raises(RemoteStorageError, match="other writers were faster 10 times"):
            run(broker, tmp_path)
    assert len(pauses) == export_iceberg.COMMITS_MAX
    assert run(broker, tmp_path).recovered == "completed"
    assert read(tmp_path) - foreign == whole(broker)


def test_a_run_without_rows_is_recorded(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 3)
    with monkeypatch.context() as patch:
        patch.setattr("ottla.spark.jobs.export.read_task", lambda *_: iter(()))
        assert run(broker, tmp_path).files == ()
    with catalog_of(tmp_path) as catalog:
        (snapshot,) = catalog.load_table("ottla.t").snapshots()
        assert snapshot.summary["ottla.export.offsets"] == '{"0":3,"1":3,"2":3}'
    assert run(broker, tmp_path).run is None
    fill(broker, 1)
    assert run(broker, tmp_path).rows == 3


def test_dates_without_statistics(broker: FakeBroker, tmp_path: Path) -> None:
    """What a user has turned off for the other columns, the partitions need."""
    fill(broker, 3)
    run(broker, tmp_path)
    with catalog_of(tmp_path) as catalog:
        table = catalog.load_table("ottla.t")
        with table.transaction() as change:
            change.remove_properties("write.metadata.metrics.column.date")
            change.set_properties({"write.metadata.metrics.default": "none"})
    fill(broker, 3)
    run(broker, tmp_path)
    assert read(tmp_path, row_filter="date = '2023-11-16'").total() == 6
    assert read(tmp_path, row_filter="date is null").total() == 0


def test_journal_and_table_must_belong_together(broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 2)
    path = tmp_path / "journal-lost"
    run(broker, path)
    for each in (path / "_ottla/journal").iterdir():
        each.unlink()
    with pytest.raises(OptionError, match=r"lost is 00.*, in the journal .* it is none"):
        run(broker, path)
    assert read(path) == whole(broker)
    path = tmp_path / "dropped"
    run(broker, path)
    with catalog_of(path) as catalog:
        catalog.drop_table("ottla.t")
    for act in (run, partial(plan, format="iceberg")):
        with pytest.raises(OptionError, match=r"dropped is none, in the journal .* it is 000000-"):
            act(broker, path)
    with catalog_of(path) as catalog:
        assert not catalog.table_exists("ottla.t")


def test_another_run_ends_between_the_looks_at_journal_and_table(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 2)
    run(broker, tmp_path)
    check = IcebergTable.check

    def check_late(table: IcebergTable, published: Any, pending: Any) -> None:
        monkeypatch.undo()
        fill(broker, 1)
        run(broker, tmp_path)
        check(table, published, pending)

    monkeypatch.setattr(IcebergTable, "check", check_late)
    with pytest.raises(RunningError, match="another export writes to"):
        run(broker, tmp_path)
    assert read(tmp_path) == whole(broker)


def plan(broker: FakeBroker, path: Path, **changes: Any) -> Any:
    return plan_export(options(broker, path, **changes))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A catalog `lake` that pyiceberg is configured with, whose warehouse is a directory."""
    (tmp_path / "warehouse").mkdir()
    uri, warehouse = f"sqlite:///{tmp_path}/lake.db", (tmp_path / "warehouse").as_uri()
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", warehouse)
    monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
    with closing(SqlCatalog("lake", uri=uri, warehouse=warehouse)) as catalog:
        yield catalog


TABLE = "lake.sales.eu.orders"


def run_in_lake(broker: FakeBroker, tmp_path: Path, **changes: Any) -> Any:
    return run(broker, tmp_path, to=TABLE, **changes)


def test_a_table_of_a_configured_catalog(broker: FakeBroker, lake: Any, tmp_path: Path) -> None:
    fill(broker, 3)
    assert len(plan(broker, tmp_path, format="iceberg", to=TABLE).ranges) == 3
    assert lake.list_namespaces() == []
    result = run_in_lake(broker, tmp_path)
    assert (result.rows, result.to) == (9, TABLE)
    fill(broker, 2)
    assert run_in_lake(broker, tmp_path).rows == 6
    assert run_in_lake(broker, tmp_path).run is None
    table = lake.load_table("sales.eu.orders")
    assert rows_of(table) == whole(broker)
    assert table.location().startswith((tmp_path / "warehouse").as_uri())
    assert len(list((tmp_path / "warehouse").rglob("_ottla/journal/*.json"))) == 6
    lake.drop_table("sales.eu.orders")
    # A table of the same name is at the same place, and the journal of the former one is there.
    with pytest.raises(OptionError, match=f"the last run in the Iceberg table {TABLE} is none, in"):
        run_in_lake(broker, tmp_path)


def test_a_table_that_was_there_before(broker: FakeBroker, lake: Any, tmp_path: Path) -> None:
    fill(broker, 2)
    lake.create_namespace("sales.eu")
    place = (tmp_path / "elsewhere").as_uri()
    with IcebergTable(str(tmp_path / "model"), "t", "date") as model:
        model.create()
        found = model._find()
    schema, spec = found.schema(), found.spec()
    wider = Schema(*schema.fields, NestedField(99, "mine", LongType(), required=False))
    properties = {"commit.retry.num-retries": "7"}
    lake.create_table("sales.eu.orders", wider, place, spec, properties=properties)
    assert run_in_lake(broker, tmp_path).rows == 6
    table = lake.load_table("sales.eu.orders")
    assert rows_of(table) == whole(broker)
    assert {each["mine"] for each in table.scan().to_arrow().to_pylist()} == {None}
    # What the export changes for its own commit is not a property of the table.
    assert table.properties["commit.retry.num-retries"] == "7"
    assert (tmp_path / "elsewhere/_ottla/journal").is_dir()


def test_tables_that_do_not_fit(broker: FakeBroker, lake: Any, tmp_path: Path) -> None:
    fill(broker, 1)
    lake.create_namespace("sales.eu")
    with IcebergTable(str(tmp_path / "model"), "t", "date") as model:
        model.create()
        found = model._find()
    fields, spec = found.schema().fields, found.spec()
    required = NestedField(99, "mine", LongType(), required=True)
    for schema, parts, reason in (
        (Schema(*fields[1:]), spec, "has no column key of the type binary"),
        (Schema(required, *fields), spec, "requires a column mine"),
        (
            Schema(*(replace_required(each) for each in fields)),
            spec,
            "has no column offset of the type long",
        ),
        (Schema(*fields), None, "is partitioned by nothing: expected identity.date."),
    ):
        lake.create_table("sales.eu.orders", schema, **({"partition_spec": parts} if parts else {}))
        for act in (run_in_lake, partial(plan, format="iceberg", to=TABLE)):
            with pytest.raises(OptionError, match=f"the Iceberg table {TABLE} {reason}"):
                act(broker, tmp_path)
        lake.drop_table("sales.eu.orders")
    assert not list((tmp_path / "warehouse").rglob("_ottla"))


def replace_required(field: NestedField) -> NestedField:
    return field.model_copy(update={"required": field.name == "offset"})


def test_a_table_that_is_dropped_during_a_run(
    broker: FakeBroker, lake: Any, tmp_path: Path
) -> None:
    fill(broker, 2)

    def drop(action: Callable[[], Any]) -> Any:
        done = action()
        lake.drop_table("sales.eu.orders")
        return done

    chosen = replace(options(broker, tmp_path), format="iceberg", to=TABLE)
    with pytest.raises(OptionError, match=f"the Iceberg table {TABLE} was dropped meanwhile"):
        export(FakeSpark(), chosen, act=drop)


def test_a_bucket(broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    fill(broker, 3)
    with MotoServer() as moto:
        boto3.client("s3", endpoint_url=moto.url, region_name="us-east-1").create_bucket(
            Bucket="lake"
        )
        for name, value in {
            "URI": f"sqlite:///{tmp_path}/lake.db",
            "WAREHOUSE": "s3://lake/ware house",
            "S3__ENDPOINT": moto.url,
            "S3__REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
        monkeypatch.setattr(catalogs, "_ENV_CONFIG", Config())
        assert run_in_lake(broker, tmp_path).rows == 9
        fill(broker, 2)
        assert run_in_lake(broker, tmp_path).rows == 6
        with closing(catalogs.load_catalog("lake")) as catalog:
            table = catalog.load_table("sales.eu.orders")
            assert table.location().startswith("s3://lake/ware house/")
            assert rows_of(table) == whole(broker)


def test_what_is_refused(
    broker: FakeBroker, lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 1)
    for to, reason in (
        ("s3://lake/orders", "s3://lake/orders has no Iceberg catalog: expected CATALOG"),
        ("memory://x", "memory://x has no Iceberg catalog"),
        (
            "sales.orders",
            r"to=sales.orders: expected CATALOG.NAMESPACE.TABLE, or a directory \(./s",
        ),
        ("lake..orders", "to=lake..orders: expected CATALOG"),
        (f"{tmp_path}/a#b", "cannot hold an Iceberg table: its path has . or #"),
        ("", "to is empty"),
    ):
        with pytest.raises(OptionError, match=reason):
            options(broker, tmp_path, format="iceberg", to=to)
    with pytest.raises(RemoteStorageError, match=r"the Iceberg table sea.a.b: .*SEA"):
        run(broker, tmp_path, to="sea.a.b")
    for name in ("pyiceberg.catalog", "pyiceberg.catalog.sql"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            with pytest.raises(OptionError, match=r"package pyiceberg: pip install 'pyiceberg\["):
                options(broker, tmp_path, format="iceberg")


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("lake.sales.orders", ("lake", ("sales", "orders"))),
        ("lake.a.b.c", ("lake", ("a", "b", "c"))),
        ("orders", None),
        ("./lake.sales.orders", None),
        ("/lake/sales.eu.orders", None),
        ("s3://lake/a.b.c", None),
        ("..", None),
    ],
)
def test_names_of_tables(to: str, expected: object) -> None:
    assert catalog_table(to) == expected


@pytest.mark.parametrize(
    ("location", "properties", "expected"),
    [
        ("file:///a/b c", {}, "file:///a/b%20c"),
        ("/a/50%", {}, "file:///a/50%25"),
        ("s3://lake/a b/", {}, "s3://lake/a%20b"),
        (
            "s3a://lake/a",
            {"s3.endpoint": "http://h:1", "s3.region": "r", "s3.access-key-id": "no"},
            "s3://lake/a?endpoint=http%3A%2F%2Fh%3A1&region=r",
        ),
        (
            "s3n://lake",
            {"client.region": "q", "client.profile-name": "p"},
            "s3://lake/?region=q&profile=p",
        ),
    ],
)
def test_places(location: str, properties: dict[str, str], expected: str) -> None:
    assert place_of(location, properties) == expected


def test_a_place_that_tasks_do_not_reach() -> None:
    with pytest.raises(OptionError, match="is in gs://lake/a: expected file:// or s3://"):
        place_of("gs://lake/a", {})
