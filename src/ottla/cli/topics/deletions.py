"""`ottla topics --describe-deletions`: shows the deletion ledger, or waits on it (`--wait`).

`--wait` waits for the open deletions that match when the ledger is first read. The controller
answers, so a deletion that was acknowledged before the command began is among them. A deletion
that was only marked in ZooKeeper (`--zookeeper --delete`) may enter the ledger a moment later:
where a named topic is not found, the ledger is read again for FIND_SECONDS. Later deletions are
not waited for.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import TypeVar

from ottla.base.errors import Error
from ottla.base.ids import Uuid
from ottla.cli.errors import CommandError
from ottla.cli.progress import Progress
from ottla.cli.topics.deletions_client import (
    LedgerUnsupported,
    Selection,
    check_served,
    fetch,
    fetch_ids,
)
from ottla.cli.topics.deletions_text import json_text, open_text, table_lines, unproven_text
from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClientError, Refusal
from ottla.metadata.deletions import DeletionImage

FIND_SECONDS = 10.0
"""How long a named deletion may take to enter the ledger."""

PAUSE_SECONDS = 0.2
POLLED_MAX = 200
"""Open deletions in one poll. All of them must finish, so the order of polling does not matter."""

REQUEST_SECONDS = 10.0
"""Timeout of one request within a longer wait: the broker may hang."""

NOT_RETRIABLE = frozenset({Error.UNSUPPORTED_VERSION, Error.CLUSTER_AUTHORIZATION_FAILED})
"""Errors that a retry cannot fix."""

T = TypeVar("T")


def describe(client: ClusterClient, selection: Selection, *, as_json: bool) -> None:
    """Print ledger entries. Raises: CommandError where a named topic has none."""
    check_served(client)
    found = client.with_retries(lambda: fetch(client, selection, receipts=True))
    missing = selection.missing(found)
    _print(found, as_json=as_json)
    if missing:
        raise _not_found(client, selection, missing)


def wait(client: ClusterClient, selection: Selection, timeout: float, *, as_json: bool) -> None:
    """Wait until the selected deletions are finished, then print them.

    Raises: CommandError after `timeout` seconds, with what is open and why; and where a named
            topic has no entry.
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
        progress.say(f"{name}: finished, and its receipt has expired")
    _print(watch.listed(), as_json=as_json)
    for text in filter(None, map(unproven_text, watch.listed())):
        progress.say(text)
    if watch.open:
        raise CommandError(f"not finished after {timeout:g} s: {watch.open_text()}")


def _wait_until_finished(client: ClusterClient, watch: "_Watch", waiting: "_Retries") -> None:
    while watch.open and not waiting.is_over:
        waiting.pause(f"the end of {watch.open_text()}")
        some = watch.next_open()
        try:
            entries = waiting.retry(partial(fetch_ids, client, some))
        except (ClientError, CommandError) as error:
            if _is_permanent(error):
                raise
            return  # The timeout passed. The caller prints the last known state.
        watch.update(some, entries, waiting.seconds)


class _Watch:
    """The deletions that are waited for.

    Fields: `open`: ids of unfinished ones, in polling order; the values are unused. `expired`:
            names of those that were last seen open and have no receipt any more.
    """

    def __init__(self, chosen: dict[Uuid, DeletionImage]) -> None:
        self._chosen = chosen
        self._missing_since: dict[Uuid, float] = {}
        self.open = {key: None for key, each in chosen.items() if not each.is_finished}
        self.expired: list[str] = []

    def next_open(self) -> list[Uuid]:
        """Return the next ids to poll, at most POLLED_MAX, round robin."""
        some = list(islice(self.open, POLLED_MAX))
        for key in some:
            self.open[key] = self.open.pop(key)
        return some

    def update(
        self, requested: Iterable[Uuid], entries: Iterable[DeletionImage], seconds: float
    ) -> None:
        """Apply the ledger's entries for the polled ids. `seconds`: since the wait began.

        A missing entry means that the receipt has expired, or that the response came from a
        deposed controller. So the id counts as finished only after FIND_SECONDS without an entry.
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
        """Return the last known entry of each deletion."""
        return list(self._chosen.values())

    def open_text(self) -> str:
        """Return the open deletions and their causes."""
        still = [each for key, each in self._chosen.items() if key in self.open]
        plural = "s" if len(self._chosen) != 1 else ""
        return f"{len(still)} of {len(self._chosen)} deletion{plural} ({open_text(still)})"


class _Retries:
    """Retries after leader changes and lost connections, until the deadline."""

    def __init__(self, client: ClusterClient, timeout: float, progress: Progress) -> None:
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
        """Wait a little; report for what when that has changed."""
        if what != self._last_line:
            self._progress.wait(f"waiting for {what}")
            self._last_line = what
        time.sleep(min(PAUSE_SECONDS, max(0.0, self._timeout - self.seconds)))

    def retry(self, act: Callable[[], T]) -> T:
        """Return the result of `act`, retried after retriable errors. Raises the last error."""
        while True:
            seconds = max(0.05, min(REQUEST_SECONDS, self._timeout - self.seconds))
            self._client.config = self._client.config.with_timeout(seconds)
            try:
                return act()
            except (ClientError, CommandError) as error:
                if self.is_over or _is_permanent(error):
                    raise
                self.pause(f"a response: {error}")

    def find(self, selection: Selection) -> tuple[list[DeletionImage], list[str]]:
        """Return the selected deletions, and the names that have none.

        Without a name or id: the open deletions. FIND_SECONDS count from the first response: a
        newly elected controller still has to read the markers in ZooKeeper.
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
            self.pause(f"an entry for {missing[0]} in the deletion ledger")


def _is_permanent(error: Exception) -> bool:
    if isinstance(error, Refusal):
        return error.code in NOT_RETRIABLE
    return isinstance(error, LedgerUnsupported)


def _not_found(client: ClusterClient, selection: Selection, missing: list[str]) -> CommandError:
    present = {each.name: each.topic_id for each in client.topics()}
    if selection.topic_id in present.values() or present.keys() & set(selection.names or ()):
        return CommandError(f"the deletion ledger has no entry for {missing[0]}: the topic exists")
    return CommandError(
        f"the deletion ledger has no entry for {missing[0]}: it was never deleted, or its receipt "
        "expired after ottla.deletion.receipt.retention.ms"
    )


def _print(deletions: Iterable[DeletionImage], *, as_json: bool) -> None:
    listed = list(deletions)
    if as_json:
        print(json_text(listed))
    elif listed:
        for line in table_lines(listed):
            print(line)
