"""Kills a process once this one's standard input closes: for servers that cannot do that.

    python -m ottla.testing.guard PID STARTED

Its parent holds the other end of the pipe, so the process ends with its parent, however that one
ends. PID and STARTED are those of `processes.Identity`.
"""

import os
import signal
import sys

from ottla.testing.processes import Identity, send_signal


def main() -> int:
    """Wait, kill, end."""
    process = Identity(int(sys.argv[1]), sys.argv[2])
    # Ctrl-C is for the parent, which may want to stop the process in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 4096):
        pass
    send_signal(process, signal.SIGKILL)
    return 0


if __name__ == "__main__":
    sys.exit(main())
