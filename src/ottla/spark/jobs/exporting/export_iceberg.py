"""An exported table in an Iceberg catalog, by the package pyiceberg: no jar is needed.

    lake.sales.orders     the table sales.orders of a catalog, lake, that pyiceberg's configuration
                          has; it is created where there is none
    /lake/orders          a directory with a catalog of its own, an SQLite file

The files are those of a Parquet export, in the table's location, and so is the journal. One commit
adds the files of a run and records the run, so that a run is in the table whole, and once: a commit
that others were faster than is not repeated before the table was read again.
"""

import importlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from ottla.base.ids import uuid_text
from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.jobs.exporting.export_files import BY_DATE, COLUMNS, DATE
from ottla.spark.jobs.exporting.export_journal import DIRECTORY, Entry, Phase
from ottla.spark.jobs.target_store import target_uri
from ottla.stores.uri import FileUri

CATALOG: Final = "ottla"
"""Names the catalog of a directory, and the namespace in it."""
CATALOG_FILE: Final = f"{DIRECTORY}/catalog.db"
"""Below `_ottla`: Iceberg deletes files that it does not know only where no name begins with _."""
ENTRY: Final = "ottla.export.entry"
RUN: Final = "ottla.export.run"
_METRICS: Final = "write.metadata.metrics.column"
_DATE_METRICS: Final = f"{_METRICS}.{DATE}"
_TIMESTAMP_METRICS: Final = f"{_METRICS}.timestamp"
_RETRIES: Final = "commit.retry.num-retries"
COMMITS_MAX: Final = 10
"""How often a commit is tried that others were faster than."""
PAUSE_S: Final = 0.1
"""Before the second commit; it is doubled each time."""
PAUSE: Callable[[float], None] = time.sleep

Published = Callable[[], Entry | None]

_FIELD_ID: Final = re.compile(r"\d+: ")


def table_schema(*, by_date: bool) -> Any:
    """Return the columns of the table, those of `COLUMNS` and the date."""
    types = pyiceberg("types")

    def field(number: int, name: str, kind: Any) -> Any:
        return types.NestedField(number, name, kind, required=False)

    header = types.StructType(
        field(11, "key", types.StringType()), field(12, "value", types.BinaryType())
    )
    columns = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestamptzType(),
        "timestampType": types.IntegerType(),
        "headers": types.ListType(10, header, element_required=False),
    }
    assert tuple(columns) == COLUMNS
    if by_date:
        columns[DATE] = types.DateType()
    numbered = enumerate(columns.items(), 1)
    return pyiceberg("schema").Schema(*(field(number, *each) for number, each in numbered))


def pyiceberg(module: str) -> Any:
    """Return a module of the package. Raises: OptionError where it is not installed."""
    try:
        return importlib.import_module(f"pyiceberg.{module}")
    except ImportError as error:
        raise OptionError(
            "the format iceberg needs the package pyiceberg: pip install 'pyiceberg[sql-sqlite]' "
            f"({error})"
        ) from None


def catalog_table(to: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the catalog, and namespace and name of the table in it; None = `to` is a place.

    Raises: OptionError.
    """
    if "/" in to or "." not in to.strip("."):
        return None
    catalog, *identifier = to.split(".")
    if len(identifier) < 2 or not all((catalog, *identifier)):
        raise OptionError(
            f"to={to}: expected CATALOG.NAMESPACE.TABLE, or a directory (./{to} is one)"
        )
    return catalog, tuple(identifier)


def check_target(to: str) -> None:
    """Raise OptionError for what cannot be an Iceberg table, or without the package."""
    if catalog_table(to) is None:
        uri = target_uri(to)
        if not isinstance(uri, FileUri):
            raise OptionError(
                f"{uri} has no Iceberg catalog: expected CATALOG.NAMESPACE.TABLE, a table of a "
                "catalog that pyiceberg is configured with, or a directory"
            )
        if set("?#") & set(uri.path):
            raise OptionError(f"{uri} cannot hold an Iceberg table: its path has ? or #")
        pyiceberg("catalog.sql")
    pyiceberg("catalog")


class IcebergTable:
    """The table of an export. Use as a context manager. `to`: as above.

    Raises: OptionError, RemoteStorageError.
    """

    def __init__(self, to: str, topic: str, partition_by: str) -> None:
        named = catalog_table(to)
        self._directory = ""
        if named is None:
            uri = target_uri(to)
            assert isinstance(uri, FileUri)
            self._directory = uri.path
            self._catalog_name = CATALOG
            self._identifier: tuple[str, ...] = CATALOG, re.sub(r"\W", "_", topic, flags=re.ASCII)
        else:
            self._catalog_name, self._identifier = named
        self.name = str(target_uri(to)) if named is None else to
        self._by_date = partition_by == BY_DATE
        self._opened: Any = None

    def __enter__(self) -> "IcebergTable":
        return self

    def __exit__(self, *error: object) -> None:
        if self._opened is not None:
            self._opened.close()

    def place(self) -> str | None:
        """Return the URI of the table's location; None = there is no table yet."""
        if self._directory:
            return str(FileUri(path=self._directory))
        with self._reported():
            table = self._find()
            return None if table is None else place_of(table.location(), table.io.properties)

    def create(self) -> str:
        """Create the table where there is none; return as `place`."""
        with self._reported():
            table = self._find() or self._create()
            return self.place() or place_of(table.location(), table.io.properties)

    def check(self, published: Published, pending: Entry | None) -> None:
        """Raise OptionError for a table that files do not fit, or of another journal.

        `published`: the last run whose files are in the table. `pending`: one that is committed,
        whose files may be.
        """
        with self._reported():
            table = self._find()
            if table is not None:
                self._check_columns(table)
        last = published()
        found = None if table is None else table.properties.get(RUN)
        expected = None if last is None else last.run
        if found == expected or (pending is not None and found == pending.run):
            return
        raise OptionError(
            f"the last run in the Iceberg table {self.name} is {found or 'none'}, in the journal "
            f"({DIRECTORY} in its location) it is {expected or 'none'}: one of them was deleted or "
            "replaced. Export to another table; or drop this one, delete its files, and start over"
        )

    def add_run(self, entry: Entry) -> None:
        """Add the files of a committed run, unless they are in the table.

        The files are in their places. May be repeated.
        """
        assert entry.phase is Phase.COMMITTED
        errors = pyiceberg("exceptions")
        for number in range(COMMITS_MAX):
            with self._reported():
                table = self._find()
                if table is None:
                    raise OptionError(f"the Iceberg table {self.name} was dropped meanwhile")
                if int(table.properties.get(ENTRY, -1)) >= entry.number:
                    return
                try:
                    self._commit_with_bounds(table, entry)
                    return
                except (errors.CommitFailedException, errors.CommitStateUnknownException):
                    PAUSE(PAUSE_S * 2**number)
        raise RemoteStorageError(
            f"the Iceberg table {self.name} could not be written: other writers were faster "
            f"{COMMITS_MAX} times. The run is committed; the next export adds its files"
        )

    def _commit_with_bounds(self, table: Any, entry: Entry) -> None:
        """Commit a run, without the bounds of its timestamps where pyiceberg cannot read them."""
        try:
            self._commit(table, entry)
        except OverflowError:
            # It makes a datetime of each bound, which is of the years 1 to 9999. As below, this
            # changes its copy of the properties only: the next run has bounds again.
            table.metadata.properties[_TIMESTAMP_METRICS] = "counts"
            self._commit(table, entry)

    def _commit(self, table: Any, entry: Entry) -> None:
        # By itself pyiceberg repeats a commit that another one was faster than, without looking at
        # what that one has added: it may be this very run, which another process has completed.
        # This changes its copy of the properties only, not the table.
        table.metadata.properties[_RETRIES] = "0"
        recorded = {ENTRY: str(entry.number), RUN: entry.run}
        # Where the user has turned statistics off, pyiceberg would take each date for null.
        statistics = {_DATE_METRICS: "full"} if self._by_date else {}
        location = table.location().rstrip("/")
        with table.transaction() as transaction:
            transaction.set_properties({**recorded, **statistics})
            # A run without rows gets an empty snapshot: its offsets are recorded, too, and another
            # writer is detected by the snapshot that it has added.
            transaction.add_files(
                [f"{location}/{each.name}" for each in entry.files],
                snapshot_properties={**recorded, **_summary(entry)},
                # It would read all manifests; the entry above says the same.
                check_duplicate_files=False,
            )

    # The catalog

    def _catalog(self) -> Any:
        if self._opened is None:
            if self._directory:
                path = os.path.join(self._directory, CATALOG_FILE)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                self._opened = pyiceberg("catalog.sql").SqlCatalog(
                    CATALOG, uri=f"sqlite:///{path}", warehouse=f"file://{self._directory}"
                )
            else:
                self._opened = pyiceberg("catalog").load_catalog(self._catalog_name)
        return self._opened

    def _find(self) -> Any:
        """Return the table as it is now; None = there is none."""
        errors = pyiceberg("exceptions")
        if self._directory and not os.path.exists(os.path.join(self._directory, CATALOG_FILE)):
            return None
        try:
            return self._catalog().load_table(self._identifier)
        except (errors.NoSuchTableError, errors.NoSuchNamespaceError):
            return None

    def _create(self) -> Any:
        errors = pyiceberg("exceptions")
        try:
            try:
                self._begin_create()
            except errors.NoSuchNamespaceError:
                self._catalog().create_namespace_if_not_exists(self._identifier[:-1])
                self._begin_create()
        except errors.TableAlreadyExistsError:
            pass  # Another process was faster.
        return self._catalog().load_table(self._identifier)

    def _begin_create(self) -> None:
        partitioning = pyiceberg("partitioning")
        schema = table_schema(by_date=self._by_date)
        fields = []
        if self._by_date:
            identity = pyiceberg("transforms").IdentityTransform()
            source = schema.find_field(DATE).field_id
            fields.append(partitioning.PartitionField(source, 1000, identity, DATE))
        self._catalog().create_table(
            self._identifier,
            schema,
            location=f"file://{self._directory}" if self._directory else None,
            partition_spec=partitioning.PartitionSpec(*fields),
        )

    def _check_columns(self, table: Any) -> None:
        """Raise OptionError for a table that the files do not fit."""
        schema = table.schema()
        found = {each.name: _type_text(each) for each in schema.fields}
        for each in table_schema(by_date=self._by_date).fields:
            if found.pop(each.name, None) != _type_text(each):
                raise OptionError(
                    f"the Iceberg table {self.name} has no column {each.name} of the type "
                    f"{_type_text(each)}"
                )
        if required := [name for name, text in found.items() if text.endswith(" required")]:
            raise OptionError(f"the Iceberg table {self.name} requires a column {required[0]}")
        spec = [
            f"{each.transform}({schema.find_column_name(each.source_id)})"
            for each in table.spec().fields
        ]
        wanted = [f"identity({DATE})"] if self._by_date else []
        if spec != wanted:
            raise OptionError(
                f"the Iceberg table {self.name} is partitioned by {', '.join(spec) or 'nothing'}: "
                f"expected {', '.join(wanted) or 'nothing'}"
            )

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turn what the catalog raises into RemoteStorageError."""
        try:
            yield
        except (OptionError, RemoteStorageError, AssertionError):
            raise
        except Exception as error:  # Each kind of catalog has errors of its client's own.
            text = str(error) or type(error).__name__
            raise RemoteStorageError(f"the Iceberg table {self.name}: {text}") from error


def _type_text(field: Any) -> str:
    """Return a column's type without the ids of fields in it, which each table has its own of."""
    text = _FIELD_ID.sub("", str(field.field_type))
    return f"{text} required" if field.required else text


def _summary(entry: Entry) -> dict[str, str]:
    offsets = {str(key): value for key, value in sorted(entry.offsets.items())}
    return {
        "ottla.export.topic": entry.table.topic,
        "ottla.export.topic-id": uuid_text(entry.table.topic_id),
        "ottla.export.offsets": json.dumps(offsets, separators=(",", ":")),
    }


def place_of(location: str, properties: Mapping[str, str]) -> str:
    """Return the URI of a table's location, as tasks reach it: without the catalog's credentials.

    Raises: OptionError for a store that tasks cannot write to.
    """
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return str(FileUri(path=os.path.normpath(parts.path)))
    if parts.scheme not in ("s3", "s3a", "s3n"):
        raise OptionError(f"the Iceberg table is in {location}: expected file:// or s3://")
    found = {
        "endpoint": properties.get("s3.endpoint"),
        "region": properties.get("s3.region") or properties.get("client.region"),
        "profile": properties.get("s3.profile-name") or properties.get("client.profile-name"),
        "virtual_hosted_style": properties.get("s3.force-virtual-addressing"),
    }
    options = urlencode({name: value for name, value in found.items() if value})
    path = f"s3://{parts.netloc}/{quote(parts.path.strip('/'))}"
    return f"{path}?{options}" if options else path
