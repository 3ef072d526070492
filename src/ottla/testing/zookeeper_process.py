"""One ZooKeeper server as a process, from the jars that come with PySpark.

Its administration server, which needs more jars, is off, and so is the fsync of its log: as with
Ottla's own nodes, a killed process loses nothing, a machine without power may.

Source: ZooKeeper 3.9 administrator's guide, "Configuration Parameters" and "The Four Letter Words".
"""

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.testing import processes
from ottla.testing.layout import ClusterError
from ottla.testing.ports import HOST
from ottla.testing.processes import Identity

JARS: Final = ("zookeeper-3", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-")
HEAP_MEGABYTES: Final = 128
TICK_MS: Final = 500
SESSION_TIMEOUT_MS_MIN: Final = 1_000
SESSION_TIMEOUT_MS_MAX: Final = 120_000
"""By default 20 ticks: a client that requests more gets less without an error."""

LOG_FILE: Final = "server.log"
CONFIG_FILE: Final = "zoo.cfg"
DATA_DIR: Final = "data"
ASK_SECONDS: Final = 2.0

ADVICE: Final = (
    "a ZooKeeper server comes with PySpark and needs Java: "
    "pip install 'ottla[spark]' 'ottla[java]', or name a running one"
)


@dataclass(frozen=True, slots=True)
class Member:
    """One server of an ensemble: its number from 1, and its ports."""

    id: int
    client_port: int
    quorum_port: int = 0
    election_port: int = 0


def classpath() -> str:
    """Return the jars that a server needs. Raises: ClusterError where PySpark is not installed."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ClusterError(f"PySpark is not installed; {ADVICE}")
    directory = Path(spec.origin).parent / "jars"
    found: list[str] = []
    for prefix in JARS:
        jars = sorted(directory.glob(f"{prefix}*.jar"))
        if not jars:
            raise ClusterError(f"{directory} has no {prefix}*.jar; {ADVICE}")
        found.append(str(jars[0]))
    return os.pathsep.join(found)


def java() -> str:
    """Return the Java to run it with. Raises: ClusterError where there is none."""
    try:
        from ottla.spark.java import NoJavaError, find_java_home
    except ImportError as error:
        raise ClusterError(f"{error}; {ADVICE}") from None
    try:
        return str(find_java_home() / "bin" / "java")
    except NoJavaError:
        raise ClusterError(f"no Java was found; {ADVICE}") from None


def check_installed() -> None:
    """Raise ClusterError where something is missing that a server needs."""
    classpath()
    java()


def write_config(
    directory: Path, member: Member, ensemble: Sequence[Member], *, purges_logs: bool = True
) -> None:
    """Write a server's configuration; its data directory is kept.

    `purges_logs`: each start, and then each hour, removes transaction logs that the newest three
    snapshots cover.
    """
    data = directory / DATA_DIR
    data.mkdir(parents=True, exist_ok=True)
    properties = {
        "tickTime": TICK_MS,
        "minSessionTimeout": SESSION_TIMEOUT_MS_MIN,
        "maxSessionTimeout": SESSION_TIMEOUT_MS_MAX,
        "dataDir": data,
        "clientPort": member.client_port,
        "clientPortAddress": HOST,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,mntr,cons,ruok",
        "autopurge.purgeInterval": int(purges_logs),
    }
    if len(ensemble) > 1:
        (data / "myid").write_text(f"{member.id}\n", encoding="ascii")
        properties |= {"initLimit": 20, "syncLimit": 10}
        properties |= {
            f"server.{each.id}": f"{HOST}:{each.quorum_port}:{each.election_port}"
            for each in ensemble
        }
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    (directory / CONFIG_FILE).write_text(text, encoding="utf-8")


def spawn(directory: Path, *, is_ensemble: bool, own_session: bool) -> "subprocess.Popen[bytes]":
    """Start the server that is configured in a directory, without waiting for it."""
    main = "quorum.QuorumPeerMain" if is_ensemble else "ZooKeeperServerMain"
    command = [
        java(),
        f"-Xmx{HEAP_MEGABYTES}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dzookeeper.forceSync=no",
        "-Dzookeeper.preAllocSize=1024",
        "-cp",
        classpath(),
        f"org.apache.zookeeper.server.{main}",
        str(directory / CONFIG_FILE),
    ]
    with open(directory / LOG_FILE, "ab") as log:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=directory,
            start_new_session=own_session,
            process_group=None if own_session else 0,
        )


def guard(process: Identity) -> "subprocess.Popen[bytes]":
    """Start a guard that ends a process with this one, or when its standard input closes."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "ottla.testing.guard", str(process.pid), process.started],
        stdin=subprocess.PIPE,
        process_group=0,
    )


def dismiss(guard_process: "subprocess.Popen[bytes]") -> None:
    """End a guard, and its process if that still runs."""
    assert guard_process.stdin is not None
    with suppress(OSError):
        guard_process.stdin.close()
    guard_process.wait()


def ask(port: int, word: str) -> str | None:
    """Return a server's answer to a four letter word; None where it gives none."""
    try:
        with socket.create_connection((HOST, port), timeout=ASK_SECONDS) as connection:
            connection.settimeout(ASK_SECONDS)
            connection.sendall(word.encode())
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return None
    return answer.decode(errors="replace")


def mode_of(port: int) -> str | None:
    """Return standalone, leader or follower; None while the server does not serve.

    Listening and answering ruok are not enough: it does both before it serves.
    """
    for line in (ask(port, "srvr") or "").splitlines():
        if line.startswith("Mode:"):
            return line.removeprefix("Mode:").strip()
    return None


def log_tail(directory: Path) -> str:
    """Return the end of what a server printed."""
    try:
        text = (directory / LOG_FILE).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    return "\n".join(text.splitlines()[-10:]) or f"(nothing in {directory / LOG_FILE})"


def is_alive(process: Identity | None) -> bool:
    """Tell whether a server's process exists, paused ones too."""
    return process is not None and processes.is_alive(process)
