"""Declared classes must behave as frozen, slotted, keyword-only dataclasses.

Method: the properties that users rely on, one by one, before and after a class's first use,
because `__new__` is compiled then.
"""

import copy
import dataclasses
import pickle

import pytest

from ottla.wire.codec import decode, encode
from ottla.wire.messages.fetch import FetchTopic
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.schema import INT32, STRING, array, field, message, struct_of


@struct_of
class Inner:
    """A struct with a docstring."""

    name: str = field(STRING)
    count: int = field(INT32, default=7)


@message(versions="0")
class Outer:
    inner: Inner = field(Inner)
    counts: tuple[int, ...] = field(array(INT32), default=())

    def total(self) -> int:
        """Methods of the declaration are kept."""
        return sum(self.counts) + self.inner.count


@message(versions="0")
class Empty:
    """Has no fields."""


def test_defaults_and_methods() -> None:
    outer = Outer(inner=Inner(name="a"), counts=(1, 2))
    assert outer.inner.count == 7
    assert outer.total() == 10
    assert Inner.__doc__ == "A struct with a docstring."
    assert Outer.__module__ == __name__


def test_frozen() -> None:
    inner = Inner(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        inner.name = "b"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del inner.name
    with pytest.raises(dataclasses.FrozenInstanceError):
        inner.other = 1  # type: ignore[attr-defined]
    assert not hasattr(inner, "__dict__")


def test_decoded_values_are_frozen_too() -> None:
    decoded = decode(Outer, encode(Outer(inner=Inner(name="a")), 0), 0)
    assert type(decoded.inner) is Inner
    with pytest.raises(dataclasses.FrozenInstanceError):
        decoded.inner.name = "b"  # type: ignore[misc]


def test_required_fields_and_unknown_names() -> None:
    with pytest.raises(TypeError, match="name"):
        Inner()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="size"):
        Inner(name="a", size=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Inner("a")  # type: ignore[call-arg]


def test_equality_and_hash() -> None:
    assert Inner(name="a") == Inner(name="a", count=7)
    assert Inner(name="a") != Inner(name="b")
    other: object = ("a", 7)
    assert Inner(name="a") != other
    assert len({Inner(name="a"), Inner(name="a"), Inner(name="b")}) == 2


def test_repr_reads_like_the_call() -> None:
    assert repr(Inner(name="a")) == "Inner(name='a', count=7)"


def test_dataclass_functions() -> None:
    inner = Inner(name="a")
    assert dataclasses.replace(inner, count=9) == Inner(name="a", count=9)
    assert dataclasses.asdict(Outer(inner=inner)) == {
        "inner": {"name": "a", "count": 7},
        "counts": (),
    }
    assert [each.name for each in dataclasses.fields(Inner)] == ["name", "count"]


def test_copies() -> None:
    topic = FetchTopic(topic="a", partitions=())
    assert copy.copy(topic) == copy.deepcopy(topic) == topic
    assert pickle.loads(pickle.dumps(topic)) == topic


def test_pattern_matching() -> None:
    match Inner(name="a"):
        case Inner(name=name, count=7):
            assert name == "a"
        case _:
            pytest.fail("did not match")


def test_without_fields() -> None:
    assert Empty() == Empty()
    assert encode(Empty(), 0) == b""
    assert decode(Empty, b"", 0) == Empty()


def test_first_use_may_be_a_decode() -> None:
    encoded = bytes.fromhex("0001 67 00000001 0001 6d".replace(" ", ""))
    decoded = decode(HeartbeatRequest, encoded, 0)
    assert decoded == HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
