"""Object names: as operators and other readers rely on them, and read back."""

import pytest

from ottla.base.ids import Uuid, uuid_text
from ottla.base.object_store import check_name
from ottla.tiered.object_names import (
    ObjectKind,
    ObjectName,
    behind_partition,
    manifest_name,
    manifest_prefix,
    object_name,
    object_names,
    parse_manifest_name,
    parse_object_name,
    partition_prefix,
)
from tests.unit.tiered.support import PARTITION, TOPIC, TOPIC_ID, segment, segment_id

PREFIX = "orders-AQIDBAUGBwgJCgsMDQ4PEA/3"
SEGMENT = segment(7, 1_234, 2_000)
STEM = f"{PREFIX}/00000000000000001234-AAAAAAAAAAAAAAAAAAAABw"


def test_names() -> None:
    assert partition_prefix(TOPIC, TOPIC_ID, PARTITION) == PREFIX
    assert object_name(SEGMENT, ObjectKind.LOG) == f"{STEM}.log"
    endings = ("log", "index", "timeindex", "txnindex", "snapshot", "epochs")
    assert object_names(SEGMENT) == tuple(f"{STEM}.{each}" for each in endings)
    assert manifest_prefix(TOPIC, TOPIC_ID, PARTITION) == f"{PREFIX}/manifest"
    assert manifest_name(TOPIC, TOPIC_ID, PARTITION, 42) == f"{PREFIX}/manifest/{42:020}"
    for name in (*object_names(SEGMENT), manifest_name(TOPIC, TOPIC_ID, PARTITION, 2**63 - 1)):
        check_name(name)


@pytest.mark.parametrize("kind", list(ObjectKind))
def test_names_are_read_back(kind: ObjectKind) -> None:
    assert parse_object_name(object_name(SEGMENT, kind)) == ObjectName(
        TOPIC, TOPIC_ID, PARTITION, 1_234, segment_id(7), kind
    )
    assert parse_manifest_name(object_name(SEGMENT, kind)) is None


def test_a_manifests_name_is_read_back() -> None:
    name = manifest_name("a-b.c_d", TOPIC_ID, PARTITION, 42)
    assert parse_manifest_name(name) == 42
    assert parse_object_name(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        f"{STEM}.txt",
        f"{STEM}",
        f"x/{STEM}.log",
        f"{PREFIX}/1234-AAAAAAAAAAAAAAAAAAAABw.log",
        f"{PREFIX}/00000000000000001234-AAAAAAAAAAAAAAAAAAAABx.log",  # No canonical UUID.
        "orders/3/00000000000000001234-AAAAAAAAAAAAAAAAAAAABw.log",
        f"{PREFIX}/manifest/42",
        f"{PREFIX}/manifest/0000000000000000004x",
        f"{STEM.replace('/3/', '/03/')}.log",
    ],
)
def test_other_objects(name: str) -> None:
    assert parse_object_name(name) is None
    assert parse_manifest_name(name) is None


def test_what_is_behind_a_partition_sorts_between_it_and_the_next() -> None:
    directory = f"t-{uuid_text(Uuid(bytes(16)))}"
    behind = behind_partition(f"{directory}/1/00000000000000000000-x.log")
    assert f"{directory}/1/manifest/00000000000000000000" < behind < f"{directory}/2/0"
