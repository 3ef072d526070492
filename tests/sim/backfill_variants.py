"""A leader that grants copies with one rule broken: see `test_backfill_stories`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ottla.broker.remote.dialogue import Dialogue
from ottla.broker.remote.tasks import grant_task
from ottla.tiered.copy_grants import CopyGrant

from .replaced import replaced
from .tier_variants import TierVariant, forgets_failed_copies_at_once


@contextmanager
def takes_commits_without_a_look() -> Iterator[None]:
    """A leader believes the holder that the objects are in the store."""

    def believe(calls: object, segment: object, sizes: object, until_ms: int) -> Dialogue[None]:
        return None
        yield

    with replaced(grant_task, "look_at_objects", believe):
        yield


@contextmanager
def finishes_copies_that_do_not_abut() -> Iterator[None]:
    """A committed copy is finished at once, also where one before it lacks."""

    def any_kept(grants: Iterable[CopyGrant], copied_end: int) -> CopyGrant | None:
        return next((each for each in grants if each.is_kept), None)

    with replaced(grant_task, "first_to_finish", any_kept):
        yield


BACKFILL_VARIANTS = (
    TierVariant(
        breaks=takes_commits_without_a_look, story="other_store", by="remote object missing"
    ),
    TierVariant(
        breaks=finishes_copies_that_do_not_abut, story="dead_holder", by="offset unreadable"
    ),
    TierVariant(breaks=forgets_failed_copies_at_once, story="stalled_holder", by="orphan object"),
)
