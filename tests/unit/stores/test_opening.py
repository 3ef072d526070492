"""Stores by URI, end to end."""

from pathlib import Path

import pytest

from ottla.base.object_store import Pool
from ottla.host.system_ports import SystemClock
from ottla.stores.file_backend import FileBackend
from ottla.stores.opening import open_store
from ottla.stores.uri import MemoryUri, StoreUriError, parse_store_uri
from tests.unit.stores.support import RealBench


def test_stores_of_one_uri_share_their_content(tmp_path: Path) -> None:
    bench = RealBench(lambda: FileBackend(str(tmp_path)), tmp_path)
    for text in (f"file://{tmp_path}/tier", "memory://test-opening"):
        uri = parse_store_uri(text)
        first = open_store(uri, clock=bench.clock, post=bench.post)
        second = open_store(uri, clock=bench.clock, post=bench.post)
        put = first.put("a", b"x", pool=Pool.COPIER, deadline_ms=bench.deadline())
        assert bench.wait(put) is None
        get = second.get_range("a", 0, 1, pool=Pool.FETCHER, deadline_ms=bench.deadline())
        assert bench.wait(get) == b"x"
        first.close()
        second.close()
    other = open_store(MemoryUri(name="other"), clock=bench.clock, post=bench.post)
    page = bench.wait(other.list_page("", pool=Pool.PURGE, deadline_ms=bench.deadline()))
    assert page.objects == ()  # type: ignore[union-attr]
    other.close()


def test_an_unknown_profile_is_refused_at_the_opening(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StoreUriError, match="profile nobody"):
        open_store(
            parse_store_uri("s3://bucket?profile=nobody"),
            clock=SystemClock(),
            post=lambda call: None,
        )
