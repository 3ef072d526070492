"""What is brought up to date is what is computed anew, after any history.

Method: leaders copy at any offsets, in any epochs, and delete; the log grows, is truncated and
forgets epochs. After each step the visible segments that were kept are compared with new ones.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.tiered.lineage import Lineage
from ottla.tiered.remote_log import CHANGES_MAX, RemoteLog
from ottla.tiered.visible_segments import VisibleSegments
from tests.unit.tiered.support import DELETED, DELETING, FINISHED, number_of, segment, update

STEPS = ("next", "next", "next", "any", "first", "delete", "again", "lineage", "quiet")


def check(kept: VisibleSegments, remote: RemoteLog, lineage: Lineage) -> None:
    kept.update(remote, lineage)
    anew = VisibleSegments()
    anew.update(remote, lineage)
    assert list(kept.segments) == list(anew.segments)
    assert kept.size_bytes == anew.size_bytes
    assert sorted(map(number_of, kept.others)) == sorted(map(number_of, anew.others))


def copy(remote: RemoteLog, number: int, start: int, end: int, epoch: int = 1) -> None:
    remote.replay(segment(number, start, end, ((epoch, start),), size_bytes=100 + number))
    remote.replay(update(number, FINISHED))


def delete(remote: RemoteLog, number: int, *, wholly: bool = True) -> None:
    remote.replay(update(number, DELETING))
    if wholly:
        remote.replay(update(number, DELETED))


@given(st.data())
def test_any_history(data: st.DataObject) -> None:
    remote, kept = RemoteLog(), VisibleSegments()
    number, at, epoch, lineage = 0, 0, 1, Lineage([(1, 0)], 1_000)
    for _ in range(data.draw(st.integers(1, 30))):
        ids = [number_of(each) for each in remote.segments()]
        match data.draw(st.sampled_from(STEPS)):
            case "next":
                number += 1
                copy(remote, number, at, at + 9, epoch)
                at += 10
            case "any":
                number += 1
                start = data.draw(st.integers(0, at))
                end = start + data.draw(st.integers(0, 30))
                copy(remote, number, start, end, data.draw(st.integers(1, 3)))
            case "first" if ids:
                delete(remote, ids[0], wholly=data.draw(st.booleans()))
            case "delete" if ids:
                delete(remote, data.draw(st.sampled_from(ids)))
            case "again" if ids:
                remote.replay(update(data.draw(st.sampled_from(ids)), FINISHED))
            case "lineage":
                epoch = data.draw(st.integers(1, 3))
                starts = data.draw(st.lists(st.integers(0, at + 1), max_size=2, unique=True))
                entries = list(enumerate(sorted({0, *starts}), 1))
                lineage = Lineage(entries, data.draw(st.integers(at // 2, at + 50)))
            case _:
                continue
        check(kept, remote, lineage)


def test_the_usual_changes_compute_nothing_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    remote, kept, lineage = RemoteLog(), VisibleSegments(), Lineage([(1, 0)], 10_000)
    copy(remote, 1, 0, 9)
    kept.update(remote, lineage)
    monkeypatch.setattr(VisibleSegments, "_compute", None)
    for number in range(2, 40):
        copy(remote, number, number * 10, number * 10 + 9)
        kept.update(remote, Lineage([(1, 0)], 10_000 + number))
        assert len(kept.segments) == number - (number - 1) // 2
        if number % 2 == 0:
            delete(remote, number // 2)
            kept.update(remote, lineage)


def test_too_many_changes_are_computed_anew() -> None:
    remote, kept, lineage = RemoteLog(), VisibleSegments(), Lineage([(1, 0)], 10**6)
    kept.update(remote, lineage)
    version = remote.version
    for number in range(1, 2 * CHANGES_MAX):
        copy(remote, number, number * 10, number * 10 + 9)
    assert remote.changes_since(version) is None
    assert len(remote.changes_since(remote.version - CHANGES_MAX) or ()) <= CHANGES_MAX
    check(kept, remote, lineage)


def test_another_remote_log_is_computed_anew() -> None:
    one, two, kept, lineage = RemoteLog(), RemoteLog(), VisibleSegments(), Lineage([(1, 0)], 100)
    copy(one, 1, 0, 9)
    copy(two, 2, 10, 19)
    check(kept, one, lineage)
    check(kept, two, lineage)
