"""Every name that a package exports in its `__all__` exists; ruff checks only modules for it."""

from importlib import import_module
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
PACKAGES = [
    ".".join(path.parent.relative_to(SRC).parts)
    for path in sorted(SRC.rglob("__init__.py"))
    if "__all__" in path.read_text()
]


@pytest.mark.parametrize("name", PACKAGES)
def test_exported_names_exist(name: str) -> None:
    package = import_module(name)
    assert [each for each in package.__all__ if not hasattr(package, each)] == []


def test_there_are_packages_that_export_names() -> None:
    assert "ottla.metadata.records" in PACKAGES
