"""Which ports are free, and which process holds one."""

import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest

from ottla.testing import ports
from ottla.testing.ports import (
    COMMAND_LENGTH_MAX,
    FIRST_PORT,
    LAST_PORT,
    accepts,
    free_ports,
    holder,
    is_free,
    shorten,
)


def test_free_ports_are_free_and_differ() -> None:
    found = free_ports(5)
    assert len(set(found)) == 5
    assert all(FIRST_PORT <= port < LAST_PORT for port in found)
    assert all(map(is_free, found))
    assert not any(map(accepts, found))


def test_a_port_that_was_given_is_not_given_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ports, "LAST_PORT", FIRST_PORT + 20)
    first = free_ports(5)
    assert set(free_ports(5)).isdisjoint(first)
    (directory,) = tmp_path.iterdir()
    for path in directory.iterdir():
        os.utime(path, (0, 0))  # Long ago.
    assert len(free_ports(15)) == 15


def test_a_port_that_is_listened_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port)
        assert accepts(port)


@pytest.mark.skipif(sys.platform != "linux", reason="the holder is known only on Linux")
def test_the_holder_of_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = holder(port)
        assert found is not None
        assert found.endswith(f" (pid {os.getpid()})")
    assert holder(port) is None


def test_long_commands_lose_their_middle() -> None:
    assert shorten("/usr/bin/python3 -m x") == "python3 -m x"
    text = shorten("/usr/bin/python3 " + "x" * 500 + " end")
    assert len(text) == COMMAND_LENGTH_MAX
    assert text.startswith("python3 x")
    assert text.endswith("x end")
