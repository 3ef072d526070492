"""Which partitions a store has, and what is read of one, over a directory and a memory store."""

import os
from pathlib import Path

import pytest

from ottla.base.ids import uuid_text
from ottla.spark.errors import OptionError, RemoteStorageError
from ottla.spark.jobs.rules.findings import Kind
from ottla.spark.jobs.store_access import StoreAccess
from ottla.spark.jobs.store_partitions import list_partition, stored_partitions
from ottla.tiered.manifest import Manifest
from ottla.tiered.object_names import manifest_name
from tests.unit.tiered.support import PARTITION, TOPIC, TOPIC_ID

from .support import KEY, Store, sound


def write(root: Path, store: Store) -> None:
    for name, data in store.objects.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def test_a_bad_uri_and_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        StoreAccess("ftp://x")
    with StoreAccess((tmp_path / "none").as_uri(), 3.0) as store:
        with pytest.raises(RemoteStorageError, match="no such directory") as failed:
            list(store.list_objects(""))
        assert str(tmp_path) in str(failed.value)
        assert store.read_or_none("a/b", 0, 1) is None


def test_partitions_are_found_without_listing_all_objects(tmp_path: Path) -> None:
    write(tmp_path, sound())
    other = tmp_path / f"orders-{uuid_text(TOPIC_ID)}" / "0"
    other.mkdir()
    for number in range(1_005):
        (other / f"{number:05}").touch()
    (tmp_path / "orders").write_bytes(b"x")
    (tmp_path / "zzz").mkdir()
    (tmp_path / "zzz" / "a").touch()
    with StoreAccess(tmp_path.as_uri()) as store:
        found = stored_partitions(store)
        assert found.keys == {KEY, (TOPIC, TOPIC_ID, 0)}
        assert found.ids == {(TOPIC, TOPIC_ID)}
        assert [each.object for each in found.foreign] == ["orders", "zzz/a"]
        assert {each.kind for each in found.foreign} == {Kind.FOREIGN_OBJECT}
        chosen = stored_partitions(store, ["orders"])
        assert (chosen.keys, chosen.foreign) == (found.keys, [])
        assert stored_partitions(store, ["order", "zzz"]).keys == set()


def test_the_manifests_since_the_last_base_are_read(tmp_path: Path) -> None:
    made = sound()
    for _ in range(204):
        made.write_manifest()
    write(tmp_path, made)
    path = tmp_path / manifest_name(*KEY, 203)
    path.write_bytes(path.read_bytes()[:-5])
    other = tmp_path / manifest_name(*KEY, 201)
    other.write_bytes((tmp_path / manifest_name(*KEY, 202)).read_bytes())
    with StoreAccess(tmp_path.as_uri()) as store:
        listing = list_partition(store, KEY, all_manifests=False)
        assert sorted(listing.manifests) == [200, 201, 202, 203, 204]
        assert isinstance(listing.manifests[202], Manifest)
        assert "another number" in str(listing.manifests[201])
        assert isinstance(listing.manifests[203], str)
        assert len(listing.objects) == 15 + 205
        every = list_partition(store, KEY, all_manifests=True)
        assert len(every.manifests) == 205
        for number in range(200, 205):
            os.unlink(tmp_path / manifest_name(*KEY, number))
        assert sorted(list_partition(store, KEY, all_manifests=False).manifests)[0] == 100
        assert list_partition(store, (TOPIC, TOPIC_ID, PARTITION + 1), all_manifests=True) == (
            list_partition(store, ("none", TOPIC_ID, 0), all_manifests=False)
        )
