"""Which manifests must be there at the end of a history."""

from collections.abc import Iterable

import pytest

from ottla.base.ids import Uuid
from ottla.testing.scenarios.tier_logs import holes_in
from ottla.tiered.manifest import BASE_EVERY, Manifest


def manifest(sequence: int, term_bases: Iterable[int] = ()) -> Manifest:
    return Manifest(
        topic="orders",
        topic_id=Uuid(bytes(16)),
        partition=0,
        sequence=sequence,
        leader_epoch=0,
        tiered_epoch=1,
        floor=0,
        log_start_offset=0,
        epochs=(),
        is_base=sequence % BASE_EVERY == 0 or sequence in term_bases,
    )


@pytest.mark.parametrize(
    ("numbers", "term_bases", "holes"),
    [
        ((), (), ()),
        ((0, 1, 2), (), ()),
        ((0, 2, 5), (), (1, 3, 4)),
        (range(1, 200), (), (0,)),
        # Those before the last base but one are removed, or are about to be.
        (range(100, 201), (), ()),
        (range(201), (), ()),
        ((*range(100, 150), *range(152, 201)), (), (150, 151)),
        (range(101, 201), (), (100,)),
        # A term's first manifest is a base, too.
        (range(100, 161), (150,), ()),
        (range(100, 161), (), tuple(range(100))),
    ],
)
def test_holes_are_of_those_that_brokers_keep(
    numbers: Iterable[int], term_bases: tuple[int, ...], holes: tuple[int, ...]
) -> None:
    assert holes_in({each: manifest(each, term_bases) for each in numbers}) == holes


def test_a_base_that_cannot_be_decoded_lets_nothing_be_removed() -> None:
    found: dict[int, Manifest | None] = {each: manifest(each) for each in range(100, 201)}
    assert holes_in(found | {200: None}) == tuple(range(100))
