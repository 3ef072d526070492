"""An operator gives up the purge of a topic whose store is gone, in both modes.

Method: a directory as the store, in whose place a file is, so that nothing can be deleted. The
store comes back when the receipt is there: what was left stays, and is not touched any more.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

import pytest

from ottla.testing import Cluster

from .clients import Closing, Message, client_of, eventually
from .conftest import QUICK_FENCING, Kind, NewCluster
from .ottla_command import Ran, ottla

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.forms(1),
    pytest.mark.drawn(2, of="long faults"),
]

CONFIG = QUICK_FENCING | {
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
    "remote.log.manager.task.interval.ms": "500",
    "remote.log.manager.task.retry.backoff.max.ms": "2000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
}
NAME = "orders"
UNKNOWN_ID = "AAECAwQFBgcICQoLDA0ODw"
RECORDS = 70


@pytest.fixture(params=[Kind.COMBINED, Kind.ZOOKEEPER], ids=["kraft", "zookeeper"])
def cluster(request: pytest.FixtureRequest, new_cluster: NewCluster) -> Iterator[Cluster]:
    with new_cluster(request.param, 3, config=CONFIG, remote_storage=True) as started:
        started.wait_ready()
        yield started


def run(cluster: Cluster, *words: str) -> Ran:
    return ottla(*words, "--bootstrap-server", cluster.bootstrap)


def done(cluster: Cluster, *words: str) -> str:
    ran = run(cluster, *words)
    assert ran.code == 0, ran.err
    return ran.out


def create(cluster: Cluster) -> str:
    """Create the topic, and fill it; return its id once its segments are copied."""
    configs = ("--config", "remote.storage.enable=true", "--config", "internal.segment.bytes=16384")
    done(cluster, "topics", "--create", "--topic", NAME, "--replica-assignment", "1:2", *configs)
    with Closing(client_of("confluent").producer(cluster.bootstrap)) as producer:
        for number in range(RECORDS):
            value = b"%04d" % number + bytes(1_000)
            producer.send([Message(topic=NAME, partition=0, value=value)])

    def copied() -> str | None:
        ran = run(cluster, "tier", "describe", "--topic", NAME, "--json")
        topics = json.loads(ran.out)["topics"] if ran.code == 0 else []
        rows = topics[0]["partitions"] if topics else []
        is_copied = all(row["remote_segments"] and row["lag_segments"] == 0 for row in rows)
        return str(topics[0]["topic_id"]) if rows and is_copied else None

    topic_id = eventually(copied, within=60, what="copied segments")
    assert topic_id is not None
    return topic_id


def deletion(cluster: Cluster, topic_id: str) -> dict[str, Any]:
    """Return the ledger's entry."""
    words = ("--describe-deletions", "--topic-id", topic_id, "--json")
    found: dict[str, Any] = json.loads(done(cluster, "topics", *words))["deletions"][0]
    return found


def objects(store: Path, topic_id: str) -> list[tuple[str, int]]:
    """Return the names of a topic's objects, and when they were written."""
    found = []
    for path in store.glob(f"{NAME}-{topic_id}/**/*"):
        with suppress(FileNotFoundError):  # A purge goes on while this looks.
            if S_ISREG((status := path.stat()).st_mode):
                found.append((str(path), status.st_mtime_ns))
    return sorted(found)


def abandon(cluster: Cluster, topic_id: str, *words: str) -> Ran:
    return run(cluster, "tier", "abandon-purge", "--topic-id", topic_id, *words)


def check_what_is_left_stays(cluster: Cluster, old: str, receipt: dict[str, Any]) -> None:
    """Let the store be back: another topic of the name lives and goes, the old one's objects do
    not change."""
    store = cluster.remote_dir
    left = objects(store, old)
    assert left
    new = create(cluster)
    assert new != old
    failed = cluster.wait_controller()
    cluster.kill(failed)
    cluster.wait_controller(besides=failed)
    cluster.start(failed)
    cluster.wait_ready()
    assert deletion(cluster, old) == receipt
    done(cluster, "topics", "--delete", "--topic", NAME)
    eventually(
        lambda: objects(store, new),
        lambda found: not any(name.endswith(".log") for name, _ in found),
        within=60,
        what="the purge of the other topic",
    )
    assert objects(store, old) == left
    assert deletion(cluster, old) == receipt


def test_a_deletion_ends_although_its_store_is_gone(cluster: Cluster) -> None:
    store, away = cluster.remote_dir, cluster.remote_dir.with_name("away")
    old = create(cluster)
    refused = abandon(cluster, old, "--execute")
    assert refused.code == 1
    assert f"The topic {NAME} ({old}) is not deleted" in refused.err
    refused = abandon(cluster, UNKNOWN_ID, "--execute")
    assert refused.code == 1
    assert f"The deletion ledger has no topic with the id {UNKNOWN_ID}" in refused.err

    store.rename(away)
    store.touch()
    done(cluster, "topics", "--delete", "--topic", NAME)
    eventually(
        lambda: deletion(cluster, old),
        lambda entry: bool(entry["purge"] and entry["purge"]["last_error"]),
        within=60,
    )
    planned = abandon(cluster, old)
    assert planned.code == 0
    assert planned.out.startswith(f"Would abandon the purge of {NAME} ({old}): ")
    assert deletion(cluster, old)["remote"] == "pending"

    executed = abandon(cluster, old, "--execute")
    assert executed.code == 0, executed.err
    assert executed.out.startswith(f"Abandoned the purge of {NAME} ({old}): ")
    waited = run(
        cluster, "topics", "--describe-deletions", "--topic-id", old, "--wait", "--timeout", "30"
    )
    assert waited.code == 0, waited.err
    assert "remote tier: abandoned" in waited.out
    assert f"look for the directory {NAME}-{old} in the store" in waited.err
    receipt = deletion(cluster, old)
    assert (receipt["state"], receipt["remote"]) == ("finished", "abandoned")
    again = abandon(cluster, old, "--execute")
    assert again.code == 0, again.err
    assert again.out.startswith(f"The purge of {NAME} ({old}) is abandoned already: ")
    assert deletion(cluster, old) == receipt
    assert done(cluster, "tier", "purge-status") == "No purge is pending.\n"

    store.unlink()
    away.rename(store)
    check_what_is_left_stays(cluster, old, receipt)
