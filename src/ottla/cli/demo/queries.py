"""The demo's questions to Spark, through `format("ottla")`; each answer is compared."""

from collections.abc import Mapping
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table

from ottla.cli.charts import BarChart
from ottla.cli.demo.records import Written
from ottla.cli.demo.steps import TOPIC, DemoError, check

FLIGHT: Final = "carrier string, month int, hour int, distance long, dep_delay long"


def flights_of(spark: Any, *, uri: str, bootstrap: str | None) -> Any:
    """Return the topic as a table: tiers and tail, or what the store alone has, without brokers."""
    reader = spark.read.format("ottla").option("subscribe", TOPIC)
    reader = reader.option("ottla.remote.storage.uri", uri)
    if bootstrap is not None:
        reader = reader.option("kafka.bootstrap.servers", bootstrap)
    return reader.load()


def count_by_partition(topic: Any) -> dict[int, int]:
    """Return the number of records of each partition."""
    rows = topic.groupBy("partition").count().collect()
    return {row["partition"]: row["count"] for row in rows}


def ask(console: Console, spark: Any, bootstrap: str, uri: str, written: Written) -> BarChart:
    """Count flights, miles and delays over both tiers; return the chart of the delays."""
    from pyspark.sql import functions as sql

    topic = flights_of(spark, uri=uri, bootstrap=bootstrap)
    value = sql.from_json(sql.col("value").cast("string"), FLIGHT).alias("flight")
    rows = (
        topic.select(value)
        .select("flight.*")
        .groupBy("carrier", "month", "hour")
        .agg(
            sql.count("*").alias("flights"),
            sql.sum("distance").alias("miles"),
            sql.coalesce(sql.sum("dep_delay"), sql.lit(0)).alias("minutes"),
            sql.count("dep_delay").alias("departed"),
        )
        .collect()
    )
    flights: dict[tuple[str, int], int] = {}
    miles: dict[tuple[str, int], int] = {}
    delays: dict[int, tuple[int, int]] = {}
    for row in rows:
        key = row["carrier"], row["month"]
        flights[key] = flights.get(key, 0) + row["flights"]
        miles[key] = miles.get(key, 0) + row["miles"]
        if row["departed"]:
            minutes, departed = delays.get(row["hour"], (0, 0))
            delays[row["hour"]] = minutes + row["minutes"], departed + row["departed"]
    console.print(totals_table(flights))
    totals = written.totals
    check(console, "flights that Spark counted", sum(flights.values()), totals.count)
    if flights != totals.flights or miles != totals.miles:
        raise DemoError("Spark's totals per carrier and month differ from the source file's")
    check(console, "totals per carrier and month that agree", len(flights), len(totals.flights))
    check(console, "miles flown", sum(miles.values()), sum(totals.miles.values()))
    if delays != totals.delays:
        raise DemoError("Spark's delays per hour differ from the source file's")
    check(console, "delays per hour that agree", len(delays), len(totals.delays))
    check(console, "records of each partition", count_by_partition(topic), written.ends)
    return delay_chart(delays)


def check_store(console: Console, spark: Any, uri: str, remote_ends: Mapping[int, int]) -> None:
    """Count what is in the object store, without asking a broker."""
    found = count_by_partition(flights_of(spark, uri=uri, bootstrap=None))
    what = "records read from the object store alone"
    if found != remote_ends:
        raise DemoError(f"{what}: found {found}, expected {dict(remote_ends)}")
    check(console, what, sum(found.values()), sum(remote_ends.values()))


def check_rest(
    console: Console, spark: Any, bootstrap: str, uri: str, written: Written, starts: dict[int, int]
) -> None:
    """Count what is left once the tier is given up."""
    found = count_by_partition(flights_of(spark, uri=uri, bootstrap=bootstrap))
    expected = {number: end - starts[number] for number, end in written.ends.items()}
    if found != expected:
        raise DemoError(f"records left: found {found}, expected {expected}")
    what = "records left, which Spark reads through brokers"
    check(console, what, sum(found.values()), sum(expected.values()))


def delay_chart(delays: Mapping[int, tuple[int, int]]) -> BarChart:
    """Return the chart of the mean delay per hour."""
    hours = sorted(delays)
    means = [delays[hour][0] / delays[hour][1] for hour in hours]
    return BarChart(
        title="Mean departure delay from New York City in 2013, in minutes",
        labels_title="hour of the schedule",
        labels=[str(hour) for hour in hours],
        values=means,
        decimals=1,
    )


def totals_table(flights: dict[tuple[str, int], int]) -> Table:
    """Lay out flights by carrier (rows) and month (columns)."""
    table = Table(
        title="Flights from New York City in 2013, counted by Spark",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
    )
    table.add_column("carrier")
    for month in range(1, 13):
        table.add_column(str(month), justify="right")
    table.add_column("total", justify="right", style="bold")
    for carrier in sorted({carrier for carrier, _ in flights}):
        months = [flights.get((carrier, month), 0) for month in range(1, 13)]
        cells = [str(count or "") for count in months]
        table.add_row(carrier, *cells, str(sum(months)))
    return table
