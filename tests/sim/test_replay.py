"""A seed replays the same history: in another process, under another hash seed of Python.

Method: the command itself, twice; the digest covers every frame and the clients' results.
"""

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest


@cache
def played(seed: int, hash_seed: str) -> dict[str, Any]:
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "ottla.cli",
            "sim",
            "--seed",
            str(seed),
            "--seconds",
            "10",
            "--json",
        ],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    report: dict[str, Any] = json.loads(ran.stdout)
    del report["wall_seconds"]
    return report


@pytest.mark.forms(1)
@pytest.mark.parametrize("seed", [3, 7])
def test_a_seed_replays_the_same_history(seed: int) -> None:
    first = played(seed, "1")
    assert first == played(seed, "2")
    assert first["acknowledged"] > 20


def test_another_seed_plays_another_history() -> None:
    assert played(3, "1")["digest"] != played(7, "1")["digest"]
