"""The scenario of docs/simulator.md does what is said there.

Method: the page's own code, written to a file and played by the command.
"""

import json
import re
from pathlib import Path

import pytest

from ottla.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"


def example(tmp_path: Path, *changes: tuple[str, str]) -> str:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    code = found[1]
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    file = tmp_path / "leaders.py"
    file.write_text(code, encoding="utf-8")
    return str(file)


def test_the_example_keeps_its_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = example(tmp_path)
    assert main(["sim", "--seed", "1", "--scenario", file, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "true"
    assert report["scenario"] == "leaders die"
    assert report["marks"]["power-lost"] >= 3
    assert report["leader_changes"] >= 3


def test_a_story_that_breaks_promises_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    everybody = (
        "            story.sim.nodes[leader].crash(lose_unflushed=True)\n",
        "            for node in story.sim.nodes.values():\n"
        "                node.crash(lose_unflushed=True)\n"
        "                node.restart()\n",
    )
    copies = ('"min.insync.replicas": "2"', '"min.insync.replicas": "1"')
    file = example(tmp_path, everybody, copies)
    assert main(["sim", "--seed", "1", "--scenario", file]) == 1
    output = capsys.readouterr().out
    assert "violation: acknowledged write lost" in output
    assert f"replay    ottla sim --seed 1 --scenario {file}" in output
