"""Records must come again in their order, none missing, and twice only after a kill.

Method: whole replays in this process, from one fake broker to another. Runs are killed before and
after each piece of progress that they record; small pieces make many of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.base.ids import Uuid
from ottla.records.record import iter_records
from ottla.spark.errors import ClusterError, DataLossError, OptionError, RemoteStorageError
from ottla.spark.jobs.documents import JournalError
from ottla.spark.jobs.replay import (
    Bound,
    ReplayOptions,
    ReplayResult,
    Source,
    Target,
    plan_replay,
    replay,
)
from ottla.spark.jobs.replay_state import decode
from ottla.spark.jobs.target_store import TargetStore
from tests.unit.spark.fake_broker import TOPIC, FakeBroker, Log
from tests.unit.spark.jobs.fake_spark import FakeSpark
from tests.unit.spark.jobs.test_export import BEGIN_MS, DAY_MS, PARTITIONS, Killed, Killer, fill
from tests.unit.spark.jobs.test_export import killed_at as killed_in

BATCHES = 6
PER_BATCH = 4
EACH = BATCHES * PER_BATCH


@pytest.fixture
def source() -> Iterator[FakeBroker]:
    with FakeBroker(partitions=PARTITIONS) as broker:
        for _ in range(BATCHES):
            fill(broker, PER_BATCH)
        yield broker


@pytest.fixture
def target() -> Iterator[FakeBroker]:
    with FakeBroker(partitions=PARTITIONS) as broker:
        broker.topic_id = Uuid(b"j" * 16)
        yield broker


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.writing.sink.BUFFER_BYTES", 1)
    monkeypatch.setattr("ottla.spark.options.FETCH_BYTES", 1)


def options(source: FakeBroker, target: FakeBroker, state: Path, **changes: Any) -> ReplayOptions:
    made = ReplayOptions(
        source=Source(topic=TOPIC, cluster=source.options(), timeout_s=5),
        to=TOPIC,
        target=target.options(),
        state=str(state),
        patience_s=0,
    )
    return replace(made, **changes)


def run(source: FakeBroker, target: FakeBroker, state: Path, **changes: Any) -> ReplayResult:
    return replay(FakeSpark(), options(source, target, state, **changes))


def records(log: Log) -> list[tuple[bytes | None, int]]:
    return [(record.value, record.timestamp) for record in iter_records(bytes(log.data))]


def test_all_of_it_once_in_order(source: FakeBroker, target: FakeBroker, tmp_path: Path) -> None:
    result = run(source, target, tmp_path)
    assert (result.rows, result.is_new) == (PARTITIONS * EACH, True)
    for ours, theirs in zip(target.logs, source.logs, strict=True):
        assert records(ours) == records(theirs)
    again = run(source, target, tmp_path)
    assert (again.rows, again.is_new, again.copied) == (0, False, ())
    # The ranges were decided by the first run.
    fill(source, 3)
    assert run(source, target, tmp_path).rows == 0
    assert [log.end for log in target.logs] == [EACH] * PARTITIONS


def test_bounds_and_timestamps(source: FakeBroker, target: FakeBroker, tmp_path: Path) -> None:
    # fill() has records a third of a day apart.
    chosen: dict[str, Any] = {"start": Bound(offset=5), "end": Bound(time_ms=BEGIN_MS + 3 * DAY_MS)}
    result = run(source, target, tmp_path, timestamps="now", **chosen)
    assert [(each.start, each.end) for each, _ in result.copied] == [(5, 9)] * PARTITIONS
    for log in target.logs:
        assert [value for value, _ in records(log)] == [b"5", b"6", b"7", b"8"]
        assert min(time for _, time in records(log)) > BEGIN_MS + 365 * DAY_MS
    with pytest.raises(OptionError, match="its start offset is 5, not set"):
        run(source, target, tmp_path, timestamps="now", end=chosen["end"])
    with pytest.raises(OptionError, match="its timestamps is now, not keep"):
        run(source, target, tmp_path, **chosen)


@pytest.mark.drawn(8, of="every step")
@pytest.mark.parametrize("after", [False, True])
def test_a_run_that_is_killed(
    source: FakeBroker,
    target: FakeBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    after: bool,
) -> None:
    kills = 0
    for at in range(0, 100, 3):
        for log in target.logs:
            log.data.clear()
            log.end = 0
            log.last.clear()
        state = tmp_path / str(at)
        killer = Killer(at, after=after)
        error = killed_in(monkeypatch, killer, lambda state=state: run(source, target, state))  # type: ignore[misc]
        kills += error is not None
        run(source, target, state)
        repeated = 0
        for ours, theirs in zip(target.logs, source.logs, strict=True):
            found, expected = records(ours), records(theirs)
            # One piece was written again, right behind itself, if any.
            repeated += len(found) - len(expected)
            if len(found) > len(expected):
                begin = next(n for n in range(len(found)) if found[: n + 1] != expected[: n + 1])
                assert found[:begin] + found[begin + len(found) - len(expected) :] == expected or (
                    found[: begin - PER_BATCH] + found[begin:] == expected
                )
            else:
                assert found == expected
        assert repeated in (0, PER_BATCH)
        assert run(source, target, state).rows == 0
        if error is None:
            break
    assert kills >= 5


def test_a_relative_state_is_that_of_the_driver(
    source: FakeBroker, target: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def in_a_worker(action: Callable[[], Any]) -> Any:
        monkeypatch.chdir("elsewhere")
        return action()

    chosen = options(source, target, Path("state"))
    assert replay(FakeSpark(), chosen, act=in_a_worker).rows == PARTITIONS * EACH
    assert len(list((tmp_path / "state" / "progress").iterdir())) == PARTITIONS
    assert not list((tmp_path / "elsewhere").iterdir())


def test_by_key(source: FakeBroker, target: FakeBroker, tmp_path: Path) -> None:
    del target.logs[1:]
    with pytest.raises(OptionError, match="topic t has 1 partitions, and 3 are needed"):
        run(source, target, tmp_path)
    assert run(source, target, tmp_path, partitioning="key").rows == PARTITIONS * EACH
    assert target.logs[0].end == PARTITIONS * EACH


def test_what_is_refused(
    source: FakeBroker, target: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OptionError, match="topic t is the source itself"):
        run(source, source, tmp_path)
    with pytest.raises(ClusterError, match="there is no topic other: create it first"):
        run(source, target, tmp_path, to="other")
    with pytest.raises(OptionError, match="partitioning=x: expected keep or key"):
        options(source, target, tmp_path, partitioning="x")
    with pytest.raises(OptionError, match=r"kafka\.compression\.type=x: expected"):
        options(source, target, tmp_path, compression="x")
    with pytest.raises(OptionError, match="state: ftp://x"):
        replace(options(source, target, tmp_path), state="ftp://x")
    (tmp_path / "file").write_text("")
    with pytest.raises(RemoteStorageError, match="could not be created"):
        run(source, target, tmp_path / "file" / "x")
    source.logs[1].start = 5
    with pytest.raises(DataLossError, match="t-1: offsets 2 to 4 are no longer available"):
        run(source, target, tmp_path, start=Bound(offset=2))
    assert not (tmp_path / "replay.json").exists()
    log_append = Target(topic_id=Uuid(b"j" * 16), partitions=3, replaces_time=True)
    with monkeypatch.context() as patch:
        patch.setattr("ottla.spark.jobs.replay.find_target", lambda *_: log_append)
        with pytest.raises(OptionError, match=r"has message\.timestamp\.type=LogAppendTime, which"):
            run(source, target, tmp_path)
        assert run(source, target, tmp_path, timestamps="now").rows
    assert not any(log.end for log in source.logs if log.end != EACH)


def test_a_target_or_a_source_that_was_created_again(
    source: FakeBroker, target: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert killed_in(monkeypatch, Killer(6, after=True), lambda: run(source, target, tmp_path))
    left = sum(map(len, plan_replay(options(source, target, tmp_path)).left))
    assert 0 < left < PARTITIONS * EACH
    target.topic_id = Uuid(b"k" * 16)
    with pytest.raises(ClusterError, match="topic t was deleted and created again since the repl"):
        run(source, target, tmp_path)
    target.topic_id, source.topic_id = Uuid(b"j" * 16), Uuid(b"k" * 16)
    with pytest.raises(ClusterError, match="topic t was deleted and created again while"):
        run(source, target, tmp_path)


def test_a_topic_that_is_not_the_named_one(
    source: FakeBroker, target: FakeBroker, tmp_path: Path
) -> None:
    def replayed(topic_id: Uuid) -> ReplayResult:
        chosen = options(source, target, tmp_path)
        named = replace(chosen.source, topic_id=topic_id)
        return replay(FakeSpark(), replace(chosen, source=named))

    former = Uuid(b"f" * 16)
    with pytest.raises(ClusterError, match=r"topic t has the id aWlp.*, not ZmZm"):
        replayed(former)
    assert not any(log.end for log in target.logs)
    assert not (tmp_path / "replay.json").exists()
    assert replayed(source.topic_id).rows == PARTITIONS * EACH
    # Nor is a replay of another topic continued.
    with pytest.raises(ClusterError, match=r"topic t has the id aWlp.*, not ZmZm"):
        replayed(former)


def test_a_state_that_cannot_be_read(
    source: FakeBroker, target: FakeBroker, tmp_path: Path
) -> None:
    run(source, target, tmp_path, end=Bound(offset=4))
    (tmp_path / "progress" / "1").write_text("99")
    with pytest.raises(JournalError, match="progress/1 is 99: expected 0 to 4"):
        run(source, target, tmp_path, end=Bound(offset=4))
    for data in (b"", b"{}", b'{"version":1}', b"\xff"):
        with pytest.raises(JournalError, match=r"replay\.json cannot be read"):
            decode(data)
    with pytest.raises(JournalError, match="has the version 2: this version of Ottla reads 1"):
        decode(b'{"version":2}')


def test_a_plan_changes_nothing(source: FakeBroker, target: FakeBroker, tmp_path: Path) -> None:
    plan = plan_replay(options(source, target, tmp_path / "new"))
    assert plan.is_new
    assert sum(map(len, plan.left)) == PARTITIONS * EACH
    assert not (tmp_path / "new").exists()
    with TargetStore(str(tmp_path)) as store:
        assert list(store.list_objects("")) == []
    assert issubclass(Killed, BaseException)
