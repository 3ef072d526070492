"""Nodes as forks of one process: what `ottla` gets, its end, and the loss of that process.

Method: commands that end at once, in place of `ottla server`; the cluster tests start nodes.
"""

import os
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from ottla.testing.layout import ClusterError
from ottla.testing.node_forks import ForkedNode, ForkServer, can_fork
from ottla.testing.processes import identify, wait_until_gone

pytestmark = pytest.mark.skipif(not can_fork(), reason="no forks on this system")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


def ended(node: ForkedNode) -> int:
    """Return its exit code, once it has one."""
    deadline = time.monotonic() + 60
    while (code := node.poll()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert node.stdin is not None
    node.stdin.close()
    return code


def run(server: ForkServer, directory: Path, *arguments: str) -> tuple[int, str]:
    """Run `ottla` in a directory; return its exit code and what it printed, errors too."""
    with open(directory / "output", "wb") as output:
        node = server.start(arguments, directory=directory, output=output)
    return ended(node), (directory / "output").read_text()


def test_it_runs_the_command_and_knows_its_exit_code(server: ForkServer, tmp_path: Path) -> None:
    code, text = run(server, tmp_path, "--version")
    assert (code, text.split()[0]) == (0, "ottla")
    code, text = run(server, tmp_path, "nothing")
    assert code == 2
    assert "there is no command 'nothing'" in text


def test_the_working_directory(server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "node.properties").write_text("nonsense=1\n")
    code, text = run(server, tmp_path, "server", "node.properties")
    assert code == 1
    assert "node.properties: nonsense" in text


def test_the_environment_is_that_of_the_start(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal of a profile names the file that the environment does."""
    words = ("tier", "restore", "--list", "--remote-storage", "s3://bucket?profile=none")
    for name in ("first", "second"):
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"/{name}")
        code, text = run(server, tmp_path, *words)
        assert code != 0
        assert f"in /{name} or" in text


def test_limits_and_cores_are_those_of_the_start(server: ForkServer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "node.properties")  # Which the node waits to read.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    cores = os.sched_getaffinity(0)
    with open(tmp_path / "output", "wb") as output, ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, cores)
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        os.sched_setaffinity(0, {min(cores)})
        node = server.start(["server", "node.properties"], directory=tmp_path, output=output)
    process = psutil.Process(node.pid)
    # It opens its file after it has set them, and waits for its content.
    with open(tmp_path / "node.properties", "w") as file:
        assert process.rlimit(psutil.RLIMIT_NOFILE) == (soft - 1, hard)
        assert process.cpu_affinity() == [min(cores)]
        file.write("nonsense=1\n")
    assert ended(node) == 1


def test_a_killed_one_is_alone_in_its_process_group(server: ForkServer, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "node.properties")  # Which the node waits to read.
    with open(tmp_path / "output", "wb") as output:
        node = server.start(["server", "node.properties"], directory=tmp_path, output=output)
    assert os.getpgid(node.pid) == node.pid
    assert node.poll() is None
    os.kill(node.pid, signal.SIGKILL)
    assert ended(node) == -signal.SIGKILL


def test_unknown_processes_have_no_exit_code(server: ForkServer) -> None:
    assert server.collect(os.getpid()) is None


def test_an_environment_that_is_too_large_is_refused(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LARGE", "x" * 130_000)
    with pytest.raises(ClusterError, match=r"the environment has \d+ bytes: expected at most"):
        run(server, tmp_path, "--version")


def test_the_next_start_after_its_loss_gets_a_new_one(tmp_path: Path) -> None:
    server = ForkServer()
    run(server, tmp_path, "--version")
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGKILL)
    wait_until_gone(identify(server.process.pid), 10)
    with pytest.raises(ClusterError, match="the process that starts nodes"):
        run(server, tmp_path, "--version")
    assert run(server, tmp_path, "--version")[0] == 0
    server.close()
    assert server.process is None
