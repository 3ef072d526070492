"""Writes the manifests of a partition, as its leader, and removes those that nobody needs.

A term's first manifest is a base, so nothing has to be read for it but the number of the last one.
From it on a manifest of an earlier leader counts for nothing, however late it is written: so it is
there before this leader deletes any object. It is written behind the term's fence: see the stories
in `ottla.tiered.manifest_planner`.

After each base the manifests before the last base but one are removed, so that some two hundred are
there. That is a step of its own, `remove_needless`: it may take minutes, and which segments may be
deleted is known only in the turn in which `update` returns. What fails of it is done later.

Source: `ottla.tiered.manifest`.
"""

from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.base.object_store import Failure, StoreError
from ottla.broker.remote.dialogue import Dialogue, Slots
from ottla.broker.remote.store_calls import ATTEMPT_MS_MAX
from ottla.broker.remote.tasks.leader_term import LeaderTerm
from ottla.tiered.manifest import Manifest, first_to_keep
from ottla.tiered.manifest_codec import MANIFEST_BYTES_MAX, decode_manifest, encode_manifest
from ottla.tiered.manifest_planner import NO_SEQUENCE, ManifestPlanner
from ottla.tiered.object_names import manifest_name, manifest_prefix, parse_manifest_name

if TYPE_CHECKING:
    from ottla.tiered.remote_log import RemoteLog

CONFLICTS_MAX: Final = 100
"""Manifests of other writers that one update reads before it gives up for now."""

LOAD_MS_MAX: Final = 10 * ATTEMPT_MS_MAX


class Refused(Enum):
    """Why a manifest was not written, besides failures of the store."""

    SUPERSEDED = "a newer leader writes the manifests"
    NOT_READY = "remote log metadata is not ready"
    CONFLICTS = "other writers were faster"

    def __str__(self) -> str:
        return self.value


class ManifestWriter:
    """See the module. For one term; updates run one after the other."""

    def __init__(self, term: LeaderTerm) -> None:
        self._term = term
        self._calls = term.environment.calls
        self._planner = ManifestPlanner(
            leader_epoch=term.leader_epoch, tiered_epoch=term.tiering.tiered_epoch
        )
        self._turn = Slots(1)
        self._is_loaded = False
        self._is_due = True
        self._keep_from = 0
        """Manifests below are to be removed; 0 = that is done."""

    def is_stale(self, remote: "RemoteLog") -> bool:
        """Tell whether an update is due: none of this term has succeeded yet, or the last one
        failed, or the last manifest does not say what is readable now. DeleteRecords may leave each
        segment, and change only where the log starts.
        """
        if self._is_due:
            return remote.count > 0 or self._planner.highest != NO_SEQUENCE
        return self._planner.is_behind(remote, self._term.log.log_start_offset)

    def update(self) -> Dialogue[StoreError | Refused | None]:
        """Bring the manifests up to date with the metadata; return why that failed.

        After None, and until the caller waits for anything, this term is not fenced off, and no
        chain of manifests lists a segment that is DELETE_STARTED.
        """
        yield from self._turn.acquire()
        try:
            self._is_due = True
            error = yield from self._update()
            self._is_due = error is not None
            return error
        finally:
            self._turn.release()

    def remove_needless(self) -> Dialogue[None]:
        """Remove the manifests before the last base but one, unless that is done."""
        if not self._keep_from:
            return
        yield from self._turn.acquire()
        try:
            yield from self._remove()
        finally:
            self._turn.release()

    def _update(self) -> Dialogue[StoreError | Refused | None]:
        planner = self._planner
        if not self._is_loaded:
            error = yield from self._load()
            if error is not None:
                return error
        for _ in range(CONFLICTS_MAX):
            if planner.must_fence:
                yield from self._term.append_fence()
                planner.fenced()
            remote = self._term.remote()
            if remote is None:
                return Refused.NOT_READY
            if self._term.is_fenced(remote) or planner.is_superseded:
                return Refused.SUPERSEDED
            manifest = self._plan(remote)
            if manifest is None:
                return None
            name = self._name(manifest.sequence)
            error = yield from self._calls.put_if_absent_once(name, encode_manifest(manifest))
            if error is None:
                planner.applied(manifest.sequence, manifest)
                if manifest.is_base:
                    self._keep_from = first_to_keep(manifest.sequence)
            elif error.failure is Failure.EXISTS:
                error = yield from self._follow(manifest.sequence)
                if error is not None:
                    return error
            else:
                return error
        return Refused.CONFLICTS

    def _plan(self, remote: "RemoteLog") -> Manifest | None:
        term, log = self._term, self._term.log
        facts = term.environment.topic_facts(log.topic_id)
        return self._planner.plan(
            remote,
            topic=log.topic,
            topic_id=log.topic_id,
            partition=log.partition,
            log_start_offset=log.log_start_offset,
            epochs=term.lineage().entries,
            partition_count=facts.partition_count,
            configs=facts.configs,
        )

    def _load(self) -> Dialogue[StoreError | None]:
        """Find the last manifest's number. A listing may be late: a conflict shows later ones."""
        listed = yield from self._list()
        if isinstance(listed, StoreError):
            return listed
        self._planner.found(max(listed, default=NO_SEQUENCE))
        self._is_loaded = True
        return None

    def _list(self) -> Dialogue[list[int] | StoreError]:
        """Return the numbers of the manifests that a listing has."""
        log = self._term.log
        prefix = manifest_prefix(log.topic, log.topic_id, log.partition)
        until_ms = self._term.environment.clock.monotonic_ms() + LOAD_MS_MAX
        found: list[int] = []
        after = ""
        while True:
            page = yield from self._calls.list_page(prefix, after, until_ms=until_ms)
            if isinstance(page, StoreError):
                return page
            sequences = (parse_manifest_name(each.name) for each in page.objects)
            found += (each for each in sequences if each is not None)
            if page.is_last or not page.objects:
                return found
            after = page.objects[-1].name

    def _follow(self, sequence: int) -> Dialogue[StoreError | None]:
        """Read the manifest that was written in place of ours; it may be ours, after all."""
        until_ms = self._term.environment.clock.monotonic_ms() + LOAD_MS_MAX
        data = yield from self._calls.read(
            self._name(sequence), MANIFEST_BYTES_MAX, until_ms=until_ms
        )
        if isinstance(data, StoreError):
            return data
        try:
            found = decode_manifest(data)
        except ValueError:
            found = None
        is_right = found is not None and found.sequence == sequence
        self._planner.applied(sequence, found if is_right else None)
        return None

    def _remove(self) -> Dialogue[None]:
        """Remove the manifests before `first_to_keep`. A listing finds also those that an earlier
        removal has left, or that a late writer has written there.
        """
        listed = yield from self._list()
        if isinstance(listed, StoreError):
            return
        names = [self._name(each) for each in listed if each < self._keep_from]
        if not (yield from self._calls.delete(names)):
            self._keep_from = 0

    def _name(self, sequence: int) -> str:
        log = self._term.log
        return manifest_name(log.topic, log.topic_id, log.partition, sequence)
