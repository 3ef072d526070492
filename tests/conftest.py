"""Rules for all tests: what shares a worker, that nothing is skipped unseen in CI, and that no
property fails because the machine is busy."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.drawn import FAULT_ROUNDS, drawn

settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

SPARK = "tests/spark"
SIMULATOR = "tests/sim"

LONGEST = (
    "tests/cluster/test_tiered_storage.py",
    "tests/cluster/test_tiered_off.py",
    "tests/cluster/test_tiered_deletion.py",
    "tests/cluster/test_slow_store.py",
    "tests/cluster/test_cli_local.py",
    "tests/cluster/zookeeper/test_local_clusters.py",
    "tests/cluster/zookeeper/test_tiered_storage.py",
    "tests/cluster/test_tiered_followers.py",
    "tests/cluster/test_restore.py",
    "tests/cluster/zookeeper/test_ensemble_faults.py",
    "tests/cluster/test_replication.py",
    "tests/cluster/zookeeper/test_zombies.py",
    "tests/cluster/test_faults.py",
    "tests/cluster/test_rolling_restart.py",
    "tests/cluster/test_replicated_compaction.py",
    "tests/cluster/test_lost_disks.py",
)
"""Files that are begun first, so that no worker is left alone with one of them at the end."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only soaks play, unless a test was named."""
    if not any("::" in argument for argument in config.args):
        out = [item for item in items if is_left_to_soaks(item)] + forms_left_out(items)
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


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


class FileScheduling(LoadScopeScheduling):
    """Keeps a file in one worker, since its tests share clusters; all of Spark, which starts once.

    Simulated clusters are each test's own, so these tests go to any worker, last. xdist's own
    `loadgroup` sets the groups in a way that pytest 9 does not see.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        if path.startswith(f"{SPARK}/"):
            return SPARK
        return nodeid if path.startswith(f"{SIMULATOR}/") else path

    def _assign_work_unit(self, node: WorkerController) -> None:
        for path in LONGEST:
            if path in self.workqueue:
                self.workqueue.move_to_end(path, last=False)
                break
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """Distribute by file, and Spark as a whole, with `--dist loadgroup`."""
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
