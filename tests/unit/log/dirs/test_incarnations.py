"""Topics of one name follow one another on disk, and none ever meets another's records.

Law: after any history of creations, appends, flushes, deletions, checkpoints, kills and power
losses, an open log holds a run of its own incarnation's records from its own start on, nothing
that was flushed is missing, its high watermark and cleanness are no further than its own ever
were; what was deleted never opens again, and in the end only directories of live topics are left.
Method: hypothesis plays histories against a broker's directories on the simulator's disk, whose
power losses keep any part of what was not synced. Background work runs when the history says.
"""

from dataclasses import dataclass, field
from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st

from ottla.base.ids import Uuid
from ottla.base.timers import Timers
from ottla.log.config import LogConfig
from ottla.log.dirs.dir_loading import Verdict, read_topic_id
from ottla.log.dirs.log_dirs import LogDirs
from ottla.log.dirs.meta_properties import MetaProperties, encode_meta_properties
from ottla.log.dirs.replica_deletion import remove_replicas
from ottla.log.names import parse_partition_dir_name
from ottla.log.partition_log import PartitionLog
from ottla.testing.sim.disk import SimDisk
from tests.drawn import examples
from tests.unit.log.support import Environment, QueuedWorkers, append, batch, values

PATHS = ("/d1", "/d2")
NAMES = ("a", "b")
CONFIG = LogConfig(segment_bytes=300, timestamp_after_max_ms=2**62)


@dataclass
class Incarnation:
    """What became of one topic, as its owner knows it."""

    topic_id: Uuid
    appended: list[bytes] = field(default_factory=list)
    durable: int = 0
    high_watermark: int = 0
    start: int = 0
    clean: int = 0


class Story:
    """A broker's directories over several restarts, and the metadata at each time."""

    def __init__(self, random: Random, *, ledger: bool) -> None:
        self.random = random
        self.ledger = ledger
        self.workers = QueuedWorkers()
        self.env = Environment(workers=self.workers)
        self.disk = self.env.disk = SimDisk(now_ms=self.env.clock.now_ms)
        for number, path in enumerate(PATHS, start=1):
            self.disk.mkdir(path)
            properties = MetaProperties(
                cluster_id="c", node_id=1, directory_id=Uuid(bytes([200 + number] * 16))
            )
            self.disk.write_atomic(f"{path}/meta.properties", encode_meta_properties(properties))
        self.disk.settle()
        self.alive: dict[str, Incarnation] = {}
        self.dead: dict[Uuid, Incarnation] = {}
        self.born = 0
        self.start()

    # --- restarts ---

    def start(self) -> None:
        self.dirs = LogDirs(
            self.disk,
            self.workers,
            self.env.clock,
            self.env.timers,
            PATHS,
            delete_delay_ms=1_000,
        )
        self.dirs.acquire(node_id=1, cluster_id="c")
        self.dirs.load(self.verdict, lambda _topic: CONFIG)
        self.workers.run()
        for name, topic in self.alive.items():
            self.open(name, topic)

    def verdict(self, name: str, _partition: int, topic_id: Uuid) -> Verdict:
        if topic_id in self.dead:
            return Verdict.DELETE if self.ledger else Verdict.STRAY
        assert self.alive[name].topic_id == topic_id
        return Verdict.KEEP

    def open(self, name: str, topic: Incarnation) -> PartitionLog:
        return self.dirs.get_or_create(name, topic.topic_id, 0, CONFIG)

    def end_life(self, *, power: bool) -> None:
        self.workers.queue.clear()
        self.env.timers = Timers()
        if power:
            self.disk.lose_power(self.random)
        else:
            self.disk.kill()
        self.start()
        for name, topic in self.alive.items():
            self.check(name, topic, lost=power)
            self.resume(name, topic)

    def check(self, name: str, topic: Incarnation, *, lost: bool) -> None:
        log = self.dirs.get(name, 0)
        assert log is not None
        assert log.topic_id == topic.topic_id
        start, end = log.log_start_offset, log.log_end_offset
        kept = list(enumerate(topic.appended))[start:end]
        assert values(log) == kept, "the records of another topic"
        if lost and topic.durable == 0:
            # The mark of a new log is flushed with it, and this disk keeps no order of new names.
            return
        assert start <= topic.start, "the start of another topic"
        assert end >= (topic.durable if lost else len(topic.appended)), "records are missing"
        assert log.high_watermark <= topic.high_watermark, "another topic's high watermark"
        assert log.clean_offset <= topic.clean, "another topic's cleanness"

    def resume(self, name: str, topic: Incarnation) -> None:
        """Take the log as it is from now on."""
        log = self.dirs.get(name, 0)
        assert log is not None
        del topic.appended[log.log_end_offset :]
        topic.appended += [b""] * (log.log_end_offset - len(topic.appended))
        topic.start = max(topic.start, log.log_start_offset)
        topic.clean = max(topic.clean, log.clean_offset)
        topic.high_watermark = max(log.high_watermark, topic.high_watermark)
        topic.high_watermark = min(topic.high_watermark, log.log_end_offset)
        topic.durable = min(topic.durable, log.log_end_offset)

    # --- what happens ---

    def create(self, name: str) -> None:
        if name not in self.alive:
            self.born += 1
            topic = self.alive[name] = Incarnation(Uuid(self.born.to_bytes(16, "big")))
            self.open(name, topic)

    def delete(self, name: str) -> None:
        topic = self.alive.pop(name, None)
        if topic is not None:
            self.dead[topic.topic_id] = topic
            self.dirs.delete(name, 0)

    def crowd(self, _name: str) -> None:
        """So many others go in this very turn that deletions are put off."""
        async_delete = self.dirs._async_delete
        async_delete._step_left = 0
        if async_delete._step is None:
            async_delete._arm()

    def order(self, _name: str) -> None:
        """Have all that ever went proven gone, as the controller's orders do."""
        ended = remove_replicas(self.dirs, [(topic_id, 0) for topic_id in self.dead])
        for _ in range(2):  # What is only found then is written of after that.
            self.env.pass_ms(1)
            self.workers.run()
        assert set(ended.value.values()) <= {None}

    def recreate(self, name: str) -> None:
        self.delete(name)
        self.create(name)

    def append(self, name: str) -> None:
        if name in self.alive:
            topic = self.alive[name]
            log = self.open(name, topic)
            value = f"{name}:{topic.topic_id}:{len(topic.appended)}".encode()
            append(log, batch([value]))
            topic.appended.append(value)
            log.advance_high_watermark(log.log_end_offset)
            topic.high_watermark = log.log_end_offset

    def flush(self, name: str) -> None:
        if name in self.alive:
            topic = self.alive[name]
            self.open(name, topic).flush()
            self.workers.run()
            topic.durable = len(topic.appended)

    def shorten(self, name: str) -> None:
        if name in self.alive and self.alive[name].appended:
            topic = self.alive[name]
            log = self.open(name, topic)
            log.advance_high_watermark(log.log_end_offset)
            topic.high_watermark = log.log_end_offset
            topic.start = max(log.log_start_offset, log.log_end_offset - 1)
            topic.clean = log.offsets.clean_offset = log.log_end_offset
            log.delete_records(topic.start)

    def mature(self, name: str) -> None:
        """Give a topic's log something that its successor must not inherit."""
        self.create(name)
        for _ in range(3):
            self.append(name)
        self.flush(name)
        self.shorten(name)
        self.dirs.checkpoint()
        self.workers.run()

    def checkpoint(self, _name: str) -> None:
        self.dirs.checkpoint()

    def work(self, _name: str) -> None:
        self.workers.run(self.random.randrange(1, 4))

    def pass_time(self, _name: str) -> None:
        self.env.pass_ms(self.random.choice((0, 1, 1_000)))

    def kill(self, _name: str) -> None:
        self.end_life(power=False)

    def power_loss(self, _name: str) -> None:
        self.end_life(power=True)

    # --- the end ---

    def finish(self) -> None:
        self.kill("")
        for _ in range(3):
            self.env.pass_ms(1_000)
            self.workers.run()
        assert not self.dirs.offline_dirs
        directories = [
            (name, read_topic_id(self.disk, f"{path}/{name}"))
            for path in PATHS
            for name in self.disk.listdir(path)
            if parse_partition_dir_name(name) is not None
        ]
        living = sorted((f"{name}-0", topic.topic_id) for name, topic in self.alive.items())
        assert sorted(each for each in directories if each in living) == living
        for name, topic_id in directories:
            # A power loss can take the topic id of a directory that was never flushed.
            is_nobodys = topic_id is None or (topic_id in self.dead and not self.ledger)
            assert (name, topic_id) in living or (name.endswith("-stray") and is_nobodys)
        for directory in self.dirs.dirs:
            assert directory.stale_entries == {}


STEPS = (
    Story.create,
    Story.mature,
    Story.recreate,
    Story.recreate,
    Story.delete,
    Story.crowd,
    Story.crowd,
    Story.order,
    Story.append,
    Story.append,
    Story.append,
    Story.flush,
    Story.shorten,
    Story.checkpoint,
    Story.work,
    Story.pass_time,
    Story.kill,
    Story.power_loss,
)


@settings(max_examples=examples(400), deadline=None, derandomize=True)
@given(
    random=st.randoms(use_true_random=False),
    ledger=st.booleans(),
    history=st.lists(
        st.tuples(st.sampled_from(STEPS), st.sampled_from(NAMES)), min_size=3, max_size=40
    ),
)
def test_a_topic_never_gets_records_of_a_former_topic_of_its_name(
    random: Random, ledger: bool, history: list[tuple[object, str]]
) -> None:
    story = Story(random, ledger=ledger)
    for step, name in history:
        assert callable(step)
        step(story, name)
    event(f"topics: {min(story.born, 9)}")
    story.finish()
