"""Subtle mistakes: one expression of the product changed, for as long as a history is played.

A variant of `variants` leaves a whole rule out. A mutant keeps the rule and makes it wrong by a
little: off by one, without one of its conditions, in one of two paths. Each is played with the
standard scenario of its seed, nothing tuned for it, and must be found by a checker.

A mutant names a function and a piece of its source, which must occur exactly once: where the
product has changed beneath it, it fails by name instead of proving nothing. The function's code
object is exchanged, so that whoever has imported the function by name runs the mutant, too.
`standard_mix` says which seeds show them.
"""

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Edit:
    """A piece of a function's source, and what stands in its place.

    Fields: `target`: "package.module:Class.method", the getter where it is a property.
    """

    target: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A mistake. `zookeeper`: it is one of clusters over ZooKeeper."""

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    zookeeper: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Run the product with the mistake."""
        with ExitStack() as stack:
            for edit in self.edits:
                stack.enter_context(_edited(edit))
            yield


def mutant(name: str, breaks: str, *edits: tuple[str, str, str], zookeeper: bool = False) -> Mutant:
    """Return a mutant of these edits: (target, old, new), the target below `ottla.`."""
    return Mutant(
        name=name,
        breaks=breaks,
        edits=tuple(Edit(f"ottla.{target}", old, new) for target, old, new in edits),
        zookeeper=zookeeper,
    )


def function_of(target: str) -> FunctionType:
    """Return the function that a target names."""
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, cached_property):
        found = found.func
    elif isinstance(found, staticmethod | classmethod):
        found = found.__func__
    assert isinstance(found, FunctionType), f"{target} is not a function"
    return found


def edited_code(edit: Edit) -> CodeType:
    """Return the code of the function with the edit; its source must have the piece once."""
    function = function_of(edit.target)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(edit.old) == 1, f"{edit.target}: {source.count(edit.old)} x {edit.old!r}"
    lines = source.replace(edit.old, edit.new).splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith("def "))
    space: dict[str, Any] = {}
    exec(compile("\n".join(lines[first:]), edit.target, "exec"), function.__globals__, space)
    code: CodeType = space[function.__name__].__code__
    assert code.co_freevars == function.__code__.co_freevars
    return code


@contextmanager
def _edited(edit: Edit) -> Iterator[None]:
    function = function_of(edit.target)
    code = function.__code__
    function.__code__ = edited_code(edit)
    try:
        yield
    finally:
        function.__code__ = code


PARTITION = "broker.partition:Partition"
REGISTRATION = "controller.brokers.brokers"
ISR = "controller.partitions.isr"
CHANGE = "controller.elections.partition_change"

QUORUM = (
    mutant(
        "votes_by_length",
        "a voter compares how long logs are, not in which epoch they end",
        (
            "raft.node:RaftNode.grants",
            "event.log_end.rank >= self.log.end.rank",
            "event.log_end.offset >= self.log.end.offset",
        ),
    ),
    mutant(
        "commits_former_epochs",
        "a leader commits records of former epochs by counting copies (Raft, 5.4.2)",
        (
            "raft.progress:LeaderProgress.advance",
            "majority <= self.epoch_start_offset",
            "majority < 0",
        ),
    ),
    mutant(
        "counts_unflushed",
        "a leader counts its own copy before it is durable",
        (
            "raft.node:RaftNode._propose",
            "self._flush()",
            "self.progress.flushed_to(self.log.end_offset); self._flush()",
        ),
    ),
    mutant(
        "fetches_unflushed",
        "a voter's fetch says that it has what is not durable yet",
        (
            "raft.node:RaftNode._send_fetch",
            "self.elects and not self.flushing.is_done",
            "False",
        ),
    ),
    mutant(
        "compares_only_ends",
        "a leader tells only those whose log is longer than their epoch that they diverge",
        (
            "raft.log_view:LogView.validate_offset_and_epoch",
            "if end.epoch != epoch or end.offset < offset:",
            "if end.offset < offset:",
        ),
    ),
    mutant(
        "keeps_diverging_epoch",
        "a follower whose leader lacks its epoch keeps that epoch's records",
        (
            "raft.log_view:LogView.truncation_point",
            "return local.offset",
            "return self.end_offset",
        ),
    ),
)

CONTROLLER = (
    mutant(
        "unfences_early",
        "a broker is unfenced before it has read its own registration",
        (
            f"{REGISTRATION}:_next_state",
            "caught_up and not report.want_fence",
            "not report.want_fence",
        ),
    ),
    mutant(
        "takes_fenced_into_isr",
        "a broker that is fenced or on its way out may join the in-sync replicas (KIP-841)",
        (
            f"{ISR}:_is_eligible",
            "return broker.active or (broker_id == leader and not broker.fenced)",
            "return True",
        ),
    ),
    mutant(
        "ignores_broker_epochs_in_isr",
        "a member may join by a fetch of its former life (KIP-903)",
        (
            f"{ISR}:_is_eligible",
            "broker_epoch not in (ANY_EPOCH, broker.epoch)",
            "broker_epoch is None",
        ),
        (
            "broker.replication.followers:may_join",
            "broker_epoch in (NO_EPOCH, broker.epoch)",
            "True",
        ),
    ),
    mutant(
        "accepts_old_partition_epochs",
        "an AlterPartition that rests on an older partition epoch is taken",
        (f"{ISR}:_fault", "wanted.partition_epoch < partition_epoch", "False"),
    ),
    mutant(
        "keeps_unclean_eligible",
        "a replica that lost its unflushed records stays an eligible leader replica",
        (f"{CHANGE}:_with_elr", "(goal.isr, target.unclean_shutdown)", "(goal.isr)"),
    ),
    mutant(
        "unclean_leaves_only_isr",
        "a registration after an unclean stop leaves the eligible replicas of others alone",
        (
            "controller.elections.elections:remove_from_isrs",
            "broker_id in partition.isr or (unclean and broker_id in partition.elr)",
            "broker_id in partition.isr",
        ),
    ),
    mutant(
        "finishes_moves_early",
        "a reassignment ends when one of its target replicas is in sync",
        (
            f"{CHANGE}:_complete_reassignment",
            "not set(staying) <= set(isr)",
            "not set(staying) & set(isr)",
        ),
    ),
    mutant(
        "removes_without_epoch",
        "a replica is taken out of the assignment without a new leader epoch",
        (f"{CHANGE}:_record", "bumps_epoch = not before <= after or (", "bumps_epoch = bool("),
    ),
    mutant(
        "any_epoch_is_clean",
        "a broker that names any former epoch of its own counts as stopped cleanly",
        (
            f"{REGISTRATION}:register_broker",
            "before.epoch == previous_epoch",
            "previous_epoch > NO_BROKER_EPOCH",
        ),
    ),
    mutant(
        "eligible_below_one_less",
        "replicas that leave an in-sync set one above the minimum are not remembered",
        (
            f"{CHANGE}:_is_large_enough",
            "len(isr) >= min(context.min_isr, len(goal.replicas))",
            "len(isr) >= min(context.min_isr, len(goal.replicas)) - 1",
        ),
    ),
)

REPLICATION = (
    mutant(
        "joins_below_epoch_start",
        "a follower joins at the high watermark, which may lag behind what was committed",
        (
            f"{PARTITION}.maybe_expand_isr",
            "max(log.high_watermark, self.epoch_start_offset)",
            "log.high_watermark",
        ),
        (f"{PARTITION}.is_joining", "return follower.is_caught_up(", "return False and bool("),
    ),
    mutant(
        "shrinks_before_the_answer",
        "a leader counts the smaller in-sync set before the controller has answered",
        ("broker.replication.isr:reduction", "maximal=isr", "maximal=left"),
    ),
    mutant(
        "expands_after_the_answer",
        "a leader does not count newcomers before the controller has answered (KIP-497)",
        ("broker.replication.isr:expansion", "maximal=proposed", "maximal=isr"),
        (
            f"{PARTITION}.advance_high_watermark",
            "node in maximal or self.is_joining(node, follower, leader_end)",
            "node in maximal",
        ),
    ),
    mutant(
        "acknowledges_one_early",
        "acks=all is answered one record before the high watermark has passed",
        (
            f"{PARTITION}.committed",
            "self.log.high_watermark < next_offset",
            "self.log.high_watermark < next_offset - 1",
        ),
    ),
    mutant(
        "forgets_min_isr_after_append",
        "acks=all counts the in-sync replicas before the append only",
        (f"{PARTITION}.committed", "len(self.isr) < self.min_isr", "False"),
        (f"{PARTITION}.advance_high_watermark", "len(self.isr) < self.min_isr", "False"),
    ),
    mutant(
        "knows_followers_of_skipped_epochs",
        "a leader that was followed by another and leads again trusts what it knew of followers",
        (
            f"{PARTITION}.apply",
            "self.is_leader and state.leader_epoch == self.leader_epoch + 1",
            "self.is_leader",
        ),
    ),
    mutant(
        "begins_epochs_with_records",
        "a leader's epoch is known from its first record on, not from its election",
        (f"{PARTITION}._begin_epoch", "log.assign_epoch(self.leader_epoch)", "pass"),
    ),
    mutant(
        "follows_older_metadata",
        "a partition goes back to an older partition epoch",
        (f"{PARTITION}.apply", "state.partition_epoch < self.partition_epoch", "False"),
        zookeeper=True,
    ),
    mutant(
        "counts_previous_broker_epochs",
        "a fetch of a broker's former life counts",
        ("broker.replication.followers:check_broker_epoch", "broker_epoch < broker.epoch", "False"),
        ("broker.replication.followers:FollowerState.has_newer_epoch", "> broker_epoch", "is None"),
    ),
    mutant(
        "reads_past_the_watermark",
        "a consumer of the leader reads up to the log's end",
        (
            f"{PARTITION}.read",
            "bound = stable if committed_only else high_watermark",
            "bound = log.log_end_offset",
        ),
    ),
    mutant(
        "compares_ends_of_epochs_only",
        "a leader that lacks the follower's epoch compares the offset alone (KIP-279)",
        (
            "broker.fetch.reading:divergence",
            "epoch < requested.last_fetched_epoch or end_offset < requested.fetch_offset",
            "end_offset < requested.fetch_offset",
        ),
    ),
    mutant(
        "cuts_by_its_own_epoch_end",
        "a follower cuts where its own epoch ends, not where the leader's does",
        (
            "broker.replication.follower_rules:truncation_offset",
            "min(own.end_offset, end_offset, log.log_end_offset)",
            "min(own.end_offset, log.log_end_offset)",
        ),
    ),
    mutant(
        "truncates_to_the_watermark",
        "a follower cuts to its own high watermark when it begins to follow (KIP-101)",
        ("broker.replication.follower_rules:prepare", "log.latest_epoch != NO_EPOCH", "False"),
    ),
    mutant(
        "appends_later_epochs",
        "a follower takes batches of an epoch that it does not follow yet (KAFKA-18723)",
        (
            "log.validation:check_follower_batches",
            "header.partition_leader_epoch > leader_epoch",
            "False",
        ),
    ),
    mutant(
        "remembers_one_batch",
        "only the last batch of an idempotent producer is known again",
        (
            "log.producers.producer_state:ProducerState.check",
            "for batch in entry.batches:",
            "for batch in list(entry.batches)[-1:]:",
        ),
        (
            "log.producers.producer_state:ProducerState._check_sequence",
            "sequence != expected",
            "False",
        ),
    ),
)

ZOOKEEPER = (
    mutant(
        "follows_older_leader_epochs",
        "LeaderAndIsr and UpdateMetadata of an older leader epoch are taken",
        (
            "broker.zookeeper.zk_metadata:_is_older",
            "return (leader_epoch, partition_epoch) <",
            "return () >",
        ),
        zookeeper=True,
    ),
    mutant(
        "compares_partition_epochs_only",
        "a broker compares partition epochs only where an older controller may have spoken",
        (
            "broker.zookeeper.zk_metadata:ZkMetadata.check_sender",
            "controller_epoch < self.controller_epoch",
            "controller_epoch < 0",
        ),
        zookeeper=True,
    ),
    mutant(
        "hears_orders_to_previous_broker_epochs",
        "a broker obeys what was sent to its former registration",
        (
            "broker.zookeeper.zk_metadata:ZkMetadata.check_sender",
            "NO_EPOCH != broker_epoch < max(self.broker_epoch, self.newest_broker_epoch)",
            "False",
        ),
        zookeeper=True,
    ),
    mutant(
        "leads_on_after_a_start",
        "a broker leads at its start what the znodes say, before the controller has spoken",
        (
            "broker.zookeeper.zk_metadata:without_own_leadership",
            "if state.leader == node_id",
            "if False",
        ),
        zookeeper=True,
    ),
    mutant(
        "stops_by_any_epoch",
        "StopReplica of an older leader epoch counts",
        (
            "broker.zookeeper.zk_metadata:ZkMetadata.may_stop",
            "leader_epoch >= state.leader_epoch",
            "True",
        ),
        zookeeper=True,
    ),
)

MUTANTS = (*QUORUM, *CONTROLLER, *REPLICATION, *ZOOKEEPER)
