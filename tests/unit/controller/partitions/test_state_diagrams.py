"""The page of state diagrams is what the tables say now.

Method: the tool that writes the page is run, and its diagrams are read back into tables.
"""

import importlib.util
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from ottla.controller.partitions import partition_states, replica_states
from ottla.controller.tiering_states import BY_ACKNOWLEDGEMENT, BY_CONFIGURATION, Standing

ROOT = Path(__file__).resolve().parents[4]


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("diagrams", ROOT / "tools" / "diagrams.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_current() -> None:
    assert tool().main(["--check"]) == 0, "run python tools/diagrams.py"


@pytest.mark.parametrize(
    ("number", "previous"),
    [(0, partition_states.PREVIOUS), (1, replica_states.PREVIOUS)],
    ids=["partitions", "replicas"],
)
def test_the_diagrams_hold_every_transition_and_no_other(
    number: int, previous: dict[Any, frozenset[Any]]
) -> None:
    page = (ROOT / "docs" / "state-machines.md").read_text(encoding="utf-8")
    diagrams = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", page, re.DOTALL)
    assert len(diagrams) == 3
    drawn = re.findall(r"^ {4}(\w+) --> (\w+)$", diagrams[number], re.MULTILINE)
    assert len(drawn) == len(diagrams[number].splitlines())
    legal = {(a.kafka_name, b.kafka_name) for b, sources in previous.items() for a in sources}
    assert set(drawn) == legal
    assert len(drawn) == len(legal)


def test_the_diagram_of_remote_storage_holds_every_transition_and_no_other() -> None:
    page = (ROOT / "docs" / "state-machines.md").read_text(encoding="utf-8")
    diagram = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", page, re.DOTALL)[2]
    drawn = re.findall(r"^ {4}(\w+) --> (\w+): (\w+)$", diagram, re.MULTILINE)
    assert len(drawn) == len(diagram.splitlines())
    legal = {
        (source.value, target.value, asked.value)
        for source, row in BY_CONFIGURATION.items()
        for asked, target in row.items()
        if isinstance(target, Standing) and target is not source
    } | {(a.value, b.value, "acknowledged") for a, b in BY_ACKNOWLEDGEMENT.items()}
    assert set(drawn) == legal
    assert len(drawn) == len(legal)


def test_an_outdated_page_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    diagrams = tool()
    monkeypatch.setattr(diagrams, "PAGE", tmp_path / "page.md")
    assert diagrams.main(["--check"]) == 1
    assert "python tools/diagrams.py" in capsys.readouterr().err
    assert diagrams.main([]) == 0
    assert diagrams.main(["--check"]) == 0
    assert diagrams.main(["--else"]) == 2


def test_a_state_without_a_description_stops_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    diagrams = tool()
    some: dict[Enum, object] = dict(list(diagrams.REPLICA_WORK.items())[1:])
    monkeypatch.setattr(diagrams, "REPLICA_WORK", some)
    with pytest.raises(AssertionError, match="Replicas"):
        diagrams.page()
