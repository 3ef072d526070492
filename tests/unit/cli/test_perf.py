"""The performance tools: what they make of numbers, in Kafka's words, and of their options.

Method: times are given. The lines are Kafka's, written out.
"""

from pathlib import Path

import pytest

from ottla.cli.errors import CommandError, UsageError
from ottla.cli.perf.perf_text import (
    BYTES_PER_MB,
    DateFormat,
    Sent,
    Window,
    consumed_columns,
    consumer_heading,
)
from ottla.cli.perf.producer_perf import of_file, of_letters
from ottla.cli.typing_app import spread_values

from .conftest import Run


def test_the_producers_summary() -> None:
    sent = Sent(1_000.0, 1_000)
    for number in range(1_000):
        sent.acknowledged(1_024, float(number))
    assert sent.line(3_000.0) == (
        "1000 records sent, 500.000000 records/sec (0.49 MB/sec), 499.50 ms avg latency, "
        "999.00 ms max latency, 500 ms 50th, 950 ms 95th, 990 ms 99th, 999 ms 99.9th."
    )
    steady = Sent(0.0, 1, "steady state ")
    steady.acknowledged(10, 2.5)
    assert steady.line(1_000.0).startswith("1 steady state records sent, 1.000000 records/sec ")
    assert Sent(0.0, 10).line(0.0).startswith("0 records sent, 0.000000 records/sec ")


def test_of_many_records_some_latencies_are_kept() -> None:
    sent = Sent(0.0, 5_000_000)
    for _ in range(100):
        sent.acknowledged(1, 7.0)
    assert len(sent._samples) == 10
    assert (sent.count, sent.size) == (100, 100)


def test_the_producers_interval() -> None:
    window = Window(0.0, count=990, size=99_000, latency_ms=35_244.0, latency_ms_max=694.0)
    assert window.line(1_000.0) == (
        "990 records sent, 990.0 records/sec (0.09 MB/sec), 35.6 ms avg latency, "
        "694.0 ms max latency."
    )


def test_the_consumers_columns() -> None:
    size = int(2 * BYTES_PER_MB)
    assert consumed_columns(size, 5_000, 2_000.0, 1_000.0, totals=(2 * size, 9_000)) == (
        "4.0000, 1.0000, 9000, 2500.0000, 1000, 1000, 2.0000, 5000.0000"
    )
    assert consumer_heading(detailed=False) == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    assert consumer_heading(detailed=True).startswith("time, threadId, data.consumed.in.MB, ")


def test_dates_of_java() -> None:
    time_ms = 1_700_000_000_123
    text = DateFormat("yyyy-MM-dd HH:mm:ss:SSS").text(time_ms)
    assert text.startswith("2023-11-1")
    assert text.endswith(":20:123")
    assert DateFormat("'at' ss").text(time_ms) == "at 20"
    for wrong in ("EEE", "'open"):
        with pytest.raises(UsageError, match="--date-format"):
            DateFormat(wrong)


def test_payloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letters = of_letters(20)
    values = [letters(number) for number in range(50)]
    assert values == [of_letters(20)(0), *values[1:]], "equal in each run"
    assert all(len(value) == 20 and value.isalpha() and value.isupper() for value in values)
    assert len(set(values)) > 40
    file = tmp_path / "lines"
    file.write_text("a|bb|ccc||")
    payload = of_file(file, r"\|")
    assert {payload(number) for number in range(200)} == {b"a", b"bb", b"ccc"}
    assert capsys.readouterr().out == f"Reading payloads from: {file}\nNumber of records read: 3\n"
    file.write_text("")
    with pytest.raises(CommandError, match="the file is empty"):
        of_file(file, r"\n")
    with pytest.raises(UsageError, match="--payload-delimiter"):
        of_file(file, "(")


def test_options_of_many_values() -> None:
    words = ["--topic", "t", "--props", "a=1", "b=2", "--sync", "--props", "c=3"]
    assert spread_values(words, ("--props",)) == [
        "--topic", "t", "--props", "a=1", "--props", "b=2", "--sync", "--props", "c=3",
    ]  # fmt: skip


PRODUCER = ("producer-perf-test", "--bootstrap-server", "x:1", "--topic", "t")
CONSUMER = ("consumer-perf-test", "--bootstrap-server", "x:1")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((*PRODUCER, "--num-records", "1", "--throughput", "-1"), 2, "expected exactly one of --r"),
        ((*PRODUCER, "--num-records", "1", "--throughput", "0", "--record-size", "1"), 2,
         "--throughput 0: expected"),
        ((*PRODUCER, "--num-records", "0", "--throughput", "1", "--record-size", "1"), 2,
         "--num-records 0: expected"),
        ((*PRODUCER, "--num-records", "1", "--throughput", "1", "--record-size", "0"), 2,
         "--record-size 0: expected"),
        ((*PRODUCER, "--num-records", "5", "--throughput", "1", "--record-size", "1",
          "--warmup-records", "5"), 2, "--warmup-records 5: expected"),
        ((*PRODUCER, "--num-records", "5", "--throughput", "1", "--record-size", "1",
          "--transactional-id", "x"), 1, "transactions are not supported yet"),
        ((*PRODUCER, "--num-records", "5", "--throughput", "1", "--record-size", "1",
          "--producer-props", "a=1", "--command-property", "b=1"), 2,
         "Options --command-property and --producer-props cannot be specified together."),
        ((*CONSUMER, "--topic", "t"), 2, "Exactly one of the following arguments is required: [me"),
        ((*CONSUMER, "--num-records", "1"), 2, "Exactly one of the following arguments is requir"),
        ((*CONSUMER, "--topic", "t", "--num-records", "1", "--date-format", "EEE"), 2,
         "--date-format EEE: EEE is not supported"),
    ],
)  # fmt: skip
def test_wrong_usage(run: Run, words: tuple[str, ...], code: int, message: str) -> None:
    ran = run(*words)
    assert ran.code == code
    assert ran.err.startswith(f"ottla {words[0]}: {message}")
