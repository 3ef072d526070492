"""The documentation names files that exist: modules move, and pages that list them must follow."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
FILES = {
    f"/{path.relative_to(ROOT).as_posix()}"
    for top in ("src", "tests", "tools", "benches")
    for path in (ROOT / top).rglob("*.py")
}
MODULE = re.compile(r"`([a-z_0-9/.]+\.py)`")
WRITTEN_BY_READERS = {"leaders.py"}
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_exist(page: Path) -> None:
    named = set(MODULE.findall(page.read_text())) - WRITTEN_BY_READERS
    assert {name for name in named if not any(f.endswith(f"/{name}") for f in FILES)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    targets = LINK.findall(page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_each_guarantee_has_its_tests() -> None:
    readme = (ROOT / "README.md").read_text()
    section = readme.partition("\n## Guarantees\n")[2].partition("\n## ")[0]
    promised = re.findall(r"^- \*\*(.+?)\*\*", section, re.MULTILINE)
    page = (ROOT / "docs" / "guarantees.md").read_text()
    shown = re.findall(r"^\| ([^|]+) \| [^|]*`[a-z_0-9/]+\.py`", page, re.MULTILINE)
    assert promised
    assert shown == promised
