"""Calls in several processes: results in order, errors of a process, and no wait for the rest."""

import os
import signal
import time
from concurrent.futures.process import BrokenProcessPool
from itertools import count
from multiprocessing import active_children
from pathlib import Path

import pytest

from ottla.testing.scenarios.processes import in_processes


def later_if_even(number: int) -> tuple[int, int]:
    time.sleep(0 if number % 2 else 0.05)
    return number, os.getpid()


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def note_and_hang(path: Path) -> None:
    if path.exists():
        return
    path.write_text(str(os.getpid()))
    signal.pause()


def test_results_are_in_order_from_several_processes() -> None:
    results = list(in_processes(later_if_even, range(40), workers=2))
    assert [number for number, _ in results] == list(range(40))
    processes = {process for _, process in results}
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_a_process_that_dies_is_an_error() -> None:
    with pytest.raises(BrokenProcessPool):
        list(in_processes(die, range(3), workers=2))


def test_who_stops_does_not_wait_for_calls_that_hang(tmp_path: Path) -> None:
    answered, hanging = tmp_path / "answered", tmp_path / "hanging"
    answered.touch()
    results = in_processes(note_and_hang, [answered, hanging], workers=2)
    next(results)
    while not hanging.exists() or not hanging.read_text():
        time.sleep(0.01)
    results.close()
    assert not active_children()
    with pytest.raises(ProcessLookupError):
        os.kill(int(hanging.read_text()), 0)


def test_items_are_taken_only_as_far_as_they_are_needed() -> None:
    results = in_processes(later_if_even, count(), workers=2)
    assert [next(results)[0] for _ in range(20)] == list(range(20))
    results.close()
