"""The Delta log of an exported table, by the package deltalake: no jar is needed.

The files are those of a Parquet export, in the same places. Readers of the Delta table see a file
once its run is in the Delta log, whole runs only. A run is added once: the transaction names the
journal's entry, and an entry that is in the log is left.
"""

import importlib
import json
import time
from typing import Any, Final

import pyarrow as pa

from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.jobs.exporting.export_files import BY_DATE, COLUMNS, DATE, NO_DATE
from ottla.spark.jobs.exporting.export_journal import Entry, ExportedFile, Phase
from ottla.spark.schema import arrow_schema
from ottla.stores.uri import FileUri, S3Uri, StoreUri, profile_settings

_PREFIX: Final = f"{DATE}="


def deltalake() -> Any:
    """Return the package. Raises: OptionError where it is not installed."""
    try:
        return importlib.import_module("deltalake")
    except ImportError as error:
        raise OptionError(
            f"the format delta needs the package deltalake: pip install deltalake ({error})"
        ) from None


def check_place(uri: StoreUri) -> None:
    """Raise OptionError for a store in which a Delta table cannot be."""
    if not isinstance(uri, FileUri | S3Uri):
        raise OptionError(f"{uri} cannot hold a Delta table: expected a directory or s3://")


def add_run(uri: StoreUri, entry: Entry) -> None:
    """Add the files of a committed run to the Delta table; create it where there is none.

    The files are in their places. May be repeated. Raises: RemoteStorageError, OptionError.
    """
    assert entry.phase is Phase.COMMITTED
    package = deltalake()
    failures = (package.exceptions.DeltaError, OSError)
    by_date = entry.table.partition_by == BY_DATE
    schema = table_schema(by_date=by_date)
    partition_by = [DATE] if by_date else []
    options = storage_options(uri)
    application = f"ottla-export-{entry.table.topic}"
    try:
        package.DeltaTable.create(
            table_uri(uri),
            schema=schema,
            mode="ignore",
            partition_by=partition_by,
            storage_options=options,
        )
        table = package.DeltaTable(table_uri(uri), storage_options=options)
        added = table.transaction_version(application)
        if added is not None and added >= entry.number:
            return
        properties = package.CommitProperties(
            app_transactions=[package.Transaction(application, entry.number)]
        )
        table.create_write_transaction(
            [_action(package, each, by_date=by_date) for each in entry.files],
            "append",
            schema,
            partition_by,
            commit_properties=properties,
        )
    except failures as error:
        raise RemoteStorageError(f"the Delta table {uri} could not be written: {error}") from None


def table_schema(*, by_date: bool) -> Any:
    """Return the columns of the table."""
    schema = arrow_schema(COLUMNS)
    return schema.append(pa.field(DATE, pa.date32())) if by_date else schema


def table_uri(uri: StoreUri) -> str:
    """Return where the table is, as the package wants it."""
    return uri.path if isinstance(uri, FileUri) else str(uri)


def storage_options(uri: StoreUri) -> dict[str, str]:
    """Return how to reach the store; what is not said comes from the environment."""
    if not isinstance(uri, S3Uri):
        return {}
    options: dict[str, str] = {}
    if uri.profile is not None:
        settings = profile_settings(uri.profile)
        options |= {f"aws_{name}": value for name, value in settings.items()}
    if uri.region is not None:
        options["aws_region"] = uri.region
    if uri.endpoint is not None:
        options["aws_endpoint_url"] = uri.endpoint
        options["aws_allow_http"] = str(uri.endpoint.startswith("http://")).lower()
    if uri.virtual_hosted_style:
        options["aws_virtual_hosted_style_request"] = "true"
    return options


def _action(package: Any, file: ExportedFile, *, by_date: bool) -> Any:
    values: dict[str, str | None] = {}
    if by_date:
        date = file.name.split("/", 1)[0].removeprefix(_PREFIX)
        values[DATE] = None if date == NO_DATE else date
    return package.transaction.AddAction(
        path=file.name,
        size=file.size_bytes,
        partition_values=values,
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )
