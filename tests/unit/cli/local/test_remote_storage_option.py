"""`ottla up --remote-storage URI` makes the directory of a `file://` store: nodes require it."""

from pathlib import Path

import pytest

from ottla.cli.errors import UsageError
from ottla.cli.local.local_up import remote_storage_properties


def test_the_directory_is_made(tmp_path: Path) -> None:
    store = tmp_path / "a" / "store"
    uri = store.as_uri()
    for _ in range(2):
        assert remote_storage_properties(uri) == {
            "remote.log.storage.system.enable": "true",
            "ottla.remote.storage.uri": uri,
        }
        assert store.is_dir()


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"--remote-storage file:///.*: Not a directory"):
        remote_storage_properties((tmp_path / "file" / "store").as_uri())


def test_other_stores() -> None:
    uri = "s3://bucket/prefix"
    assert remote_storage_properties(uri)["ottla.remote.storage.uri"] == uri
    for wrong in ("memory://here", "ftp://there"):
        with pytest.raises(UsageError):
            remote_storage_properties(wrong)
