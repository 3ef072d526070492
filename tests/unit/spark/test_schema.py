"""Schemas must equal Spark's own, in Spark's types and in Arrow's. Method: tables."""

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from ottla.spark.errors import OptionError
from ottla.spark.schema import arrow_schema, columns_of, record_columns, source_schema


@pytest.mark.parametrize("headers", [False, True])
def test_the_arrow_schema_is_the_one_spark_expects(headers: bool) -> None:
    schema = source_schema(headers)
    columns = columns_of(schema, headers)
    assert arrow_schema(columns) == to_arrow_schema(schema, timezone="UTC")
    assert columns[:7] == (
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType"
    )  # fmt: skip
    assert schema.simpleString().startswith(
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int"
    )


def test_narrow_schemas_keep_the_users_order() -> None:
    schema = StructType(
        [
            StructField("timestamp", TimestampType()),
            StructField("topic", StringType(), nullable=False),
            StructField("offset", LongType()),
        ]
    )
    columns = columns_of(schema, False)
    assert columns == ("timestamp", "topic", "offset")
    assert record_columns(columns) == ("timestamp", "offset")
    assert record_columns(("topic", "partition")) == ("offset",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "no columns"),
        ([StructField("Value", StringType())], "a column Value: expected some of key, value"),
        ([StructField("value", StringType())], "value string: expected binary"),
        ([StructField("headers", StringType())], "includeHeaders=true"),
        ([StructField("offset", LongType())] * 2, "twice"),
    ],
)
def test_wrong_schemas(fields: list[StructField], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        columns_of(StructType(fields), False)
