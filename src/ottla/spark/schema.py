"""The columns of a topic as a table: names and types are those of Spark's own Kafka source.

A user's schema may leave columns out, so that they are not decoded: Spark does not pass the columns
of a query to a Python data source. It may not add columns or change types.
"""

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.records.columnar import schema_of
from ottla.spark.errors import OptionError

HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_TYPES: Final = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
_CONSTANT: Final = {"topic": pa.string(), "partition": pa.int32()}
"""Columns that are not in the records: one value for all rows of a partition."""


def source_schema(include_headers: bool) -> StructType:
    """Return the schema of the source."""
    names = [name for name in _TYPES if name != "headers" or include_headers]
    return StructType([StructField(name, _TYPES[name]) for name in names])


def columns_of(schema: StructType, include_headers: bool) -> tuple[str, ...]:
    """Return the names of a user's columns, in the user's order.

    Raises: OptionError for a column that the source does not have or has with another type.
    """
    full = {field.name: field.dataType for field in source_schema(include_headers)}
    names: list[str] = []
    for field in schema:
        expected: Any = full.get(field.name)
        if field.name == "headers" and expected is None:
            raise OptionError("the schema has a column headers: expected includeHeaders=true too")
        if expected is None:
            raise OptionError(
                f"the schema has a column {field.name}: expected some of {', '.join(full)}"
            )
        if field.dataType.simpleString() != expected.simpleString():
            raise OptionError(
                f"the schema has a column {field.name} {field.dataType.simpleString()}: "
                f"expected {expected.simpleString()}"
            )
        if field.name in names:
            raise OptionError(f"the schema has the column {field.name} twice")
        names.append(field.name)
    if not names:
        raise OptionError(f"the schema has no columns: expected some of {', '.join(full)}")
    return tuple(names)


def arrow_schema(columns: tuple[str, ...]) -> Any:
    """Return the Arrow schema of these columns."""
    return pa.schema(
        [
            pa.field(name, _CONSTANT[name]) if name in _CONSTANT else schema_of([name]).field(0)
            for name in columns
        ]
    )


def record_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns to decode; at least one, so that rows can be counted."""
    return tuple(name for name in columns if name not in _CONSTANT) or ("offset",)
