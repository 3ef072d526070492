"""`make soak` plays all that `make test` plays a part of.

Method: the commands that make would run are read; each file that draws must be named in one, or its
directory.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRAWS = re.compile(
    r"mark\.(forms|drawn|soak)\(|drawn_seeds\(|\b(FAULT_ROUNDS|SIM_STORIES|SIM_VARIANTS)\b"
    r"|\bOTTLA_[A-Z_]*(STEPS|ROUNDS|SEEDS)\b|max_examples=examples"
)


def commands() -> list[list[str]]:
    """Return the commands of pytest in `make soak`, as words."""
    # Whatever the state of .venv, a dry run builds nothing.
    asked = subprocess.run(
        ["make", "-n", "-C", str(ROOT), "soak"],
        capture_output=True,
        text=True,
        check=True,
        # Not as a part of the make that runs these tests.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )
    return [line.split() for line in asked.stdout.splitlines() if "-m pytest" in line]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_every_file_that_draws_is_played_whole() -> None:
    played = {Path(word) for words in commands() for word in words if word.startswith("tests/")}
    drawing = [
        path.relative_to(ROOT)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if DRAWS.search(path.read_text(encoding="utf-8")) and path != Path(__file__)
    ]
    assert len(drawing) > 80
    missing = [path for path in drawing if not {path, *path.parents} & played]
    assert missing == []
