"""What succeeds is noted, and nothing else; a decorated store passes the checks of every store."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.base.object_store import Failure
from ottla.stores.event_log import EventLog, RecordedBackend
from ottla.stores.file_backend import FileBackend
from tests.object_store_checks import CHECKS, Bench, Tool
from tests.unit.stores.support import RealBench


def bench_of(tmp_path: Path) -> RealBench:
    events = EventLog(str(tmp_path / "events"), 7)
    return RealBench(
        lambda: RecordedBackend(FileBackend(str(tmp_path / "store")), events), tmp_path
    )


def noted(tmp_path: Path) -> list[tuple[str, str, int]]:
    lines = (tmp_path / "events" / "7.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert {each["node"] for each in found} <= {7}
    return [(each["event"], each["object"], each["bytes"]) for each in found]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__[6:])
def test_it_is_a_store(check: Callable[[Bench], None], tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    check(bench)
    bench.close()


def test_successes_are_noted_in_order(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    tool = Tool(bench)
    tool.put("t/0/a", b"abc")
    tool.put_if_absent("t/0/manifest/1", b"x")
    assert tool.put_if_absent("t/0/manifest/1", b"yy") is Failure.EXISTS
    tool.get("t/0/a", 1, 5)
    assert tool.get("t/0/none") is Failure.NOT_FOUND
    tool.delete("t/0/a")
    bench.close()
    assert noted(tmp_path) == [
        ("put", "t/0/a", 3),
        ("put", "t/0/manifest/1", 1),
        ("get", "t/0/a", 2),
        ("delete", "t/0/a", 0),
    ]


def test_a_restarted_node_goes_on_in_its_file(tmp_path: Path) -> None:
    for _ in range(2):
        EventLog(str(tmp_path / "events"), 7).note("put", "a", 1)
    assert noted(tmp_path) == [("put", "a", 1)] * 2
