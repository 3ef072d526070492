"""TCP ports of this machine: which are free, and which process holds one."""

import os
import random
import socket
import tempfile
import time
from contextlib import suppress
from pathlib import Path

HOST = "127.0.0.1"

FIRST_PORT = 15_000
LAST_PORT = 32_000
"""Below the range that Linux gives to outgoing connections, which could take a port away
between the moment it is found free and the moment a node binds it."""

RESERVED_S = 60
"""How long a port that was found free is reserved: a server binds it by then."""

COMMAND_LENGTH_MAX = 83

_LISTENING = "0A"


def is_free(port: int, host: str = HOST) -> bool:
    """Tell whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def accepts(port: int, host: str = HOST, timeout: float = 0.3) -> bool:
    """Tell whether a server accepts connections on the port."""
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that are free and not reserved.

    Two clusters that start at once, as tests do, would else find the same port free.
    """
    found: list[int] = []
    candidates = list(range(FIRST_PORT, LAST_PORT))
    random.SystemRandom().shuffle(candidates)
    for port in candidates:
        if len(found) == count:
            break
        if is_free(port) and _reserve(port):
            found.append(port)
    return sorted(found)


def _reserve(port: int) -> bool:
    """Reserve a port among the processes of this user; tell whether it was not reserved."""
    directory = Path(tempfile.gettempdir()) / f"ottla-ports-{os.getuid()}"
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
        path = directory / str(port)
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime >= RESERVED_S:
                path.unlink()
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True  # It cannot be reserved: take it without.
    return True


def holder(port: int) -> str | None:
    """Name the process that listens on a port, as `command (pid 1)`; None = not known.

    Known only on Linux, and for other users' processes only to root.
    """
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and not sockets.isdisjoint(_open_files(process)):
            try:
                command = (process / "cmdline").read_bytes()
            except OSError:
                continue
            words = command.replace(b"\0", b" ").decode(errors="replace").strip()
            return f"{shorten(words)} (pid {process.name})"
    return None


def _open_files(process: Path) -> set[str]:
    """Return what a process's descriptors point to, as far as it can be seen."""
    found: set[str] = set()
    try:
        descriptors = os.listdir(process / "fd")
    except OSError:
        return found
    for descriptor in descriptors:
        with suppress(OSError):  # Closed since.
            found.add(os.readlink(process / "fd" / descriptor))
    return found


def shorten(command: str) -> str:
    """Return a command without the path of its program, and without its middle if it is long."""
    program, blank, arguments = command.partition(" ")
    text = program.rpartition("/")[2] + blank + arguments
    if len(text) <= COMMAND_LENGTH_MAX:
        return text
    half = (COMMAND_LENGTH_MAX - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def _listening_inodes(port: int) -> set[str]:
    inodes: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            local, state, inode = fields[1], fields[3], fields[9]
            if state == _LISTENING and int(local.rpartition(":")[2], 16) == port:
                inodes.add(inode)
    return inodes
