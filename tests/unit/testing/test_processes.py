"""Processes are told apart from others of the same pid, and are gone only when wholly gone.

Method: real child processes, each ended by the test.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from ottla.testing import processes
from ottla.testing.processes import Facts, Identity

Spawn = Callable[[str], "subprocess.Popen[bytes]"]

SLEEP = "import time; print(flush=True); time.sleep(60)"
FIRST_THREAD_ENDS = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    children: list[subprocess.Popen[bytes]] = []

    def start(code: str) -> "subprocess.Popen[bytes]":
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        children.append(child)
        assert child.stdout is not None
        child.stdout.readline()
        return child

    yield start
    for child in children:
        child.kill()
        with child:  # Closes its pipes and collects it.
            pass


def test_a_living_process_is_alive_and_a_killed_one_is_gone(spawn: Spawn) -> None:
    child = spawn(SLEEP)
    identity = processes.identify(child.pid)
    assert processes.is_alive(identity)
    child.kill()
    assert processes.wait_until_gone(identity, 10)
    assert child.poll() is not None
    assert not processes.is_alive(identity)


def test_another_process_of_the_same_pid_is_not_it(spawn: Spawn) -> None:
    child = spawn(SLEEP)
    assert not processes.is_alive(Identity(child.pid, "at another time"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a first thread end alone")
def test_a_process_is_alive_until_its_last_thread_ends(spawn: Spawn) -> None:
    """Or a node would count as stopped while it still holds its ports and its directory's lock."""
    child = spawn(FIRST_THREAD_ENDS)
    identity = processes.identify(child.pid)
    while (facts := processes.look(child.pid)) is not None and facts.state != "Z":
        pass
    assert child.poll() is None
    assert processes.is_alive(identity)
    assert child.stdin is not None
    child.stdin.close()
    assert processes.wait_until_gone(identity, 10)
    assert child.poll() == 0


@pytest.mark.parametrize(
    ("state", "threads", "ended"),
    [("R", 1, False), ("S", 4, False), ("T", 1, False), ("Z", 2, False), ("Z", 1, True)],
)
def test_what_has_ended(state: str, threads: int, ended: bool) -> None:
    assert Facts(started="then", state=state, threads=threads).has_ended == ended
