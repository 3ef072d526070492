"""The demo's object store: closed segments move there; it is turned off, on again, and emptied."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from ottla.cli.demo.records import Written
from ottla.cli.demo.steps import PARTITIONS, TOPIC, check, command, wait_until
from ottla.cli.topics.deletions_client import Selection, fetch
from ottla.client.cluster import ClientConfig, ClusterClient
from ottla.client.remote_logs import describe_remote_logs
from ottla.metadata.deletions import DeletionState
from ottla.metadata.tiering import TieringState
from ottla.wire.messages.describe_remote_log import RemoteLogPartition

OFF_RETAIN: Final = {"remote.storage.enable": "false", "remote.log.disable.policy": "retain"}
OFF_DELETE: Final = {"remote.storage.enable": "false", "remote.log.disable.policy": "delete"}
ON: Final = {"remote.storage.enable": "true"}
PURGE_S_MAX: Final = 300
"""A purge waits until no late write to the store is possible any more, about a minute."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """What leaders know of the topic.

    Fields: `states`: each with its tiered epoch, as one or another leader knows it.
    """

    states: frozenset[tuple[int, int]]
    rows: Mapping[int, RemoteLogPartition]


def tiers(bootstrap: str) -> Tiers:
    """Ask the leader of each partition."""

    def ask() -> Tiers:
        states, rows = set(), {}
        keys = [(TOPIC, number) for number in range(PARTITIONS)]
        for node, led in client.by_leader(keys).items():
            [topic] = describe_remote_logs(client, node, led).topics
            states.add((topic.state, topic.tiered_epoch))
            rows.update({each.partition: each for each in topic.partitions})
        return Tiers(frozenset(states), rows)

    with ClusterClient(ClientConfig(bootstrap=bootstrap)) as client:
        return client.with_retries(ask, repeatable=True)


def wait_tiered(bootstrap: str) -> dict[int, int]:
    """Wait until the oldest records are only in the store; return where the tail begins.

    That is the offset behind the last one in the store, of each partition.
    """
    found: dict[int, RemoteLogPartition] = {}

    def is_tiered() -> bool:
        found.update(tiers(bootstrap).rows)
        return all(
            each.remote_segments > 0 and each.lag_segments == 0 and each.local_start_offset > 0
            for each in found.values()
        )

    wait_until(is_tiered, "closed segments to move to the object store")
    return {number: each.remote_end_offset + 1 for number, each in found.items()}


def describe(console: Console, bootstrap: str) -> None:
    """Show the tiers as a user sees them."""
    command(console, "tier", "describe", "--bootstrap-server", bootstrap, "--topic", TOPIC)


def turn_off_and_on(console: Console, bootstrap: str, written: Written) -> None:
    """Turn tiered storage off with `retain`, and on again; all records stay readable."""
    _alter(console, bootstrap, OFF_RETAIN)
    _wait_state(console, bootstrap, TieringState.DISABLED)
    rows = tiers(bootstrap).rows.values()
    readable = sum(each.high_watermark - each.log_start_offset for each in rows)
    check(console, "records that can be read while it is off", readable, written.totals.count)
    _alter(console, bootstrap, ON)
    _wait_state(console, bootstrap, TieringState.ENABLED)


def give_up(console: Console, bootstrap: str) -> dict[int, int]:
    """Turn tiered storage off with `delete`; return where the partitions begin now."""
    _alter(console, bootstrap, OFF_DELETE)
    _wait_state(console, bootstrap, TieringState.DISABLED)
    rows = tiers(bootstrap).rows
    local = sum(each.log_start_offset == each.local_start_offset > 0 for each in rows.values())
    check(console, "partitions that begin with their local records", local, PARTITIONS)
    return {number: each.log_start_offset for number, each in rows.items()}


def audit(console: Console, bootstrap: str, uri: str, *, deep: bool) -> None:
    """Compare the objects in the store with metadata and manifests."""
    words = ["pipeline", "audit", "--remote-storage", uri, "--bootstrap-server", bootstrap]
    command(console, *words, *(["--deep"] if deep else []))


def wait_purged(console: Console, bootstrap: str, uri: str) -> None:
    """Wait until nothing of the tier that was given up is left, and have that proved."""
    where = ["--bootstrap-server", bootstrap]
    words = ["--topic", TOPIC, "--wait-purged", "--timeout", str(PURGE_S_MAX)]
    command(console, "tier", "describe", *where, *words)
    command(console, "pipeline", "purge-check", "--remote-storage", uri, *where, "--topic", TOPIC)


def delete_topic(console: Console, bootstrap: str, uri: str, *, full: bool) -> None:
    """Delete the topic, and show the ledger: what each replica has answered.

    `full`: wait until the object store is purged, too, and have that proved.
    """
    where = ["--bootstrap-server", bootstrap]
    command(console, "topics", *where, "--delete", "--topic", TOPIC)
    ledger = ["topics", *where, "--describe-deletions", "--topic", TOPIC]
    if full:
        command(console, *ledger, "--wait", "--timeout", str(PURGE_S_MAX))
        command(console, "pipeline", "purge-check", "--remote-storage", uri, *where)
        return
    wait_until(lambda: replicas_left(bootstrap) == 0, "the replicas to be deleted")
    command(console, *ledger)
    check(console, "replicas that are left", replicas_left(bootstrap), 0)


def replicas_left(bootstrap: str) -> int:
    """Return how many replicas of the topic the deletion ledger still waits for; -1 = not begun."""
    with ClusterClient(ClientConfig(bootstrap=bootstrap)) as client:
        found = fetch(client, Selection(text=TOPIC), receipts=True)
    if len(found) != 1 or not found[0].has_begun:
        return -1
    return found[0].count(*DeletionState) - found[0].count(DeletionState.SUCCESSFUL)


def _alter(console: Console, bootstrap: str, config: dict[str, str]) -> None:
    words = ["--bootstrap-server", bootstrap, "--alter", "--entity-type", "topics"]
    added = ",".join(f"{name}={value}" for name, value in config.items())
    command(console, "configs", *words, "--entity-name", TOPIC, "--add-config", added)


def _wait_state(console: Console, bootstrap: str, state: TieringState) -> None:
    """Wait until all leaders have a state of the topic."""
    states: set[tuple[int, int]] = set()

    def is_reached() -> bool:
        states.clear()
        states.update(tiers(bootstrap).states)
        return len(states) == 1 and next(iter(states))[0] == state

    wait_until(is_reached, f"the topic to be {state.name}")
    [(_, epoch)] = states
    console.print(f"  [green]✓[/green] {TOPIC}: {state.name}, tiered epoch {epoch}")
