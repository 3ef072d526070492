"""`ottla pipeline` without a Spark session: options, plans, errors, and what is printed.

Method: a directory as the store, a fake broker where one is needed. Jobs that run are in
`tests/spark/test_pipeline.py`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from ottla.base.ids import uuid_text
from ottla.cli.errors import CommandError
from ottla.cli.pipeline import audit_text
from ottla.cli.pipeline.purge_check_command import result_json, result_lines
from ottla.cli.pipeline.running import last_line, reported_errors
from ottla.spark.jobs.audit_tasks import Summary
from ottla.spark.jobs.rules.findings import Finding, Kind, Severity
from tests.unit.cli.conftest import Run
from tests.unit.spark.jobs.support import sound
from tests.unit.spark.jobs.test_store_partitions import write
from tests.unit.tiered.support import PARTITION, TOPIC, TOPIC_ID

ID = uuid_text(TOPIC_ID)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write(tmp_path, sound())
    return tmp_path


def test_an_unknown_job(run: Run) -> None:
    ran = run("pipeline", "audi")
    assert ran.code == 2
    assert "audi" in ran.err


def test_the_plan_of_an_audit(run: Run, store: Path) -> None:
    arguments = ("pipeline", "audit", "--remote-storage", store.as_uri(), "--plan")
    ran = run(*arguments)
    assert ran.code == 0, ran.err
    assert "comparing objects with manifests alone" in ran.err
    titles, row, total = ran.out.splitlines()
    assert titles.split()[-3:] == ["SIZE", "TO", "READ"]
    assert row.split()[:4] == [TOPIC, ID, "1", "16"]
    assert total.startswith("The audit would list 16 objects and read ")
    assert total.endswith("no broker is asked.")
    plan = json.loads(run(*arguments, "--json", "--deep").out)["plan"]
    (only,) = plan["topics"]
    sizes = sum(map(len, sound().objects.values()))
    assert (only["objects"], only["object_bytes"], only["bytes_to_read"]) == (16, sizes, sizes)
    assert plan["metadata_records"] is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--grace", "-1"), "--grace -1: expected 0 to"),
        (("--timeout", "0"), "--timeout 0: expected more than 0"),
        (("--command-config", "x"), "--command-config needs --bootstrap-server"),
        (("--what",), "--what"),
    ],
)
def test_wrong_usage(run: Run, store: Path, arguments: tuple[str, ...], expected: str) -> None:
    ran = run("pipeline", "audit", "--remote-storage", store.as_uri(), *arguments)
    assert ran.code == 2
    assert expected in ran.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--remote-storage", "ftp://x"), "--remote-storage ftp://x: expected"),
        (("--remote-storage", "file:///no/such", "--timeout", "3"), "no such directory"),
        (("--topic", "nosuch"), "the store has no topic nosuch"),
        (
            ("--bootstrap-server", "127.0.0.1:1", "--timeout", "0.2"),
            "no broker answers at 127.0.0.1:1",
        ),
    ],
)
def test_what_cannot_be_reached(
    run: Run, store: Path, arguments: tuple[str, ...], expected: str
) -> None:
    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    given = {"--remote-storage": store.as_uri(), **given}
    ran = run("pipeline", "audit", *(word for pair in given.items() for word in pair))
    assert (ran.code, ran.out) == (1, "")
    assert expected in ran.err.splitlines()[-1]


def test_without_spark(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str, *_: Any) -> Any:
        raise ImportError("No module named 'pyspark'")

    monkeypatch.setattr("importlib.import_module", _refusing(refuse, "ottla.spark"))
    ran = run("pipeline", "audit", "--remote-storage", store.as_uri())
    assert ran.code == 1
    assert "pip install 'ottla[spark]'" in ran.err


def _refusing(refuse: Any, refused: str) -> Any:
    import importlib

    real = importlib.import_module

    def import_module(name: str, package: str | None = None) -> Any:
        return refuse(name) if name == refused else real(name, package)

    return import_module


# What is printed


def finding(**more: Any) -> Finding:
    fields: dict[str, Any] = {
        "topic": TOPIC,
        "topic_id": TOPIC_ID,
        "partition": PARTITION,
        "kind": Kind.MISSING_OBJECT,
        "severity": Severity.ERROR,
        "detail": "the records 0 to 19 cannot be read",
        "object": "a.log",
        "start_offset": 0,
        "end_offset": 19,
    }
    return Finding(**(fields | more))


def total(*, read_bytes: int = 0, with_brokers: bool = True) -> audit_text.Total:
    one = Summary(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        objects=16,
        object_bytes=2_048,
        segments=3,
        manifests=1,
        read_bytes=read_bytes,
    )
    return audit_text.Total.of([one], seconds=1.25, with_brokers=with_brokers)


def test_the_summary() -> None:
    looked_at = "in 1 partition of 1 topic: 16 objects (2.0 KiB), 3 segments, 1 manifest"
    assert audit_text.summary_line([], total()) == f"No findings {looked_at}; 1.2 s"
    every = [finding(), finding(severity=Severity.WARNING), finding()]
    line = audit_text.summary_line(every, total(read_bytes=5, with_brokers=False))
    assert line == (
        f"3 findings (2 errors, 1 warning) {looked_at}; 5 B read, compared with manifests alone; "
        "1.2 s"
    )


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    foreign = finding(
        topic="", topic_id=None, partition=-1, kind=Kind.FOREIGN_OBJECT, object="x" * 200
    )
    audit_text.print_findings([finding(), foreign])
    shown = capsys.readouterr().out
    assert "missing-object" in shown
    assert f"{TOPIC}-{PARTITION}" in shown
    assert "0..19" in shown
    assert shown.count("x") >= 200  # Nothing is cut off.
    audit_text.print_findings([finding()] * (audit_text.SHOWN_MAX + 2))
    assert "and 2 more" in capsys.readouterr().out


def test_json() -> None:
    document = audit_text.findings_json([finding(topic="", topic_id=None, partition=-1)], total())
    (only,) = document["findings"]
    assert (only["topic"], only["topic_id"], only["partition"]) == (None, None, None)
    assert only["kind"] == "missing-object"
    assert document["summary"]["segments"] == 3
    assert json.loads(json.dumps(document)) == document


def row(**more: Any) -> dict[str, Any]:
    fields = {
        "topic": TOPIC,
        "topic_id": ID,
        "what": "deleted",
        "receipt": "purged, finished",
        "objects_left": 0,
        "bytes_left": 0,
        "example": None,
        "proven": True,
        "error": None,
    }
    return fields | more


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"objects_left": 2, "example": "a.log"}, "2 objects are left, such as a.log"),
        ({"objects_left": 1, "example": "a.log"}, "1 object is left: a.log"),
        ({"receipt": "pending, not finished"}, "the purge is pending"),
        ({"what": "unknown"}, "the deletion ledger does not have it"),
        ({"error": "store x: unavailable"}, "store x: unavailable"),
    ],
)
def test_a_purge_check(more: dict[str, Any], reason: str) -> None:
    lines = result_lines([row(), row(proven=False, **more)])
    assert lines[-2] == f"Signed off: {TOPIC} ({ID}): no object is left; purged, finished."
    assert lines[-1] == f"Not proven: {TOPIC} ({ID}): {reason}."
    document = result_json([row(), row(proven=False, **more)])
    assert document["proven"] is False
    assert [each["signed_off"] for each in document["topics"]] == [True, False]
    assert [each["reason"] for each in document["topics"]] == [None, reason]
    assert result_json([row()])["proven"] is True
    assert result_lines([]) == [
        "No topic was deleted, and no tiered storage turned off with delete."
    ]


def test_the_error_in_sparks_text() -> None:
    text = (
        "Job aborted due to stage failure\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in main\n'
        "ottla.x.SomeError: the reason\n"
        "\tat org.apache.spark.X\n"
    )
    assert last_line(text) == "ottla.x.SomeError: the reason"
    assert last_line("one line") == "one line"
    assert last_line("") == "no reason given"


def test_the_error_in_the_text_of_spark_has_any_name() -> None:
    text = (
        "An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 14, in work\n'
        "    raise\n"
        "ottla.records.errors.CorruptBatch: the batch at offset 49 has CRC 1\n"
    )
    assert last_line(text).endswith("CorruptBatch: the batch at offset 49 has CRC 1")


def test_the_error_in_the_text_of_spark_is_the_one_that_was_raised() -> None:
    text = (
        "An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 3, in read\n'
        "ottla.x.ObjectMissingError: a.log\n"
        "\n"
        "The above exception was the direct cause of the following exception:\n"
        "\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 5, in main\n'
        "ottla.y.RemoteStorageError: the object store s3://x has no object a.log\n"
    )
    assert last_line(text) == (
        "ottla.y.RemoteStorageError: the object store s3://x has no object a.log"
    )


@pytest.mark.parametrize(
    ("error", "is_advised"),
    [("ModuleNotFoundError: No module named 'ottla'", True), ("ValueError: x", False)],
)
def test_executors_that_lack_a_module(error: str, is_advised: bool) -> None:
    text = f"Job aborted\nTraceback (most recent call last):\n  File x\n{error}\n"
    with pytest.raises(CommandError) as raised, reported_errors():
        raise PySparkException(text)
    reason = str(raised.value)
    assert reason.startswith(f"Spark failed: {error}")
    assert ("docs/spark.md" in reason) == is_advised
