"""Waiting for something that a benchmark measures, or needs before it goes on."""

import time
from collections.abc import Callable


def until(holds: Callable[[], bool], *, within_s: float = 600, every_s: float = 0.05) -> float:
    """Poll until something is so; return when that was seen (`time.perf_counter`).

    Raises: TimeoutError.
    """
    deadline = time.perf_counter() + within_s
    while not holds():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(every_s)
    return time.perf_counter()
