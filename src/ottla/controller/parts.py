"""Large requests are split into parts, each of which one step decides."""

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

P = TypeVar("P")


def in_parts(
    wanted: Sequence[P],
    name: Callable[[P], Hashable],
    size_max: int,
    size: Callable[[P], int] = lambda _: 1,
) -> list[tuple[P, ...]]:
    """Split a request into parts, in order of the first occurrence of each name; at least one part.

    Equal names stay together, so that one decision sees the duplicates. A part ends with the
    name with which it reaches `size_max`, counted by `size` and by names.
    """
    by_name: dict[Hashable, list[P]] = {}
    for each in wanted:
        by_name.setdefault(name(each), []).append(each)
    parts: list[tuple[P, ...]] = []
    part: list[P] = []
    names = total = 0
    for alike in by_name.values():
        if names >= size_max or total >= size_max:
            parts.append(tuple(part))
            part = []
            names = total = 0
        part += alike
        names += 1
        total += size(alike[0])
    return [*parts, tuple(part)]
