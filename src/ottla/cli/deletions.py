"""`ottla topics --describe-deletions`: the deletion ledger of a cluster, to look at or to wait on.

What is waited for is settled once: the open deletions among those that match when the ledger is
first read. A deletion that was acknowledged to somebody before the command began is among them,
since the controller answers. One that was only marked (`--zookeeper --delete`) may come a moment
later; so where something is named and not found, the ledger is read again for FIND_SECONDS.
A deletion asked for later than that is not waited for.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TypeVar

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.cli.deletions_client import LedgerUnsupported, Selection, check_served, fetch, fetch_ids
from ottla.cli.deletions_text import json_text, open_text, table_lines, unproven_text
from ottla.cli.errors import CommandError
from ottla.cli.progress import Progress
from ottla.cli.wire_client import Refusal, WireClient
from ottla.metadata.deletions import DeletionImage

FIND_SECONDS = 10.0
"""How long a deletion that is named may take to be in the ledger."""

PAUSE_SECONDS = 0.2
POLLED_MAX = 200
"""Deletions that are asked for at once while they are waited for; all of them must end anyway."""

REQUEST_SECONDS = 10.0
"""How long one answer is waited for by a command that has longer: its broker may have hung."""

NOT_RETRIABLE = frozenset({Error.UNSUPPORTED_VERSION, Error.CLUSTER_AUTHORIZATION_FAILED})
"""Refusals that no patience cures."""

T = TypeVar("T")


def describe(client: WireClient, selection: Selection, *, as_json: bool) -> None:
    """Print what the ledger has. Raises: CommandError where something meant is not in it."""
    check_served(client)
    found = client.with_retries(lambda: fetch(client, selection, receipts=True))
    missing = selection.missing(found)
    _print(found, as_json=as_json)
    if missing:
        raise _not_found(client, selection, missing)


def wait(client: WireClient, selection: Selection, timeout: float, *, as_json: bool) -> None:
    """Wait until the deletions that are meant are finished, then print them.

    Raises: CommandError, saying what is open and why, after `timeout` seconds; where nothing of
            what is named is found.
    """
    progress = Progress()
    waiting = _Retries(client, timeout, progress)
    try:
        waiting.retry(lambda: check_served(client))
        found, missing = waiting.find(selection)
        if missing:
            _print(found, as_json=as_json)
            raise _not_found(client, selection, missing)
        if selection.is_everything and not found:
            progress.say("no deletion is open")
        watch = _Watch({each.topic_id: each for each in found})
        _wait_until_finished(client, watch, waiting)
    finally:
        progress.done()
    for name in watch.expired:
        progress.say(f"{name}: finished, and the receipt is forgotten already")
    _print(watch.listed(), as_json=as_json)
    for text in filter(None, map(unproven_text, watch.listed())):
        progress.say(text)
    if watch.open:
        raise CommandError(f"not finished after {timeout:g} s: {watch.open_text()}")


def _wait_until_finished(client: WireClient, watch: "_Watch", waiting: "_Retries") -> None:
    while watch.open and not waiting.is_over:
        waiting.pause(f"the end of {watch.open_text()}")
        some = watch.next_open()
        try:
            entries = waiting.retry(partial(fetch_ids, client, some))
        except CommandError as error:
            if _is_permanent(error):
                raise
            return  # There was no time for this answer; what is known is told.
        watch.update(some, entries, waiting.seconds)


class _Watch:
    """The deletions that are waited for.

    Fields: `open`: ids of those that are not finished; the values mean nothing. `expired`:
            names of those that were last seen open, and of which there is no receipt.
    """

    def __init__(self, chosen: dict[Uuid, DeletionImage]) -> None:
        self._chosen = chosen
        self._missing_since: dict[Uuid, float] = {}
        self.open = {key: None for key, each in chosen.items() if not each.is_finished}
        self.expired: list[str] = []

    def next_open(self) -> list[Uuid]:
        """Return what to ask for now: of many, some, and each time the next ones."""
        some = list(islice(self.open, POLLED_MAX))
        for key in some:
            self.open[key] = self.open.pop(key)
        return some

    def update(
        self, requested: Iterable[Uuid], entries: Iterable[DeletionImage], seconds: float
    ) -> None:
        """Take in what the ledger says of some that are open, at some second of the wait.

        What is not in it is finished and forgotten, or else the controller that answered was one
        no more and has yet to hear of it: it is over only if it stays so.
        """
        known = {each.topic_id: each for each in entries}
        self._chosen |= known
        for key in requested:
            if key in known:
                self._missing_since.pop(key, None)
                if known[key].is_finished:
                    del self.open[key]
            elif seconds - self._missing_since.setdefault(key, seconds) >= FIND_SECONDS:
                del self.open[key]
                self.expired.append(self._chosen.pop(key).name)

    def listed(self) -> list[DeletionImage]:
        """Return all of which something is known."""
        return list(self._chosen.values())

    def open_text(self) -> str:
        """Return what is open, and why."""
        still = [each for key, each in self._chosen.items() if key in self.open]
        plural = "s" if len(self._chosen) != 1 else ""
        return f"{len(still)} of {len(self._chosen)} deletion{plural} ({open_text(still)})"


class _Retries:
    """Asks again what leadership on the move and broken connections refuse, until the deadline."""

    def __init__(self, client: WireClient, timeout: float, progress: Progress) -> None:
        self._client = client
        self._began = time.monotonic()
        self._timeout = timeout
        self._progress = progress
        self._last_line = ""

    @property
    def is_over(self) -> bool:
        return self.seconds >= self._timeout

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def pause(self, what: str) -> None:
        """Wait a little; say for what where that is new."""
        if what != self._last_line:
            self._progress.wait(f"waiting for {what}")
            self._last_line = what
        time.sleep(min(PAUSE_SECONDS, max(0.0, self._timeout - self.seconds)))

    def retry(self, act: Callable[[], T]) -> T:
        """Return what `act` returns once it is not refused. Raises: CommandError, the last one."""
        while True:
            self._client.timeout = max(0.05, min(REQUEST_SECONDS, self._timeout - self.seconds))
            try:
                return act()
            except CommandError as error:
                if self.is_over or _is_permanent(error):
                    raise
                self.pause(f"an answer: {error}")

    def find(self, selection: Selection) -> tuple[list[DeletionImage], list[str]]:
        """Return the deletions that are meant, and what is named and none of.

        Where none in particular is meant: the open ones. The time in which one may yet come is
        counted from the first answer: a controller that was elected just now, after all that time
        without one, has the markers still to read.
        """
        limit: float | None = None
        while True:
            found = self.retry(
                lambda: fetch(self._client, selection, receipts=not selection.is_everything)
            )
            missing = selection.missing(found)
            if limit is None:
                limit = min(self.seconds + FIND_SECONDS, self._timeout)
            if not missing or self.seconds >= limit:
                return found, missing
            self.pause(f"the deletion of {missing[0]} to be known")


def _is_permanent(error: CommandError) -> bool:
    if isinstance(error, Refusal):
        return error.code in NOT_RETRIABLE
    return isinstance(error, LedgerUnsupported)


def _not_found(client: WireClient, selection: Selection, missing: list[str]) -> CommandError:
    present = {each.name: each.topic_id for each in client.topics()}
    if selection.topic_id in present.values() or present.keys() & set(selection.names or ()):
        return CommandError(f"no deletion of {missing[0]} is known, and there is such a topic")
    return CommandError(
        f"no deletion of {missing[0]} is known: it never was, or its receipt was forgotten after "
        "ottla.deletion.receipt.retention.ms"
    )


def _print(deletions: Iterable[DeletionImage], *, as_json: bool) -> None:
    listed = list(deletions)
    if as_json:
        print(json_text(listed))
    elif listed:
        for line in table_lines(listed):
            print(line)
