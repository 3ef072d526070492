"""Every test that docs/tiered-scenarios.md names exists, and no row is without a test."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tiered-scenarios.md"
ROW = re.compile(r"^\| (?P<name>[^|-][^|]*) \| [^|]+ \| (?P<tests>[^|]+) \|$", re.MULTILINE)
TEST = re.compile(r"`(?P<path>[^`]+)::(?P<name>[^`]+)`")
ROWS_MIN = 110


def rows() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the rows of the page, and the path and name of each test that they name."""
    page = PAGE.read_text(encoding="utf-8")
    return [
        (row["name"], [(test["path"], test["name"]) for test in TEST.finditer(row["tests"])])
        for row in ROW.finditer(page)
        if not row["tests"].startswith("Test, or why")
    ]


@cache
def functions_of(path: str) -> frozenset[str]:
    """Return the names of a file's tests."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def test_the_page_has_all_rows() -> None:
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    assert len(rows()) >= ROWS_MIN
    headings = [line for line in lines if "| Test, or why" in line]
    assert len(rows()) == len(lines) - len(headings)


@pytest.mark.parametrize(("row", "tests"), rows(), ids=lambda value: str(value)[:40])
def test_the_tests_of_a_row_exist(row: str, tests: list[tuple[str, str]]) -> None:
    assert tests, f"{row}: no test"
    for path, name in tests:
        assert name in functions_of(path), f"{row}: {path}::{name} does not exist"
