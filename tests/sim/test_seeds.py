"""Clusters under every fault keep what they acknowledged, and work again once the faults end.

Method: the product's own nodes in simulated harnesses, a seed each, played in as many processes as
there are cores; the judgement is that of `ottla.testing.checkers.verdict`. Seeds that once failed
(`tests/seeds.txt`, lines "sim <seed> <its story>", and "zookeeper <seed> <its story>" for clusters
over ZooKeeper) are played first: a few, drawn by the commit, all with OTTLA_SIM_STORIES=all. Most
seeds count: one in twenty has no faults, and in some too little is written. They are the same for
each commit (`found_out.STANDARD`), so that what they must have reached is no matter of luck.
OTTLA_SIM_SEEDS=2300 plays the first so many instead; `make soak` plays others each time.
"""

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from ottla.testing.scenarios.runner import PlayOptions, play_all
from ottla.testing.scenarios.summary import Summary

from ..drawn import SIM_STORIES, drawn
from .found_out import STANDARD, ZOOKEEPER_STANDARD

COUNT = int(os.environ.get("OTTLA_SIM_SEEDS", "0"))
SEEDS = range(1, COUNT + 1) if COUNT else STANDARD
ZOOKEEPER_SEEDS = range(1, COUNT // 4 + 1) if COUNT else ZOOKEEPER_STANDARD
IS_ENOUGH = COUNT == 0 or COUNT >= 300
"""Whether the histories must have gone rare paths."""
KNOWN_BAD = 2
BAD_SEEDS = Path(__file__).parents[1] / "seeds.txt"
WORKERS = len(os.sched_getaffinity(0))
SECONDS_PER_SEED = 40
"""Many times what a seed takes: what runs beside goes first."""

ZOOKEEPER_REACHED = (
    "controller-elected",
    "deletion-finished",
    "isr-shrunk",
    "tier-segment-copied",
    "zookeeper-connection-broken",
    "zookeeper-cut",
    "zookeeper-down",
    "zookeeper-session-expired",
    "zookeeper-watch-missed",
)

REACHED = (
    "backfill-finished",
    "backfill-granted",
    "controller-elected",
    "coordinator-crash",
    "coordinator-power",
    "coordinator-stop",
    "crash-after-election",
    "crashed",
    "cut-both-ways",
    "cut-one-way",
    "deletion-finished",
    "deletion-ineligible",
    "disk-full",
    "disk-slow",
    "error-fenced-instance-id",
    "error-illegal-generation",
    "isr-expanded",
    "isr-shrunk",
    "leader-lost",
    "member-died",
    "member-left",
    "member-paused",
    "paused",
    "power-lost",
    "request-twice",
    "store-outage",
    "tier-local-start-moved",
    "tier-segment-copied",
    "tier-segment-expired",
    "unsynced-lost",
)
"""Rare paths that the histories must have gone where there are as many as by default."""

GROUP_FIGURES = ("generations", "commits", "offset fetches", "timestamp lookups", "follower reads")
"""What consumer groups and readers must have done more often than there were histories."""


def known_bad_seeds(kind: str = "sim") -> list[int]:
    lines = BAD_SEEDS.read_text(encoding="utf-8").splitlines()
    seeds = [int(line.split()[1]) for line in lines if line.startswith(f"{kind} ")]
    return drawn(seeds, KNOWN_BAD, SIM_STORIES)


def played(once_bad: Collection[int], seeds: Collection[int], options: PlayOptions) -> Summary:
    """Play all seeds, fail if one breaks a promise, and return the summary of `seeds`: what these
    reach does not depend on the commit, which draws the others."""
    summary = Summary()
    failures: list[str] = []
    for report in play_all((*once_bad, *seeds), options, workers=WORKERS):
        if report.seed in seeds:
            summary.add(report)
        if not report.is_kept:
            failures += report.lines(full=True)
    print("\n".join(summary.lines()))
    assert not failures, "\n".join(failures)
    return summary


@pytest.mark.timeout(120 + SECONDS_PER_SEED * len(SEEDS))
def test_no_history_breaks_a_promise() -> None:
    summary = played(known_bad_seeds(), SEEDS, PlayOptions())
    # Else the histories proved nothing.
    assert len(summary.counted) >= len(SEEDS) * 5 // 6, summary.inconclusive
    assert summary.median("leader_changes") >= 5
    if IS_ENOUGH:
        assert all(summary.groups[name] > len(SEEDS) for name in GROUP_FIGURES), summary.groups
        assert [name for name in REACHED if not summary.marks[name]] == []


@pytest.mark.timeout(120 + SECONDS_PER_SEED * len(SEEDS))
def test_no_history_over_zookeeper_breaks_a_promise() -> None:
    summary = played(known_bad_seeds("zookeeper"), ZOOKEEPER_SEEDS, PlayOptions(zookeeper=True))
    # Else the histories proved nothing.
    assert len(summary.counted) >= len(ZOOKEEPER_SEEDS) * 3 // 4, summary.inconclusive
    assert summary.median("leader_changes") >= 5
    assert summary.median("controller_changes") >= 1
    assert [name for name in ZOOKEEPER_REACHED if not summary.marks[name]] == []
