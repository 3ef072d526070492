"""Every message of docs/operations.md is logged by the code, at the level that the page says."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVENT = "log_event"
"""By which the group coordinator, which logs nothing itself, has a line logged at level INFO."""
ROW = re.compile(r"\| (?P<level>[A-Z]+) \| `(?P<message>[^`]+)` \|")
LEVELS = {
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
    "critical": "CRITICAL",
}


def documented() -> list[tuple[str, str]]:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    return [(row["level"], row["message"]) for row in ROW.finditer(page)]


def logged(source: str) -> Iterator[tuple[str, str]]:
    """Yield level and text of each log call, with … for each argument."""
    if not any(f".{method}(" in source for method in (*LEVELS, EVENT)):
        return  # Most files log nothing; to parse all would take seconds.
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr=method), args=[ast.Constant(value=str(text)), *_]
            ) if method in LEVELS:
                yield LEVELS[method], re.sub(r"0x%x|%[sd]", "…", text)
            case ast.Call(
                func=ast.Attribute(attr=attribute), args=[ast.JoinedStr(values=parts)]
            ) if attribute == EVENT:
                texts = (part.value if isinstance(part, ast.Constant) else "…" for part in parts)
                yield "INFO", "".join(map(str, texts))


@pytest.fixture(scope="module")
def messages() -> set[tuple[str, str]]:
    files = (ROOT / "src" / "ottla").rglob("*.py")
    return {each for file in files for each in logged(file.read_text(encoding="utf-8"))}


def test_the_page_lists_messages() -> None:
    assert len(documented()) > 40
    assert len(set(documented())) == len(documented())


@pytest.mark.parametrize(("level", "message"), documented())
def test_a_listed_message_is_logged(
    level: str, message: str, messages: set[tuple[str, str]]
) -> None:
    found = [text for at, text in messages if at == level and text.startswith(message)]
    assert found, f"no call logs {message!r} at level {level}"
