"""What every object store must do; run over each implementation of `ottla.base.object_store`.

A check gets a bench: it makes stores that share one content, and lets time pass.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from ottla.base.object_store import (
    Call,
    Failure,
    FileSource,
    ObjectInfo,
    ObjectStore,
    Pool,
    Source,
    StoreError,
)

T = TypeVar("T")

SECONDS_MAX = 30


class Bench(Protocol):
    """What a check needs. The store is empty when a check begins."""

    def open(self) -> ObjectStore:
        """Return a client of the store: another one with each call."""
        ...

    def deadline(self, seconds: float = SECONDS_MAX) -> int:
        """Return the deadline in so many seconds."""
        ...

    def wait(self, call: Call[T]) -> T | StoreError:
        """Let time pass until a call has its result."""
        ...

    def file(self, data: bytes) -> FileSource:
        """Return a file that the store's clients can upload."""
        ...


class Tool:
    """One client's operations, done at once."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.store = bench.open()

    def put(self, name: str, source: Source) -> object:
        return self._wait(
            self.store.put(name, source, pool=Pool.COPIER, deadline_ms=self.bench.deadline())
        )

    def put_if_absent(self, name: str, data: bytes) -> object:
        return self._wait(
            self.store.put_if_absent(
                name, data, pool=Pool.COPIER, deadline_ms=self.bench.deadline()
            )
        )

    def get(self, name: str, start: int = 0, length: int = 1 << 30) -> bytes | Failure:
        found = self.bench.wait(
            self.store.get_range(
                name, start, length, pool=Pool.FETCHER, deadline_ms=self.bench.deadline()
            )
        )
        return found.failure if isinstance(found, StoreError) else bytes(found)

    def head(self, name: str) -> ObjectInfo | Failure:
        found = self.bench.wait(
            self.store.head(name, pool=Pool.FETCHER, deadline_ms=self.bench.deadline())
        )
        return found.failure if isinstance(found, StoreError) else found

    def names(self, prefix: str = "", limit: int = 1000) -> list[str]:
        """Return the names of all pages."""
        names: list[str] = []
        while True:
            page = self.bench.wait(
                self.store.list_page(
                    prefix,
                    after=names[-1] if names else "",
                    limit=limit,
                    pool=Pool.PURGE,
                    deadline_ms=self.bench.deadline(),
                )
            )
            assert not isinstance(page, StoreError), page
            assert len(page.objects) <= limit
            names += [each.name for each in page.objects]
            if page.is_last:
                return names
            assert page.objects, "an empty page is the last one"

    def delete(self, *names: str) -> Mapping[str, StoreError]:
        found = self.bench.wait(
            self.store.delete_many(names, pool=Pool.PURGE, deadline_ms=self.bench.deadline())
        )
        assert not isinstance(found, StoreError), found
        return found

    def _wait(self, call: Call[None]) -> Failure | None:
        found = self.bench.wait(call)
        return found.failure if isinstance(found, StoreError) else found


def check_an_object_is_read_as_it_was_written(bench: Bench) -> None:
    tool = Tool(bench)
    assert tool.put("t-1/0/a.log", b"0123456789") is None
    assert tool.get("t-1/0/a.log") == b"0123456789"
    assert tool.get("t-1/0/a.log", 3, 4) == b"3456"
    assert tool.get("t-1/0/a.log", 9, 100) == b"9"
    info = tool.head("t-1/0/a.log")
    assert isinstance(info, ObjectInfo)
    assert (info.name, info.size_bytes) == ("t-1/0/a.log", 10)
    assert Tool(bench).get("t-1/0/a.log", 0, 2) == b"01"


def check_a_put_replaces(bench: Bench) -> None:
    tool = Tool(bench)
    tool.put("a", b"long content")
    assert tool.put("a", memoryview(b"short")) is None
    assert tool.get("a") == b"short"
    assert tool.put("a", bytearray(b"x")) is None
    assert tool.get("a") == b"x"


def check_empty_objects(bench: Bench) -> None:
    tool = Tool(bench)
    assert tool.put("t/empty", b"") is None
    info = tool.head("t/empty")
    assert isinstance(info, ObjectInfo)
    assert info.size_bytes == 0
    assert tool.get("t/empty", 0, 1) is Failure.INVALID
    assert tool.names("t") == ["t/empty"]


def check_reads_outside_of_an_object(bench: Bench) -> None:
    tool = Tool(bench)
    tool.put("a", b"0123456789")
    assert tool.get("a", 10, 1) is Failure.INVALID
    assert tool.get("a", 11, 5) is Failure.INVALID
    assert tool.get("b", 0, 1) is Failure.NOT_FOUND
    assert tool.head("b") is Failure.NOT_FOUND
    assert tool.head("a/b") is Failure.NOT_FOUND or tool.head("a/b") is Failure.INVALID


def check_files_are_uploaded(bench: Bench) -> None:
    tool = Tool(bench)
    data = bytes(range(256)) * 40_000  # More than a part.
    assert tool.put("t/0/large.log", bench.file(data)) is None
    assert tool.get("t/0/large.log", 5_000_000, 100) == data[5_000_000:5_000_100]
    info = tool.head("t/0/large.log")
    assert isinstance(info, ObjectInfo)
    assert info.size_bytes == len(data)


def check_a_file_that_is_another_one_is_not_uploaded(bench: Bench) -> None:
    tool = Tool(bench)
    file = bench.file(b"0123456789")
    assert tool.put("a", FileSource(file.path, 11)) is Failure.SOURCE
    assert tool.put("a", FileSource(str(Path(file.path).with_name("no")), 1)) is Failure.SOURCE
    assert tool.names() == []


def check_one_of_several_creators_wins(bench: Bench) -> None:
    tools = [Tool(bench) for _ in range(4)]
    calls = [
        tool.store.put_if_absent(
            "manifest/1", b"%d" % at, pool=Pool.COPIER, deadline_ms=bench.deadline()
        )
        for at, tool in enumerate(tools)
    ]
    results = [bench.wait(call) for call in calls]
    [winner] = [at for at, result in enumerate(results) if result is None]
    losers = [each for each in results if each is not None]
    assert {each.failure for each in losers if isinstance(each, StoreError)} == {Failure.EXISTS}
    assert len(losers) == 3
    assert tools[0].get("manifest/1") == b"%d" % winner
    assert tools[0].put_if_absent("manifest/1", b"late") is Failure.EXISTS
    assert tools[0].get("manifest/1") == b"%d" % winner
    assert tools[0].names() == ["manifest/1"]


def check_listings_are_in_order_and_in_pages(bench: Bench) -> None:
    tool = Tool(bench)
    names = ["t/0/00.log", "t/0/00.index", "t/0/01.log", "t/1/00.log", "t-2/0/00.log", "t/0-a", "u"]
    for name in names:
        tool.put(name, b"x")
    ordered = sorted(names)
    for limit in (1, 2, 3, 7, 8):
        assert tool.names(limit=limit) == ordered
        below = [name for name in ordered if name.startswith("t/0/")]
        assert tool.names("t/0", limit) == below
    assert tool.names("t/1") == ["t/1/00.log"]
    assert tool.names("nothing") == []
    assert tool.names("t/0/0") == [], "a prefix is a directory"


def check_deleted_objects_are_gone(bench: Bench) -> None:
    tool = Tool(bench)
    for name in ("t/0/a", "t/0/b", "t/1/a"):
        tool.put(name, b"x")
    assert tool.delete("t/0/a", "t/0/missing", "other/missing", "t/1/a") == {}
    assert tool.names() == ["t/0/b"]
    assert tool.get("t/0/a") is Failure.NOT_FOUND
    assert tool.delete("t/0/b") == {}
    assert tool.names() == []
    assert tool.put("t/0/a", b"again") is None
    assert tool.get("t/0/a") == b"again"


def check_many_are_deleted_at_once(bench: Bench) -> None:
    tool = Tool(bench)
    names = [f"t/0/{number:05d}" for number in range(150)]
    calls = [
        tool.store.put(name, b"x", pool=Pool.COPIER, deadline_ms=bench.deadline())
        for name in names[:100]
    ]
    assert [bench.wait(call) for call in calls] == [None] * 100
    assert tool.delete(*names) == {}
    assert tool.names() == []


def check_objects_are_not_unfinished(bench: Bench) -> None:
    tool = Tool(bench)
    for name in ("t/0/a", "t/0/b/c", "t/01/a"):
        tool.put(name, b"x")
    for prefix in ("t/0", "t", "nothing/0"):
        call = tool.store.remove_unfinished(prefix, pool=Pool.PURGE, deadline_ms=bench.deadline())
        assert bench.wait(call) is None
    assert tool.names() == ["t/0/a", "t/0/b/c", "t/01/a"]


def check_a_cancelled_call_ends_at_once(bench: Bench) -> None:
    tool = Tool(bench)
    call = tool.store.put("a", b"x" * 1_000_000, pool=Pool.COPIER, deadline_ms=bench.deadline())
    call.cancel()
    result = bench.wait(call)
    assert isinstance(result, StoreError)
    assert result.failure is Failure.CANCELLED
    assert result.may_have_happened
    call.cancel()
    assert tool.put("b", b"y") is None
    assert tool.get("b") == b"y"


def check_a_deadline_that_has_passed(bench: Bench) -> None:
    tool = Tool(bench)
    tool.put("a", b"x")
    call = tool.store.get_range("a", 0, 1, pool=Pool.FETCHER, deadline_ms=bench.deadline(-1))
    result = bench.wait(call)
    assert isinstance(result, StoreError)
    assert result.failure in (Failure.TIMED_OUT, Failure.BUSY)
    assert result.is_retriable


CHECKS: Sequence[Callable[[Bench], None]] = [
    value for name, value in sorted(globals().items()) if name.startswith("check_")
]
