"""`make demo` does what the README says: every answer checked, nothing left behind."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from ..drawn import FAULT_ROUNDS

FORMS = [
    pytest.param([], id="short"),
    # It waits twice until no late write to the object store is possible any more.
    pytest.param(["--full"], id="full", marks=pytest.mark.soak(FAULT_ROUNDS)),
]


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.timeout(600)
@pytest.mark.parametrize("options", FORMS)
def test_the_demo_agrees_with_the_source_file_and_leaves_nothing(
    options: list[str], tmp_path: Path
) -> None:
    chart = tmp_path / "chart.png"
    ran = subprocess.run(
        [sys.executable, "-m", "ottla.cli", "demo", "--chart", str(chart), *options],
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
        "records that can be read while it is off: 336,776",
        "partitions that begin with their local records: 6",
        "Every result agrees with the source file.",
    ):
        assert line in ran.stdout
    assert ran.stdout.count("No findings in 6 partitions of 1 topic") == 2
    signed = ran.stdout.count("Signed off: flights")
    assert signed == (2 if options else 0)
    assert chart.read_bytes().startswith(b"\x89PNG")
    assert not list(tmp_path.glob("ottla-demo-*")), "the data directory is removed"
    left = [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if any(str(tmp_path) in word for word in process.info["cmdline"] or ())
    ]
    assert left == [], "no node is left running"
