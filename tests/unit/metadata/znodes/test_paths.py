"""Goal: every fact has one path, and every path one meaning. Method: there and back."""

import pytest

from ottla.base.ids import Uuid
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.paths import Kind, ParsedPath

ID = Uuid(bytes(range(16)))


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (paths.broker(7), ParsedPath(Kind.BROKER, id=7)),
        (paths.topic("a.b"), ParsedPath(Kind.TOPIC, "a.b")),
        (paths.partitions("t"), ParsedPath(Kind.PARTITIONS, "t")),
        (paths.partition("t", 12), ParsedPath(Kind.PARTITION, "t", 12)),
        (paths.state("t", 12), ParsedPath(Kind.STATE, "t", 12)),
        (paths.config((2, "t")), ParsedPath(Kind.CONFIG, "t", 2)),
        (paths.config((4, "1")), ParsedPath(Kind.CONFIG, "1", 4)),
        (paths.config((4, "")), ParsedPath(Kind.CONFIG, "", 4)),
        (paths.config((2, "<default>")), ParsedPath(Kind.CONFIG, "<default>", 2)),
        (paths.marker("t"), ParsedPath(Kind.MARKER, "t")),
        (paths.deletion(ID), ParsedPath(Kind.DELETION, "AAECAwQFBgcICQoLDA0ODw")),
        (paths.FEATURE, ParsedPath(Kind.FEATURE)),
        (paths.PRODUCER_IDS, ParsedPath(Kind.PRODUCER_IDS)),
    ],
)
def test_a_fact_is_found_by_its_path(path: str, place: ParsedPath) -> None:
    assert paths.parse_path(path) == place


@pytest.mark.parametrize(
    "path",
    [
        paths.CONTROLLER,
        paths.BROKER_IDS,
        "/brokers/ids/x",
        paths.TOPICS,
        "/brokers/topics/t/tieredstorage/other",
        "/brokers/topics/t/other",
        "/brokers/topics/t/partitions/x",
        "/brokers/topics/t/partitions/0/log",
        "/config/users/u",
        "/config/topics",
        "/config/changes/config_change_0000000000",
        paths.DELETE_TOPICS,
        "/",
        "/zookeeper/quota",
    ],
)
def test_the_rest_is_not_in_the_image(path: str) -> None:
    assert paths.parse_path(path).kind is Kind.OTHER


def test_the_default_of_all_brokers_has_its_name() -> None:
    assert paths.config((4, "")) == "/config/brokers/<default>"
    assert paths.resource("brokers", "<default>") == (4, "")
    assert paths.resource("topics", "t") == (2, "t")
    assert paths.resource("users", "u") is None


def test_a_ledgers_entry_is_named_after_its_topics_id() -> None:
    assert paths.deletion_id(paths.parse_path(paths.deletion(ID)).name) == ID
    with pytest.raises(ValueError, match="not a UUID"):
        paths.deletion_id("x")


def test_what_every_broker_makes_sure_of() -> None:
    assert {"/brokers/ids", "/brokers/topics", "/config/changes", "/admin/delete_topics"} <= set(
        paths.PERSISTENT
    )
    assert {"/config/users", "/config/clients", "/config/ips"} <= set(paths.PERSISTENT)
