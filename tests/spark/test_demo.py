"""`make demo` does what the README says: every answer checked, nothing left behind."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_the_demo_agrees_with_the_source_file_and_leaves_nothing(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "ottla.cli", "demo"],
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    for line in (
        "acknowledged records: 336,776",
        "records read: 336,776",
        "records after the restart: 336,776",
        "flights that Spark counted: 336,776",
        "Every result agrees with the source file.",
    ):
        assert line in ran.stdout
    assert not list(tmp_path.glob("ottla-demo-*")), "the data directory is removed"
    left = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if any(str(tmp_path) in word for word in process.info["cmdline"] or ())
    ]
    assert left == [], "no node is left running"
