"""Calls a function in several processes, and gives the results in order."""

import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import active_children, get_context
from typing import Final, TypeVar

A = TypeVar("A")
R = TypeVar("R")

AHEAD: Final = 8
"""Calls for each process that have begun, or wait to, while the first result is not there."""


def in_processes(
    function: Callable[[A], R], items: Iterable[A], *, workers: int
) -> Generator[R, None, None]:
    """Yield the function's result for each item.

    Whoever stops in the middle, with Ctrl-C say, does not wait for calls that run: their processes
    are killed.
    """
    others = active_children()
    with _pool(workers) as pool:
        try:
            yield from _in_order(pool, function, items, most=AHEAD * workers)
        except BaseException:
            for process in active_children():
                if process not in others:
                    process.kill()
            raise


def _pool(workers: int) -> ProcessPoolExecutor:
    # Spawned, so that a process inherits nothing but the arguments. Ctrl-C reaches all processes
    # of a terminal: those of the pool leave it to the one that has them.
    return ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )


def _in_order(
    pool: ProcessPoolExecutor, function: Callable[[A], R], items: Iterable[A], *, most: int
) -> Iterator[R]:
    waiting: deque[Future[R]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) == most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
