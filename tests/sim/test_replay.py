"""A seed tells the same history again: in another process, under another hash seed of Python.

Method: the command itself, twice; the digest sums up every frame and all that clients were told.
"""

import json
import os
import subprocess
import sys
from typing import Any

import pytest


def told(seed: int, hash_seed: str) -> dict[str, Any]:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "ottla.cli",
            "sim",
            "--seed",
            str(seed),
            "--seconds",
            "20",
            "--json",
        ],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(ran.stdout)
    del report["wall_seconds"]
    return report


@pytest.mark.parametrize("seed", [2, 9])
def test_a_seed_tells_the_same_history_again(seed: int) -> None:
    first = told(seed, "1")
    assert first == told(seed, "2")
    assert first["acknowledged"] > 50


def test_another_seed_tells_another_history() -> None:
    assert told(2, "1")["digest"] != told(3, "1")["digest"]
