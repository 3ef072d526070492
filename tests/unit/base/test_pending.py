"""A promise completes once, and every listener is called exactly once, in order."""

import pytest

from ottla.base.pending import Pending, completed, gather


def test_listeners_are_called_once_in_order() -> None:
    heard: list[str] = []
    pending: Pending[int] = Pending()
    pending.then(lambda value: heard.append(f"first {value}"))
    pending.then(lambda value: heard.append(f"second {value}"))
    assert pending.complete(7)
    assert not pending.complete(8)
    assert heard == ["first 7", "second 7"]
    assert pending.value == 7


def test_every_listener_is_called_although_one_fails() -> None:
    heard: list[int] = []

    def fail(_value: int) -> None:
        raise RuntimeError("a bug")

    pending: Pending[int] = Pending()
    pending.then(fail)
    pending.then(heard.append)
    with pytest.raises(RuntimeError, match="a bug"):
        pending.complete(7)
    assert heard == [7]
    assert pending.value == 7


def test_a_late_listener_is_called_at_once() -> None:
    heard: list[int] = []
    completed(3).then(heard.append)
    assert heard == [3]


def test_a_listener_added_during_complete_is_called_too() -> None:
    heard: list[int] = []
    pending: Pending[int] = Pending()
    pending.then(lambda _value: pending.then(heard.append))
    pending.complete(1)
    assert heard == [1]


def test_a_removed_listener_is_not_called() -> None:
    heard: list[str] = []

    def first(_value: int) -> None:
        heard.append("first")

    def second(_value: int) -> None:
        heard.append("second")

    pending: Pending[int] = Pending()
    pending.then(first)
    pending.then(second)
    pending.forget(first)
    pending.forget(first)
    pending.complete(1)
    pending.forget(second)
    assert heard == ["second"]


def test_map_converts_now_or_later() -> None:
    later: Pending[int] = Pending()
    doubled = later.map(lambda value: value * 2)
    assert not doubled.done
    later.complete(4)
    assert doubled.value == 8
    assert completed(5).map(str).value == "5"


def test_gather_waits_for_all_and_keeps_their_order() -> None:
    first: Pending[str] = Pending()
    last: Pending[str] = Pending()
    gathered = gather([first, completed("b"), last])
    last.complete("c")
    assert not gathered.done
    first.complete("a")
    assert gathered.value == ["a", "b", "c"]
    nothing: list[Pending[int]] = []
    assert gather(nothing).value == []
