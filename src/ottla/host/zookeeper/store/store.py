"""A ZooKeeper cluster's metadata behind the metadata port, for one controller term.

`load` reads everything into the image; later changes of others fire watches, are read again and
published. Several watches that fire are one read, and a read publishes only what differs from the
image. Every write is a multi that checks the controller epoch (`store_writing`).

A read and an append may be under way together, which is where the image could go back in time:

1. what was read waits until the append has ended, so that an append ends on the image on which
   it was decided, except for its own changes;
2. what an append has written since the read began is not taken from the read, but read again;
3. the read is taken before the append is answered, so that continuous appends do not delay
   changes of others.

A fenced store, or one whose session has expired, is dead: it writes and publishes nothing.

Not done: ZooKeeper's ACLs and TLS; several appends under way at once.

Source: KafkaController and KafkaZkClient of Kafka 3.9.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence

from ottla.base.errors import ApiError, Error
from ottla.base.pending import Pending, completed
from ottla.base.ports import Clock
from ottla.base.timers import Timers
from ottla.base.zookeeper import Create, Event, Operation, Session, ZkCode, ZkError
from ottla.controller.metadata_port import Appended, Committed, Conflict, Fenced, Unknown
from ottla.controller.step import Step
from ottla.controller.zookeeper.broker_changes import reset_lost_directories
from ottla.host.steps import Steps, drive
from ottla.host.zookeeper.persistent import make_persistent
from ottla.host.zookeeper.store.store_gathering import (
    Gathering,
    Wanted,
    everything,
    without_touched,
)
from ottla.host.zookeeper.store.store_reading import Watched, reading
from ottla.host.zookeeper.store.store_requests import StoreHooks, StoreRequests
from ottla.host.zookeeper.store.store_writing import (
    RETRY_MS,
    Changed,
    ControllerMoved,
    Done,
    Writer,
    Written,
)
from ottla.metadata.delta import ClusterDelta, replay
from ottla.metadata.image import EMPTY, ClusterImage
from ottla.metadata.records import Record, RegisterBrokerRecord
from ottla.metadata.znodes import paths
from ottla.metadata.znodes.admin import Partition
from ottla.metadata.znodes.cluster import encode_feature
from ottla.metadata.znodes.fields import ZnodeError
from ottla.metadata.znodes.known import KnownZnodes
from ottla.metadata.znodes.load import Snapshot, observed
from ottla.metadata.znodes.multis import Write
from ottla.metadata.znodes.restarted_replicas import RestartedReplicas, restarted_replicas
from ottla.metadata.znodes.write import after_write, topic_rewrites, writes_of

log = logging.getLogger(__name__)

Listener = Callable[[ClusterDelta], None]


class ZooKeeperStore:
    """See `ottla.controller.metadata_port.MetadataPort`.

    Fields: `image`, `known`: the metadata, and the versions of its znodes. `epoch`: of the
            controller. `dead`: nothing is written or published any more. `hooks`: see
            `StoreRequests`.
    """

    is_pipelined = False

    def __init__(
        self,
        session: Session,
        *,
        epoch: int,
        epoch_version: int,
        clock: Clock,
        timers: Timers,
        hooks: StoreHooks | None = None,
    ) -> None:
        self.image: ClusterImage = EMPTY
        self.known = KnownZnodes()
        self.started_since: RestartedReplicas = {}
        """Replicas whose broker had restarted, at the load, since their partition was written."""
        self.epoch = epoch
        self.dead = False
        self.hooks = StoreHooks() if hooks is None else hooks
        self._session = session
        self._epoch_version = epoch_version
        self._clock = clock
        self._timers = timers
        self._watched = Watched(session, self._on_watch)
        self._gathering = Gathering(self._watched, lambda: (self.image, self.known))
        self._writer = Writer(session, epoch_version=epoch_version, clock=clock, timers=timers)
        self._requests = StoreRequests(
            self._watched,
            self._writer,
            self.hooks,
            clock=clock,
            timers=timers,
            read_again=self._read_again,
        )
        self._listeners: list[Listener] = []
        self._problems: frozenset[str] = frozenset()
        self._wanted = Wanted()
        self._read: Snapshot | None = None
        self._is_loaded = self._is_reading = self._is_appending = False
        self._is_rewriting = False
        self._serves_requests = False
        self._appended_paths: set[str] = set()
        self._overwritten: set[str] = set()
        self._removed_markers: set[str] = set()
        """Topics whose marker was removed since the list of markers was read."""

    # -- lifecycle -----------------------------------------------------------------------------

    def load(self) -> Pending[ZkError | None]:
        """Read everything into the image, and watch. BAD_VERSION: another broker was elected.

        Listeners are not called for it, only for changes after it. Topics without an id get one
        written.
        """
        loaded: Pending[ZkError | None] = Pending()

        def ended(outcome: Exception | None) -> None:
            if outcome is not None and not isinstance(outcome, ZkError):
                log.error("loading the metadata failed", exc_info=outcome)
                outcome = ZkError(ZkCode.SYSTEM_ERROR)
            self._is_loaded = outcome is None
            self.dead = self.dead or outcome is not None
            loaded.complete(outcome)
            self._read_wanted()

        drive(self._load(), ended)
        return loaded

    def _load(self) -> Steps[None]:
        yield from make_persistent(self._session)
        if not (yield from self._requests.purge_notifications()):
            raise ZkError(ZkCode.BAD_VERSION, paths.CONTROLLER_EPOCH)
        yield from self._make_feature()
        snapshot = yield from self._gathering.gather(everything())
        self.started_since = restarted_replicas(snapshot)
        self._take(snapshot)
        yield from self._rewrite_topics()

    def _make_feature(self) -> Steps[None]:
        """Create `/feature` where it is missing: no feature is finalized, but can be."""
        if (yield from reading(self._session.exists(paths.FEATURE))) is None:
            written = yield from self._writer.write([Create(paths.FEATURE, encode_feature({}))])
            if isinstance(written, ControllerMoved):
                raise ZkError(ZkCode.BAD_VERSION, paths.CONTROLLER_EPOCH)

    def _rewrite_topics(self) -> Steps[None]:
        """Write topic znodes without an id, or that were changed without a decision."""
        for write in topic_rewrites(
            self.image,
            self.known,
            controller_epoch=self.epoch,
            epoch_version=self._epoch_version,
        ):
            # A read under way may have seen them as they were, and must not undo the write.
            self._overwritten |= {operation.path for operation in write.operations}
            written = yield from self._write(write)
            if isinstance(written, ControllerMoved):
                raise ZkError(ZkCode.BAD_VERSION, paths.CONTROLLER_EPOCH)
            if not isinstance(written, Done):
                self._wanted.topics |= {paths.parse_path(each).name for each in written.paths}

    def start_requests(self) -> None:
        """Process requests by znode from now on; see `StoreHooks`."""
        self._serves_requests = True
        if self.known.marked:
            self.hooks.on_deletion_requests(tuple(sorted(self.known.marked)))
        self._requests.start()

    def close(self) -> None:
        """Stop writing and publishing. Operations under way may still succeed."""
        self.dead = True
        self._requests.close()

    # -- appending -----------------------------------------------------------------------------

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with each change after the load."""
        self._listeners.append(listener)

    @property
    def committed_image(self) -> ClusterImage:
        """Return the image: what is in it is written."""
        return self.image

    def append(self, step: Step, epoch: int) -> Pending[Appended | ApiError]:
        """Write a step that was decided on `image`. Raises: ApiError where it cannot be written."""
        if self.dead or epoch != self.epoch:
            return completed(Fenced())
        if not step.records:
            return completed(Committed(()))
        assert self._is_loaded, "the image is loaded before decisions"
        assert not self._is_appending, "one append at a time"
        try:
            writes = writes_of(
                self.image,
                step.records,
                self.known,
                controller_epoch=self.epoch,
                epoch_version=self._epoch_version,
            )
        except ZnodeError as error:
            raise ApiError(Error.POLICY_VIOLATION, str(error)) from error
        self._is_appending = True
        self._appended_paths = {op.path for write in writes for op in write.operations}
        self._overwritten |= self._appended_paths
        answer: Pending[Appended | ApiError] = Pending()
        drive(self._append(writes), lambda outcome: self._appended(answer, outcome))
        return answer

    def _append(self, writes: Sequence[Write]) -> Steps[Appended]:
        deltas = []
        for write in writes:
            written = yield from self._write(write)
            if self.dead or isinstance(written, ControllerMoved):
                return Fenced()
            if isinstance(written, Done):
                if write.records:
                    deltas.append(self._publish(write.records))
                continue
            yield from self._read_now(written.paths)
            return Conflict(frozenset(write.keys)) if isinstance(written, Changed) else Unknown()
        return Committed(tuple(deltas))

    def _write(self, write: Write) -> Steps[Written]:
        # The writer adds its check to each multi; the planned operations begin with the same one.
        check, *operations = write.operations
        assert check == self._writer.check
        written = yield from self._writer.write(operations)
        if isinstance(written, Done):
            self.known = after_write(self.known, write, (None, *written.results))
        return written

    def _read_now(self, changed: Collection[str]) -> Steps[None]:
        """Read again what an append found changed, and publish it."""
        wanted = Wanted()
        for path in changed:
            wanted.add_path(path)
        # A read under way may have seen all this before, and must not undo it.
        self._overwritten.update(changed, map(paths.topic, wanted.whole_topics))
        snapshot = yield from self._gathering.gather(wanted)
        self._take(snapshot)

    def _appended(
        self, answer: Pending[Appended | ApiError], outcome: Appended | Exception
    ) -> None:
        self._is_appending = False
        self._appended_paths = set()
        if isinstance(outcome, ZkError):
            if outcome.code is ZkCode.SESSION_EXPIRED:
                outcome = Fenced()
            else:
                text = f"ZooKeeper refused a write: {outcome}"
                log.error("%s", text)
                outcome = ApiError(Error.UNKNOWN_SERVER_ERROR, text)
        elif isinstance(outcome, Exception) and not isinstance(outcome, ApiError):
            log.error("appending records failed", exc_info=outcome)
            outcome = ApiError(Error.UNKNOWN_SERVER_ERROR)
        if isinstance(outcome, Fenced):
            self.close()
        self._take_read()
        assert not isinstance(outcome, Exception) or isinstance(outcome, ApiError)
        answer.complete(outcome)
        self._read_wanted()

    def change(self, operations: Sequence[Operation]) -> Pending[Written | ZkError]:
        """Write znodes that are not part of the image: markers, requests. Fenced like the rest.

        Deleting a missing node, or creating an existing one without data, counts as done.
        """
        answer: Pending[Written | ZkError] = Pending()
        if self.dead:
            answer.complete(ControllerMoved())
            return answer
        self._overwritten |= {operation.path for operation in operations}

        def ended(outcome: Written | Exception) -> None:
            if isinstance(outcome, Exception) and not isinstance(outcome, ZkError):
                log.error("writing znodes failed", exc_info=outcome)
                outcome = ZkError(ZkCode.SYSTEM_ERROR)
            answer.complete(outcome)

        drive(self._writer.write(operations), ended)
        return answer

    def markers_gone(self, names: Iterable[str]) -> None:
        """Process that these topics' markers were removed, by the controller or by others.

        A marker that is written again before the list of markers is read leaves the list
        unchanged. It is a new one all the same, and is reported.
        """
        self._removed_markers.update(names)
        self._wanted.marker_list = True
        self._read_wanted()

    # -- observing -----------------------------------------------------------------------------

    def _on_watch(self, event: Event) -> None:
        """Record what is to be read after a watch has fired."""
        if self.dead or self._requests.path_changed(event.path):
            return
        wanted, path = self._wanted, event.path
        if path == paths.BROKER_IDS:
            wanted.broker_list = True
        elif path == paths.TOPICS:
            wanted.topic_list = True
        elif path == paths.CONFIG_CHANGES:
            wanted.config_changes = True
        elif path == paths.DELETE_TOPICS:
            wanted.marker_list = True
        elif paths.parse_path(path).kind is paths.Kind.TOPIC:
            wanted.topics.add(paths.parse_path(path).name)  # Only the controller writes its states.
        else:
            wanted.add_path(path)
        self._read_wanted()

    def _read_again(self, partitions: Sequence[Partition]) -> None:
        self._wanted.whole_topics |= {topic for topic, _ in partitions}
        self._read_wanted()

    def _read_wanted(self) -> None:
        """Read what is wanted, one read at a time."""
        if self.dead or not self._is_loaded or not self._wanted:
            return
        if self._is_reading or self._read is not None:
            return
        wanted, self._wanted = self._wanted, Wanted()
        self._is_reading = True
        self._overwritten = set(self._appended_paths)
        drive(self._gathering.gather(wanted), lambda outcome: self._on_read(wanted, outcome))

    def _on_read(self, wanted: Wanted, outcome: Snapshot | Exception) -> None:
        self._is_reading = False
        if isinstance(outcome, Snapshot):
            self._read = outcome
            self._take_read()
            self._read_wanted()
        elif isinstance(outcome, ZkError) and outcome.code is ZkCode.SESSION_EXPIRED:
            self.close()
        else:
            log.error("reading changed znodes failed: %s; retrying", outcome, exc_info=outcome)
            self._wanted.merge(wanted)
            self._timers.at(self._clock.monotonic_ms() + RETRY_MS, self._read_wanted)

    def _take_read(self) -> None:
        """Take what was read into the image, unless an append is under way."""
        if self._read is None or self._is_appending or self.dead:
            return
        snapshot, self._read = self._read, None
        self._take(self._without_touched(snapshot))

    def _take(self, snapshot: Snapshot) -> None:
        before = self.known
        found = observed(self.image, self.known, snapshot)
        for problem in found.problems:
            if str(problem) not in self._problems:
                log.error("ignoring an invalid znode: %s", problem)
        self._problems |= {str(problem) for problem in found.problems}
        self.known = found.known
        records = (*found.records, *self._recovered_log_dirs(found.records))
        if records:
            self._publish(records)
        if found.to_rewrite and self._is_loaded and not self._is_rewriting and not self.dead:
            # Until it is written, the id would be lost with this controller (KAFKA-12835).
            self._is_rewriting = True
            drive(self._rewrite_topics(), self._rewritten)
        self._report_markers(snapshot, before)

    def _report_markers(self, snapshot: Snapshot, before: KnownZnodes) -> None:
        """Report the markers where they differ from `before`, or are new ones of the same names."""
        marked = self.known.marked
        is_changed = marked != before.marked
        if self.known.unreadable != before.unreadable:
            # There is no record of it, and a marker may wait for such a topic.
            changed_unreadable = {*self.known.unreadable} ^ {*before.unreadable}
            is_changed = is_changed or not changed_unreadable.isdisjoint(marked)
        if snapshot.marked_for_deletion is not None:
            # A marker that is not listed changes the list when it is written.
            is_changed = is_changed or not self._removed_markers.isdisjoint(marked)
            self._removed_markers = set()
        if self._serves_requests and is_changed and not self.dead:
            self.hooks.on_deletion_requests(tuple(sorted(marked)))

    def _rewritten(self, outcome: Exception | None) -> None:
        self._is_rewriting = False
        if isinstance(outcome, ZkError) and outcome.code is ZkCode.BAD_VERSION:
            return  # Fenced: the next append finds out.
        if outcome is not None:
            log.error("rewriting topic znodes failed: %s", outcome, exc_info=outcome)
        self._read_wanted()

    def _recovered_log_dirs(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return records by which the log directories of restarted brokers are online again."""
        epochs = {each: broker.epoch for each, broker in self.image.brokers.items()}
        started = frozenset(
            each.broker_id
            for each in records
            if isinstance(each, RegisterBrokerRecord)
            and epochs.get(each.broker_id) != each.broker_epoch
        )
        if not started or not self._is_loaded:
            return ()
        after = replay(self.image, records, offset=self.image.position[0], epoch=self.epoch).image
        return tuple(reset_lost_directories(after, started))

    def _without_touched(self, snapshot: Snapshot) -> Snapshot:
        """Return what was read except for what was written meanwhile, which is read again."""
        if not self._overwritten:
            return snapshot
        untouched, again = without_touched(snapshot, self._overwritten)
        self._wanted.merge(again)
        return untouched

    def _publish(self, records: Sequence[Record]) -> ClusterDelta:
        offset = self.image.position[0] + 1
        delta = replay(self.image, records, offset=offset, epoch=self.epoch)
        self.image = delta.image
        for listener in tuple(self._listeners) if self._is_loaded and not self.dead else ():
            listener(delta)
        return delta
