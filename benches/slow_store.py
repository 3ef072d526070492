"""What clients that need no remote storage notice of a store that accepts requests and hangs.

The scene is that of tests/cluster/test_slow_store.py: three brokers, twelve partitions that have
segments to copy and twenty consumers that read records which are in the store alone. Times before
and during, in one run; the 99th percentiles should be within 1.5 of each other.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table
from tests.cluster.conftest import new_replicated_topic
from tests.cluster.slow_store import Clients, Fetchers, scene

SECONDS = 20.0
RATIO_MAX = 1.5


def main(console: Console) -> None:
    """Run and print."""
    with scene() as made:
        topic = new_replicated_topic(made.cluster, "bystander", 3)
        with Clients(made.cluster, topic) as before:
            time.sleep(SECONDS)
        made.gate.shut()
        made.produce()
        with Fetchers(made):
            with Clients(made.cluster, topic) as during:
                time.sleep(SECONDS)
            made.gate.open()
    table = Table(title="three brokers, milliseconds: the store answers, and hangs")
    for heading in ("", "p50", "p50, hangs", "p99", "p99, hangs", "ratio of p99", "target"):
        table.add_column(heading, justify="right")
    for kind in Clients.KINDS:
        cells = [
            each.percentile(kind, part) * 1000 for part in (0.5, 0.99) for each in (before, during)
        ]
        ratio = cells[3] / cells[2]
        met = "met" if ratio <= RATIO_MAX else "MISSED"
        table.add_row(
            kind,
            *(f"{each:.1f}" for each in cells),
            f"{ratio:.2f}",
            f"at most {RATIO_MAX}: {met}",
        )
    console.print(table)


if __name__ == "__main__":
    main(Console(width=140))
