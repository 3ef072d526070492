"""Rules for all tests: what shares a worker, that nothing is skipped unseen in CI, and that no
property fails because the machine is busy."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

FOLDER = Path(__file__).parent
SPARK = FOLDER / "spark"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only soaks play, unless a test was named; keep each file in one worker.

    With `--dist loadgroup` that is so, and all of Spark is in one, which starts once.
    """
    if not any("::" in argument for argument in config.args):
        out = [item for item in items if is_left_to_soaks(item)]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
    markers: dict[Path, pytest.MarkDecorator] = {}
    for item in items:
        path = item.path
        if path not in markers:
            place = SPARK if path.is_relative_to(SPARK) else path
            markers[path] = pytest.mark.xdist_group(str(place.relative_to(FOLDER)))
        item.add_marker(markers[path])


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
