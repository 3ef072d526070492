"""What losing a leader or the controller costs: seconds without one, round by round.

The rounds are those of tests/cluster/test_faults.py: three nodes, three replicas, an idempotent
producer with acks=all all the time, and every record checked at the end. Names of rounds on the
command line run only those; --separate runs three controllers as nodes of their own.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.cluster.conftest import new_replicated_topic
from tests.cluster.fault_rounds import QUICK_SESSIONS, ROUNDS, heading, row, under_load

from ottla.testing import Cluster

PARTITIONS = 6
SEPARATE = "--separate"


def main(arguments: list[str]) -> None:
    """Run and print."""
    names = {each for each in arguments if each != SEPARATE}
    rounds = [each for each in ROUNDS if not names or each.__name__ in names]
    settings = " ".join(f"{name}={value}" for name, value in sorted(QUICK_SESSIONS.items()))
    print(f"time without a leader ({settings})\n{heading()}", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        Cluster(
            brokers=3,
            controllers=3 if SEPARATE in arguments else 0,
            config=QUICK_SESSIONS,
            data_dir=folder,
        ) as cluster,
    ):
        topic = new_replicated_topic(cluster, "failover", PARTITIONS)
        with under_load(cluster, topic, PARTITIONS) as scene:
            for number, act in enumerate(rounds, 1):
                print(row(number, scene.run(act)), flush=True)
        written = sum(scene.load.sent)
    print(f"{written} records written, each acknowledged once and on three replicas")


if __name__ == "__main__":
    main(sys.argv[1:])
