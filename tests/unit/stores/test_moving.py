"""A move must take place once, however often it is asked for, in each kind of store.

Method: the same moves in a directory, in memory and in moto's S3; then again, and in part.
"""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import obstore
import pytest

from ottla.stores.moving import MoveError, move_all
from ottla.stores.obstore_backend import s3_store
from ottla.stores.opening import memory_store
from ottla.stores.uri import FileUri, MemoryUri, S3Uri, StoreUri
from tests.unit.stores.moto_server import MotoServer

Read = Callable[[str], bytes | None]
Write = Callable[[str, bytes], None]
Opened = tuple[StoreUri, Read, Write]


@pytest.fixture(scope="module")
def moto() -> Iterator[MotoServer]:
    with MotoServer() as server:
        yield server


@pytest.fixture(params=["directory", "memory", "s3"])
def opened(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Opened:
    if request.param == "directory":

        def read_file(name: str) -> bytes | None:
            path = tmp_path / name
            return path.read_bytes() if path.is_file() else None

        def write_file(name: str, data: bytes) -> None:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)

        return FileUri(path=str(tmp_path)), read_file, write_file
    uri: StoreUri
    if request.param == "memory":
        uri = MemoryUri(name=secrets.token_hex(6))
        store = memory_store(uri.name)
    else:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        url = request.getfixturevalue("moto").url
        bucket = f"bucket-{secrets.token_hex(6)}"
        boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket=bucket)
        uri = S3Uri(bucket=bucket, prefix="a", endpoint=url, region="us-east-1")
        store = s3_store(uri)

    def read(name: str) -> bytes | None:
        try:
            return bytes(obstore.get(store, name).bytes())
        except FileNotFoundError:
            return None

    return uri, read, lambda name, data: obstore.put(store, name, data) and None


MOVES = [("staged/r/x/1", "x/1"), ("staged/r/2", "2")]


def test_moves(opened: Opened) -> None:
    uri, read, write = opened
    for source, _ in MOVES:
        write(source, source.encode())
    move_all(uri, MOVES[:1])
    assert (read("x/1"), read("2")) == (b"staged/r/x/1", None)
    for _ in range(2):
        move_all(uri, MOVES)
        assert (read("x/1"), read("2")) == (b"staged/r/x/1", b"staged/r/2")
    # What is at neither place is an error, and named.
    with pytest.raises(MoveError, match=r"neither .*staged/r/3 nor .*3 is there"):
        move_all(uri, [*MOVES, ("staged/r/3", "3")])


def test_a_directory_is_left_without_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "staged/r/x").mkdir(parents=True)
    (tmp_path / "staged/r/x/1").write_text("1")
    move_all(FileUri(path=str(tmp_path)), [("staged/r/x/1", "x/1")])
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["1", "x"]


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "file").write_text("")
    with pytest.raises(MoveError, match="could not be renamed"):
        move_all(FileUri(path=str(tmp_path)), [("a", "file/b")])
