"""Process identities that survive pid reuse.

An identity is a pid and its process's start time, from the operating system. Signals go through a
pidfd where available (Linux 5.3), which avoids a race between the check and the signal.
"""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Identity:
    """One process: `started` is opaque and differs between two processes of one pid."""

    pid: int
    started: str


@dataclass(frozen=True, slots=True)
class Facts:
    """The current state of a pid, from the operating system."""

    started: str
    state: str
    """The letter that `ps` shows: R, S, D run; T is stopped by a signal; Z has ended."""
    threads: int = 1

    @property
    def has_ended(self) -> bool:
        """Tell whether nothing of the process runs any more.

        A first thread that has ended shows as Z while others still do: until they are gone too,
        the process holds its ports and locks, and its parent cannot collect its exit code.
        """
        return self.state in "ZX" and self.threads <= 1


def look(pid: int) -> Facts | None:
    """Return the facts of a pid, or None where no process has it."""
    if os.path.isdir("/proc/self"):
        return _look_in_proc(pid)
    return _look_with_ps(pid)


def identify(pid: int) -> Identity:
    """Return the identity of a living process; raise ProcessLookupError where there is none."""
    facts = look(pid)
    if facts is None:
        raise ProcessLookupError(f"no process has the pid {pid}")
    return Identity(pid, facts.started)


def is_alive(identity: Identity) -> bool:
    """Tell whether this very process still runs (or is paused)."""
    facts = look(identity.pid)
    return facts is not None and facts.started == identity.started and not facts.has_ended


def is_paused(identity: Identity) -> bool:
    """Tell whether the process is stopped by SIGSTOP or by a debugger."""
    facts = look(identity.pid)
    return facts is not None and facts.started == identity.started and facts.state in "Tt"


def send_signal(identity: Identity, number: signal.Signals) -> bool:
    """Signal the process; return False where it is gone, whoever has its pid now."""
    if not hasattr(os, "pidfd_open"):
        return is_alive(identity) and _kill(identity.pid, number)
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    except OSError:  # A kernel or a sandbox without pidfds.
        return is_alive(identity) and _kill(identity.pid, number)
    try:
        if not is_alive(identity):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_until_gone(identity: Identity, timeout: float) -> bool:
    """Wait up to `timeout` seconds for the end of the process; tell whether it came."""
    deadline = time.monotonic() + timeout
    while is_alive(identity):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _kill(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def _look_in_proc(pid: int) -> Facts | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    # The command's name is in parentheses and may hold spaces and parentheses itself.
    fields = text[text.rindex(")") + 1 :].split()
    # Start times count from the boot, so a marker of an earlier boot must not fit by chance.
    return Facts(started=f"{_boot_id()}:{fields[19]}", state=fields[0], threads=int(fields[17]))


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


def _look_with_ps(pid: int) -> Facts | None:
    shown = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    state, _, started = shown.stdout.strip().partition(" ")
    return Facts(started=started.strip(), state=state[0]) if started else None
