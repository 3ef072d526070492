"""A run that is alive must be distinguished from one that is dead.

Method: the object that a driver rewrites, with content of this process, of one that has ended, and
of another machine; a short patience.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.spark.jobs import heartbeat
from ottla.spark.jobs.heartbeat import Heartbeat, RunningError, check_not_running
from ottla.spark.jobs.target_store import TargetStore

NAME = "_ottla/alive"


def check(store: TargetStore, lines: list[str], patience_s: float = 0.5) -> None:
    check_not_running(store, NAME, "the export", patience_s=patience_s, report=lines.append)


def until_rewritten(path: Path) -> Callable[[float], None]:
    """Return a pause that ends when the file is rewritten."""

    def pause(seconds: float) -> None:
        first = path.read_bytes()
        until = time.monotonic() + 60
        while path.read_bytes() == first:
            assert time.monotonic() < until, "the heartbeat is not rewritten"
            time.sleep(0.01)

    return pause


def test_one_that_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL_S", 0.02)
    lines: list[str] = []
    with TargetStore(str(tmp_path)) as store:
        check(store, lines)
        assert lines == []
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        with Heartbeat(str(tmp_path), NAME, 5):
            monkeypatch.setattr(heartbeat, "_has_died", lambda content: False)
            monkeypatch.setattr(heartbeat, "PAUSE", until_rewritten(tmp_path / NAME))
            with pytest.raises(RunningError, match="the export is under way, by process"):
                check(store, lines, 5)
        monkeypatch.setattr(heartbeat, "PAUSE", lambda seconds: None)
        check(store, lines, 0)
    pid = os.getpid()
    assert lines[0] == (
        f"the export of process {pid} on elsewhere has not ended: waiting 5 s for a sign of it"
    )
    assert not [each for each in threading.enumerate() if each.name == "job-heartbeat"]


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_processes_of_this_machine_are_looked_up(tmp_path: Path) -> None:
    host = socket.gethostname()
    lines: list[str] = []
    with TargetStore(str(tmp_path)) as store:
        for content in (f"{host} {ended_pid()} 7", f"{host} {os.getpid()} 7"):
            store.put(NAME, content.encode())
            check(store, lines, 100)
        assert lines == []
        for content in (f"{host} {os.getppid()} 7", f"other {ended_pid()} 7", "damaged", ""):
            store.put(NAME, content.encode())
            check(store, lines, 0)
        assert len(lines) == 4
        assert lines[2].startswith("the export of process ? on damaged has not ended")
