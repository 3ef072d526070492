"""Every benchmark, one after the other: `make bench`. Takes half an hour on two cores.

`deletion` takes most of that: it waits for receipts to go, which they do in whole minutes.
"""

import subprocess
import sys
from pathlib import Path

BENCHES = (
    "startup",
    "latency",
    "throughput",
    "validation",
    "codec",
    "decode",
    "spark_scan",
    "spark_tiers",
    "controller",
    "scale",
    "failover",
    "modes",
    "deletion",
    "catch_up",
    "tiered",
    "backfill",
    "disable",
    "slow_store",
)


def main(names: list[str]) -> int:
    """Run the benchmarks named, or all; return how many failed."""
    folder = Path(__file__).resolve().parent
    failed = 0
    for name in names or BENCHES:
        print(f"== {name}", flush=True)
        failed += (
            subprocess.run([sys.executable, folder / f"{name}.py"], check=False).returncode != 0
        )
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
