"""How readers learn of the files of an export's runs: one class for each format.

A directory is its own list of files; the logs of Delta and Iceberg list them, whole runs at a time.
"""

from collections.abc import Callable
from typing import Final, Protocol

from ottla.spark.jobs.exporting.export_delta import add_run
from ottla.spark.jobs.exporting.export_iceberg import IcebergTable, Published
from ottla.spark.jobs.exporting.export_journal import Entry
from ottla.spark.jobs.target_store import absolute, target_uri

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"


class Listing(Protocol):
    """What lists the files of a table. Use as a context manager. `name`: for users.

    Raises: OptionError, RemoteStorageError.
    """

    name: str

    def __enter__(self) -> "Listing": ...

    def __exit__(self, *error: object) -> None: ...

    def place(self) -> str | None:
        """Return the URI of the table's files and journal; None = there is no table yet."""

    def create(self) -> str:
        """Create what lists the files, where there is none; return as `place`."""

    def check(self, published: Published, pending: Entry | None) -> None:
        """Check that files can be added, and that it has the runs that the journal has.

        `published`: the last run that it must have. `pending`: a later one that it may have.
        """

    def add_run(self, entry: Entry) -> None:
        """Add the files of a committed run, which are in their places. May be repeated."""


class Directory:
    """The Parquet files of a directory, or of a prefix of a bucket."""

    def __init__(self, to: str) -> None:
        self._to = absolute(to)
        self.name = str(target_uri(to))

    def __enter__(self) -> "Directory":
        return self

    def __exit__(self, *error: object) -> None: ...

    def place(self) -> str:
        return self._to

    def create(self) -> str:
        return self._to

    def check(self, published: Published, pending: Entry | None) -> None: ...

    def add_run(self, entry: Entry) -> None: ...


class DeltaLog(Directory):
    """The same, with a Delta log."""

    def add_run(self, entry: Entry) -> None:
        add_run(target_uri(self._to), entry)


_LISTINGS: Final[dict[str, Callable[[str, str, str], Listing]]] = {
    PARQUET: lambda to, _topic, _partition_by: Directory(to),
    DELTA: lambda to, _topic, _partition_by: DeltaLog(to),
    ICEBERG: IcebergTable,
}


def listing_of(format_name: str, to: str, topic: str, partition_by: str) -> Listing:
    """Return what lists the files of such a table."""
    return _LISTINGS[format_name](to, topic, partition_by)
