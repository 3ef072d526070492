"""Rules for all tests: what shares a worker, that nothing is skipped unseen in CI, and that no
property fails because the machine is busy."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.drawn import FAULT_ROUNDS, drawn

settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

SPARK = "tests/spark"


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

    xdist's own `loadgroup` sets the groups in a way that pytest 9 does not see.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        return SPARK if path.startswith(f"{SPARK}/") else path


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
