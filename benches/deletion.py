"""What deletions cost: many topics at once, and a storm of short-lived ones while a broker is down.

Three brokers; combined nodes in KRaft mode, one elected controller over ZooKeeper. "Acknowledged"
is when every request is answered without an error. "Gone" is when the controller's gauge of
topics to delete is back at 0 and no broker that lives has a folder of theirs, but for those that
wait under another name for `file.delete.delay.ms`. Each duration stands beside that of the
creation of the same topics, in the same run.

The storm is told by what each topic adds: while the broker is down, when it is back, and when it
was unregistered instead. Receipts are kept for a second here: with the seven days of the default
nothing would be known of whether what is kept is flat again. They go a minute later, since they
go in whole minutes.

`--topics`, `--partitions`: of the mass; `--storm`: topics of the storm (of each of the two in
KRaft mode), at least 5; 0 = none; `--mode`.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from rich.console import Console
from rich.table import Table

from deletion_seen import (
    BATCH,
    Held,
    Seen,
    alive_to,
    create,
    delete,
    unregister,
)
from ottla.client.connection import Connection
from ottla.testing import Cluster
from waiting import until

FACTOR = 3
STEPS = 5
"""Into how many parts the storm is cut, to see whether a topic costs more at its end."""

AFTERWARDS = 5
"""One such part of the storm's topics comes and goes once all is well again; over ZooKeeper also,
and at two brokers, while the third is down."""

TELLING = ("LeaderAndIsr", "UpdateMetadata", "StopReplica", "DeleteReplicas")
"""What controllers send to brokers."""

CONFIG = {
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    "ottla.deletion.receipt.retention.ms": "1000",
}
OVER_ZOOKEEPER = {"zookeeper.session.timeout.ms": "4000"}


# -- many at once ----------------------------------------------------------------------------------


def mass(seen: Seen, topics: int, partitions: int) -> None:
    """Delete many topics while all brokers live."""
    names = [f"mass-{number:05}" for number in range(topics)]
    title = f"{topics} topics x {partitions} partitions, RF {FACTOR}"
    with seen.ask() as connection:
        created = create(connection, names, partitions, FACTOR)
        seen.row(f"{title}: created (the peer)", f"{created:.2f} s")
        wanted = topics * partitions * FACTOR
        until(lambda: sum(1 for _ in seen.folders("mass-")) == wanted)
        written, requests = seen.written(), seen.scrape().requests
        begun = time.perf_counter()
        acknowledged = delete(connection, names)
    gone = seen.wait_gone("mass-") - begun
    written = seen.written() - written
    sent = seen.scrape().requests - requests
    seen.row("  deleted, to all acknowledged", f"{acknowledged:.2f} s")
    seen.row("    ratio to their creation", f"{acknowledged / created:.2f}")
    seen.row("  to all gone, with receipts", f"{gone:.2f} s")
    seen.row("    ratio to their creation", f"{gone / created:.2f}")
    listed = ", ".join(f"{sent[each]} {each}" for each in TELLING if sent[each])
    seen.row("  requests from the controller", listed or "none")
    seen.row("  metadata written", f"{written / 1e3:.0f} kB, {written / topics:.0f} B a topic")


# -- the storm -------------------------------------------------------------------------------------


def storm(seen: Seen, topics: int) -> None:
    """Delete topics while a broker is down; then have it back, or unregister it.

    A quorum's controller places replicas on a broker that is fenced: the topics are created while
    it is down, and their deletion is open until it is back or unregistered. Over ZooKeeper it
    places none there: what is to wait for the broker is created before that dies. Short-lived
    ones come and go beside these, at the brokers that live. Nobody is unregistered there.
    """
    if seen.is_kraft:
        storm_of_created(seen, "return", topics)
        storm_of_created(seen, "unregister", topics)
    else:
        storm_of_waiting(seen, topics)


def storm_of_created(seen: Seen, end: str, topics: int) -> None:
    """Create and delete topics while a broker is down, until that end."""
    away = someone(seen)
    prefix = f"{end}-"
    start = held = seen.held()
    seen.row(f"storm of {topics} topics, RF {FACTOR}; before it", str(held))
    seen.cluster.kill(away)
    created = 0.0
    with seen.ask() as connection:
        until(lambda: away not in alive_to(connection))
        for names in parts(prefix, topics):
            took = come_and_go(connection, names, FACTOR)
            created += took[0]
            held = tell(seen, f"a broker down: {names[0]} to {names[-1]}", held, took, len(names))
    assert held.open == topics, f"{held.open} of {topics} deletions wait for the broker"
    settle(seen, away, prefix, start, end=end, topics=topics, created=created)


def storm_of_waiting(seen: Seen, topics: int) -> None:
    """Delete topics that a broker has replicas of while it is down, and short-lived ones."""
    away = someone(seen)
    start = seen.held()
    seen.row(f"storm of {topics} topics, RF {FACTOR}; before it", str(start))
    with seen.ask() as connection:
        waiting = list(parts("waiting-", topics))
        per_part = [create(connection, names, 1, FACTOR) for names in waiting]
        wanted = topics * FACTOR
        until(lambda: sum(1 for _ in seen.folders("waiting-")) == wanted)
        held = seen.held()
        seen.row("  created, all brokers up (the peer)", f"{sum(per_part):.2f} s; {held}")
        seen.cluster.kill(away)
        until(lambda: away not in alive_to(connection))
        short_lived = max(STEPS, topics // AFTERWARDS)
        living = parts("living-", short_lived)
        count = 0
        for names, others, created in zip(waiting, living, per_part, strict=True):
            count += len(names)
            took = created, delete(connection, names)
            held = tell(seen, f"a broker down: {names[0]} to {names[-1]}", held, took, len(names))
            took = come_and_go(connection, others, FACTOR - 1)
            # The broker that is down holds up its own replicas, and nothing else.
            seen.wait_open(count)
            what = f"  beside them {others[0]} to {others[-1]}, RF 2"
            held = tell(seen, what, held, took, len(others))
        until(lambda: not any(seen.folders("living-")) and not any(seen.folders("waiting-")))
    topics += short_lived
    settle(seen, away, "waiting-", start, end="return", topics=topics, created=sum(per_part))


def settle(
    seen: Seen, away: int, prefix: str, start: Held, *, end: str, topics: int, created: float
) -> None:
    """Have the broker back, or unregister it: what was open ends, and nothing grows any more.

    `start`: what was held before the storm; `topics`: how many it made; `created`: the seconds that
    the creation of those took whose deletion is open.
    """
    begun = time.perf_counter()
    if end == "return":
        seen.cluster.start(away)
        seen.cluster.wait_ready()
        title = "  the broker is back, to nothing open and no folder left"
    else:
        with seen.ask() as connection:
            unregister(connection, away)
        title = "  the broker is unregistered, to nothing open"
    took = seen.wait_gone(prefix) - begun
    held = seen.held()
    seen.row(title, f"{took:.2f} s; {held}")
    seen.row("    ratio to the creation of all that was open", f"{took / created:.2f}")
    factor = FACTOR if end == "return" else FACTOR - 1
    names = [f"after-{end}-{number:05}" for number in range(max(BATCH, topics // AFTERWARDS))]
    with seen.ask() as connection:
        pair = come_and_go(connection, names, factor)
    seen.wait_gone("after-")
    held = tell(seen, f"{len(names)} more come and go, RF {factor}", held, pair, len(names))
    begun = time.perf_counter()
    seen.wait_forgotten()
    waited = time.perf_counter() - begun
    held = seen.held()
    seen.row("  the receipts have had their time", f"{waited:.0f} s later; {held}")
    growth = held.growth_since(start, topics + len(names))
    seen.row("    since before the storm, of all its topics", growth)


def someone(seen: Seen) -> int:
    """Return a broker that is not the controller."""
    controller = seen.cluster.wait_controller()
    return next(plan.id for plan in seen.cluster.brokers if plan.id != controller)


def parts(prefix: str, topics: int) -> Iterator[list[str]]:
    """Yield the names of some topics in STEPS parts."""
    ends = [topics * step // STEPS for step in range(STEPS + 1)]
    for first, end in pairwise(ends):
        yield [f"{prefix}{number:05}" for number in range(first, end)]


def come_and_go(connection: Connection, names: list[str], factor: int) -> tuple[float, float]:
    """Create topics and delete them, a batch after the other; return the seconds of both."""
    created = deleted = 0.0
    for first in range(0, len(names), BATCH):
        some = names[first : first + BATCH]
        created += create(connection, some, 1, factor)
        deleted += delete(connection, some)
    return created, deleted


def tell(seen: Seen, what: str, before: Held, took: tuple[float, float], topics: int) -> Held:
    """Show how long topics took to create and to delete, and what they added; return what is
    held now."""
    created, deleted = (1e3 * each / topics for each in took)
    after = seen.held()
    ratio = deleted / created
    times = f"created in {created:.1f} ms, deleted in {deleted:.1f} ms a topic, ratio {ratio:.2f}"
    seen.row(f"  {what}", times)
    seen.row("    each adds", after.growth_since(before, topics))
    seen.row("    then there are", str(after))
    return after


# -- the clusters ----------------------------------------------------------------------------------


@contextmanager
def running(mode: str, table: Table) -> Iterator[Seen]:
    """Run a cluster of three in one mode."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        over_zookeeper = mode == "zookeeper"
        with Cluster(
            brokers=3,
            zookeeper=over_zookeeper,
            config=CONFIG | OVER_ZOOKEEPER if over_zookeeper else CONFIG,
            data_dir=Path(folder),
            metrics=True,
        ) as cluster:
            yield Seen(cluster, table)


def main(console: Console) -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--storm", type=int, default=5_000)
    parser.add_argument("--mode", choices=("kraft", "zookeeper", "both"), default="both")
    options = parser.parse_args()
    console.print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}")
    begun = time.perf_counter()
    for mode in ("kraft", "zookeeper") if options.mode == "both" else (options.mode,):
        table = Table("", "measured", title=f"deletions, three brokers, {mode}")
        # A cluster each: what the mass leaves in the ledger would go while the storm is measured.
        if options.topics:
            with running(mode, table) as seen:
                mass(seen, options.topics, options.partitions)
        if options.storm:
            with running(mode, table) as seen:
                storm(seen, options.storm)
        console.print(table)
    console.print(f"all of it: {time.perf_counter() - begun:.0f} s")
    console.print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main(Console(width=150))
