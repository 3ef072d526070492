"""Rules for all tests: what shares a worker, that nothing is skipped unseen in CI, and that no
property fails because the machine is busy."""

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.drawn import FAULT_ROUNDS, drawn, examples

settings.register_profile(
    "ottla",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ottla")

SPARK = "tests/spark"
CLUSTERS = "tests/cluster"
SIMULATOR = "tests/sim"

DRAWN_FILES = {CLUSTERS: 10, SPARK: 2}
"""Of how many of a directory's files a commit plays its part; `make soak` plays all."""

PLAYED_FILES = frozenset(
    f"{CLUSTERS}/{name}.py"
    for name in (
        "test_admin",
        "test_cli_local",
        "test_data",
        "test_deletion",
        "test_faults",
        "test_groups",
        "test_protocol",
        "test_quorum",
        "test_reading",
        "zookeeper/test_conformance",
        "zookeeper/test_deletion",
    )
) | {"tests/spark/test_demo.py"}
"""What each commit plays besides."""

LEFT_OUT = "left out"

NICENESS = 5
"""Of workers that begin with what needs a core: whoever waits much goes on at once when it can.
Spark waits ten seconds at most for a Python that it has started."""

SPARK_STREAMS = f"{SPARK} streams"
"""Tests of Spark that share a second session, since one takes too long for all."""

SPARK_DRIVERS = f"{SPARK} drivers"
"""A test of a quarter of an hour that only soaks play; it needs a session for its last seconds."""

SPARK_ALONE = ("tests/spark/test_demo.py", "tests/spark/test_clusters.py")
"""Those that use no shared session."""

LONGEST = (
    SPARK_DRIVERS,
    SPARK,
    SPARK_STREAMS,
    "tests/cluster/test_tiered_deletion.py",
    "tests/cluster/test_slow_store.py",
    *SPARK_ALONE,
    "tests/cluster/test_tiered_storage.py",
    "tests/cluster/test_tiered_off.py",
    "tests/cluster/test_cli_local.py",
    "tests/cluster/zookeeper/test_local_clusters.py",
    "tests/cluster/zookeeper/test_tiered_storage.py",
    "tests/cluster/test_tiered_followers.py",
    "tests/cluster/test_restore.py",
    "tests/cluster/zookeeper/test_frozen_zookeeper.py",
    "tests/cluster/zookeeper/test_ensemble_faults.py",
    "tests/cluster/test_replication.py",
    "tests/cluster/zookeeper/test_zombies.py",
    "tests/cluster/test_faults.py",
    "tests/cluster/test_rolling_restart.py",
    "tests/cluster/test_replicated_compaction.py",
    "tests/cluster/test_lost_disks.py",
    "tests/cluster/test_s3_store.py",
    "tests/cluster/test_quorum.py",
    "tests/cluster/test_tiered_off_rounds.py",
    "tests/sim/test_tiering_off_size.py",
    "tests/unit/testing/sim/faults/test_directed_faults.py",
    "tests/unit/raft/test_simulation.py",
    "tests/unit/broker/remote/tasks/test_tiering_crashes.py",
    "tests/unit/broker/remote/tasks/test_crashes.py",
    "tests/unit/testing/sim/test_nodes.py",
    "tests/unit/testing/sim/test_sim.py",
    "tests/unit/testing/scenarios/test_runner.py",
    "tests/unit/log/test_durability_model.py",
    "tests/unit/controller/deletion/test_deletion_walk.py",
)
"""What is begun first, so that no worker is left alone with one of them at the end."""


def pytest_sessionstart(session: pytest.Session) -> None:
    """Import tests from another file on in each worker: each then compiles a part of a fresh clone.

    The first worker leaves it to the collection, which makes errors of warnings.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    if number % 2:
        os.nice(NICENESS)
    if number == 0:
        return
    files = sorted(
        path
        for argument in session.config.args
        for path in Path(argument.split("::")[0]).rglob("test_*.py")
    )
    begin = len(files) * number // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    root = session.config.rootpath
    for path in (*files[begin:], *files[:begin]):
        # What cannot be imported is reported by the collection.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.resolve().relative_to(root).with_suffix("").parts))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only soaks play, unless a test was named."""
    if not any("::" in argument for argument in config.args):
        out = [item for item in items if is_left_to_soaks(item)] + forms_left_out(items)
        out += functions_left_out(items)
        if not any(argument.endswith(".py") for argument in config.args):
            out += files_left_out(items, config.rootpath)
        left = set(out)
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
        if hasattr(config, "workeroutput"):
            config.workeroutput[LEFT_OUT] = len(left)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    """Show how many tests are left out, which xdist does not: all workers leave out the same."""
    count = getattr(node, "workeroutput", {}).get(LEFT_OUT, 0)
    reporter = node.config.pluginmanager.get_plugin("terminalreporter")
    if count and reporter is not None:
        reporter.stats["deselected"] = [SimpleNamespace()] * count


def pytest_collection_finish() -> None:
    """Keep later collections of garbage from what was imported, which stays to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _logs_are_as_before() -> Iterator[None]:
    """Give the product's logger back as it was: simulated clusters and commands set it."""
    logger = logging.getLogger("ottla")
    level, propagate = logger.level, logger.propagate
    yield
    logger.setLevel(level)
    logger.propagate = propagate


def forms_left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return what to leave out, to keep `count` forms of each function marked `forms(count)`."""
    functions: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("forms") is not None and isinstance(item, pytest.Function):
            functions.setdefault((item.path, item.originalname), []).append(item)
    out = []
    for (_, name), forms in functions.items():
        marker = forms[0].get_closest_marker("forms")
        assert marker is not None
        kept = drawn(forms, marker.args[0], FAULT_ROUNDS, name=name)
        out += [form for form in forms if form not in kept]
    return out


def functions_left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return what to leave out, to keep `count` functions of those marked `drawn(count)`.

    They are drawn from those of a file, or where the marker says `of` from those of that group.
    """
    groups: dict[tuple[str, int], dict[str, list[pytest.Item]]] = {}
    for item in items:
        marker = item.get_closest_marker("drawn")
        if marker is not None and isinstance(item, pytest.Function):
            key = (marker.kwargs.get("of", item.path.name), marker.args[0])
            function = f"{item.path}::{item.originalname}"
            groups.setdefault(key, {}).setdefault(function, []).append(item)
    out = []
    for (name, count), functions in groups.items():
        played = drawn(list(functions), count, FAULT_ROUNDS, name=name)
        for function, forms in functions.items():
            out += [] if function in played else forms
    return out


def files_left_out(items: list[pytest.Item], root: Path) -> list[pytest.Item]:
    """Return what to leave out, to keep so many files of each directory as `DRAWN_FILES` says."""
    left: set[Path] = set()
    for directory, count in DRAWN_FILES.items():
        files = [
            path
            for path in sorted((root / directory).rglob("test_*.py"))
            if str(path.relative_to(root)) not in PLAYED_FILES
        ]
        left |= {*files} - {*drawn(files, count, FAULT_ROUNDS, name=directory)}
    return [item for item in items if item.path in left]


class FileScheduling(LoadScopeScheduling):
    """Keeps a file in one worker, since its tests share clusters; Spark starts twice for all files,
    and in soaks once more (`SPARK_DRIVERS`).

    Every other worker begins with what waits much, clusters and Spark, the others with what needs
    a core: so the cores are busy to the end. Simulated clusters are each test's own: these tests go
    to any worker. xdist's own `loadgroup` sets the groups in a way that pytest 9 does not see.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        if nodeid.endswith("::test_killed_drivers"):
            return SPARK_DRIVERS
        if path.startswith(f"{SPARK}/") and path not in SPARK_ALONE:
            return SPARK_STREAMS if "stream" in path or "pipeline" in path else SPARK
        return nodeid if path.startswith(f"{SIMULATOR}/") else path

    def _assign_work_unit(self, node: WorkerController) -> None:
        waits_first = int(node.gateway.id[2:]) % 2 == 0
        first = min(self.workqueue, key=lambda scope: (_waits(scope) != waits_first, _rank(scope)))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        # What is done is forgotten: xdist counts all that a worker has got after each of its tests.
        assigned = self.assigned_work[node]
        for scope in [scope for scope, unit in assigned.items() if all(unit.values())]:
            del assigned[scope]
        super()._reschedule(node)


@cache
def _waits(scope: str) -> bool:
    """Tell whether the tests wait more than they work."""
    return scope.startswith((SPARK, CLUSTERS))


@cache
def _rank(scope: str) -> int:
    """Return what orders the work of a kind; where it is equal, files of more tests come first."""
    path = scope.split("::", 1)[0]
    if path in LONGEST:
        return LONGEST.index(path)
    return len(LONGEST) + (not path.startswith(SIMULATOR))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Distribute by file, and Spark by its sessions, with `--dist loadgroup`."""
    return FileScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def is_left_to_soaks(item: pytest.Item) -> bool:
    marker = item.get_closest_marker("soak")
    return marker is not None and os.environ.get(marker.args[0]) != "all"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Let a skipped test fail where CI runs: there all that tests need is installed."""
    outcome: Any = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped in CI: {report.longrepr}"
