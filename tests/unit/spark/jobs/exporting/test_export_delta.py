"""A run must be in the Delta log once, whatever was killed when.

Method: a model of the package deltalake: tables by place, transactions by application. What it
cannot show, the bytes of a Delta log, is the package's own work.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.jobs.exporting import export_listing
from ottla.spark.jobs.exporting.export_delta import add_run, storage_options, table_uri
from ottla.stores.uri import parse_store_uri
from tests.unit.spark.fake_broker import FakeBroker
from tests.unit.spark.jobs.test_export import Killed, broker, fill, options, read, run, whole

__all__ = ["broker"]


class DeltaError(Exception):
    """The package's error."""


@dataclass
class Table:
    """The state of one table."""

    schema: Any
    partition_by: list[str]
    files: list[Any] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)


class Model:
    """What the export uses of the package."""

    def __init__(self) -> None:
        self.tables: dict[str, Table] = {}
        self.exceptions = SimpleNamespace(DeltaError=DeltaError)
        self.transaction = SimpleNamespace(AddAction=SimpleNamespace)
        self.CommitProperties = SimpleNamespace
        self.fails = False
        model = self

        class DeltaTable:
            def __init__(self, uri: str, storage_options: dict[str, str]) -> None:
                self.table = model.tables[uri]

            @staticmethod
            def create(
                uri: str, *, schema: Any, mode: str, partition_by: list[str], storage_options: Any
            ) -> None:
                assert mode == "ignore"
                model.tables.setdefault(uri, Table(schema, partition_by))

            def transaction_version(self, application: str) -> int | None:
                return self.table.versions.get(application)

            def create_write_transaction(
                self,
                actions: list[Any],
                mode: str,
                schema: Any,
                partition_by: list[str],
                *,
                commit_properties: Any,
            ) -> None:
                if model.fails:
                    raise DeltaError("the log is locked")
                assert (mode, schema, partition_by) == (
                    "append",
                    self.table.schema,
                    self.table.partition_by,
                )
                self.table.files += actions
                for application, version in commit_properties.app_transactions:
                    self.table.versions[application] = version

        self.DeltaTable = DeltaTable

    @staticmethod
    def Transaction(application: str, version: int) -> tuple[str, int]:  # noqa: N802
        return application, version


@pytest.fixture
def delta(monkeypatch: pytest.MonkeyPatch) -> Model:
    model = Model()
    monkeypatch.setitem(sys.modules, "deltalake", model)  # type: ignore[arg-type]
    return model


def listed(delta: Model, path: Path) -> list[str]:
    return sorted(each.path for each in delta.tables[str(path)].files)


def on_disk(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in path.glob("date=*/*.parquet"))


def test_runs(delta: Model, broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 4)
    # A record without a timestamp.
    fill(broker, 1, begin_ms=-1 - 4 * 86_400_000 // 3)
    run(broker, tmp_path, format="delta")
    fill(broker, 2)
    run(broker, tmp_path, format="delta")
    table = delta.tables[str(tmp_path)]
    assert listed(delta, tmp_path) == on_disk(tmp_path)
    assert table.partition_by == ["date"]
    assert table.schema.names[-1] == "date"
    assert sum(each.size for each in table.files) == sum(
        each.stat().st_size for each in tmp_path.glob("date=*/*.parquet")
    )
    for each in table.files:
        date = each.path.split("/")[0].removeprefix("date=")
        is_null = date == "__HIVE_DEFAULT_PARTITION__"
        assert each.partition_values == {"date": None if is_null else date}
    assert any(each.partition_values["date"] is None for each in table.files)
    with pytest.raises(OptionError, match="the target has the format delta, not parquet"):
        run(broker, tmp_path)


@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_killed_beside_the_transaction(
    delta: Model,
    broker: FakeBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: bool,
) -> None:
    fill(broker, 3)
    run(broker, tmp_path, format="delta")
    fill(broker, 3)

    def kill(*arguments: Any) -> None:
        if after:
            add_run(*arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(export_listing, "add_run", kill)
        for _ in range(2):
            with pytest.raises(Killed):
                run(broker, tmp_path, format="delta")
    result = run(broker, tmp_path, format="delta")
    assert (result.recovered, result.rows) == ("completed", 0)
    assert listed(delta, tmp_path) == on_disk(tmp_path)
    assert read(tmp_path) == whole(broker)


def test_one_directory(delta: Model, broker: FakeBroker, tmp_path: Path) -> None:
    fill(broker, 3)
    run(broker, tmp_path, format="delta", partition_by="none")
    table = delta.tables[str(tmp_path)]
    assert table.partition_by == []
    assert [each.partition_values for each in table.files] == [{}] * 3
    assert "date" not in table.schema.names


def test_what_is_refused(
    delta: Model, broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, 1)
    delta.fails = True
    with pytest.raises(RemoteStorageError, match=r"the Delta table file://.* the log is locked"):
        run(broker, tmp_path, format="delta")
    with pytest.raises(OptionError, match="memory://x cannot hold a Delta table: expected a dir"):
        options(broker, tmp_path, to="memory://x", format="delta")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(OptionError, match="the format delta needs the package deltalake: pip ins"):
        options(broker, tmp_path, format="delta")
    with pytest.raises(OptionError, match="format=orc: expected parquet, delta or iceberg"):
        options(broker, tmp_path, format="orc")


def test_how_a_store_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = parse_store_uri("file:///a/b%20c")
    assert (table_uri(plain), storage_options(plain)) == ("/a/b c", {})
    text = "s3://lake/orders?endpoint=http://127.0.0.1:1&region=eu-west-1&virtual_hosted_style=true"
    bucket = parse_store_uri(text)
    assert table_uri(bucket) == "s3://lake/orders"
    assert storage_options(bucket) == {
        "aws_region": "eu-west-1",
        "aws_endpoint_url": "http://127.0.0.1:1",
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "true",
    }
    (tmp_path / "credentials").write_text(
        "[backup]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    assert storage_options(parse_store_uri("s3://lake?profile=backup")) == {
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
    }
