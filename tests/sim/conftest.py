"""Simulated clusters have virtual time only: they can run beside other tests."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
ALONE = "test_seeds"
"""Plays in as many processes as there are cores."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs beside others."""
    for item in items:
        if item.path.parent == FOLDER and item.path.stem != ALONE:
            item.add_marker(pytest.mark.beside)
