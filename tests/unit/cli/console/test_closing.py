"""A consumer that cannot be closed keeps no command from its end.

Method: a consumer that is made up, whose `close` ends when the test says.
"""

import subprocess
import sys
import threading

import pytest

from ottla.cli.console import closing


class Closing:
    """A consumer whose `close` ends as the test says."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.may_end = threading.Event()
        self._failure = failure

    def close(self) -> None:
        self.may_end.wait()
        if self._failure is not None:
            raise self._failure


def test_a_close_that_does_not_end_is_left_alone() -> None:
    consumer = Closing()
    assert not closing.is_closed(consumer, within=0.0)
    consumer.may_end.set()
    assert closing.is_closed(consumer)


def test_a_close_that_fails_has_ended() -> None:
    consumer = Closing(ValueError("nothing to close"))
    consumer.may_end.set()
    with pytest.raises(ValueError, match="nothing to close"):
        closing.is_closed(consumer)


def test_a_client_that_is_left_open_prints_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    consumer = Closing()
    closing.close(consumer, within=0.0)
    assert "did not close within 0 s" in capsys.readouterr().err
    consumer.may_end.set()
    closing.close(consumer)
    assert capsys.readouterr().err == ""


def test_a_process_ends_with_its_own_exit_code_all_the_same() -> None:
    script = """
import sys, threading
from ottla.cli.console.closing import close
class Locked:
    def close(self):
        threading.Event().wait()
close(Locked(), within=0.0)
sys.exit(3)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert ended.returncode == 3, ended.stderr.decode()
