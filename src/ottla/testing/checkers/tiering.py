"""Checkers for tiered storage that is turned off and on. Each returns the witnesses of one anomaly.

- tiering state wrong: a state follows another one that it may not follow, or changes the tiered
  epoch, the policy or the floor otherwise than that transition does.
- disabled too early: a topic is DISABLED without its partitions' fences, or, with delete, while an
  in-sync replica still counts on remote segments.
- log start went back: a partition of a topic that was DISABLED with delete begins earlier again.
- disablement not finished: all faults have ended, and a topic is DISABLING, or not what its
  configuration says, or not purged.

Records that a disablement with delete has removed may be gone, in all checkers; the log start must
have moved for that reason (`checkers.log_events`).
"""

from ottla.base.ids import Uuid, uuid_text
from ottla.testing.checkers.promises import Promises
from ottla.testing.checkers.records import Witness, name_of
from ottla.testing.history.history import History
from ottla.testing.history.tiers import DisabledEarly, StartWentBack, TieringSeen

ENABLED, DISABLING, DISABLED = "ENABLED", "DISABLING", "DISABLED"
NO_POLICY, RETAIN, DELETE = "NONE", "RETAIN", "DELETE"


def tiering_states_wrong(history: History) -> list[Witness]:
    """Return the states that may not follow the one before."""
    found = []
    last: dict[Uuid, TieringSeen] = {}
    for after in history.tiers.tiering:
        before = last.get(after.topic_id)
        last[after.topic_id] = after
        if before is not None and not _may_follow(before, after):
            text = f"topic {uuid_text(after.topic_id)}: {_text(before)} is followed by "
            found.append(Witness(text + _text(after), after.at_ms))
    return found


def _text(state: TieringSeen) -> str:
    purge = ", purge pending" if state.purge_pending else ""
    return f"{state.state} ({state.policy}, tiered epoch {state.epoch}, floor {state.floor}{purge})"


def _may_follow(before: TieringSeen, after: TieringSeen) -> bool:
    """Tell whether one state may follow another one. Some may have been seen together."""
    if after.epoch < before.epoch or after.floor < before.floor or after.floor > after.epoch:
        return False
    if after.epoch == before.epoch:
        is_end = (before.state, after.state) == (DISABLING, DISABLED)
        may_be = is_end or before.state == after.state
        keeps_purge = before.purge_pending or not after.purge_pending
        # A DISABLED topic without a remote segment gets its own epoch as the floor.
        keeps_floor = after.floor == before.floor or after.state == DISABLED
        return may_be and after.policy == before.policy and keeps_purge and keeps_floor
    if (after.state == ENABLED) != (after.policy == NO_POLICY):
        return False
    if after.epoch > before.epoch + 1:
        return True
    if after.state == ENABLED:
        return before.state in (DISABLING, DISABLED)
    if after.policy == DELETE:
        return before.policy != DELETE and after.floor in (before.epoch, after.epoch)
    return before.state == ENABLED


def disabled_too_early(history: History) -> list[Witness]:
    """Return the partitions that did not comply when their topic became DISABLED."""
    promises = Promises(history)
    return [
        Witness(f"{name_of(each.partition)} is DISABLED: {each.cause}", each.at_ms)
        for each in history.tiers.events
        if isinstance(each, DisabledEarly)
        if promises.stood(each.partition, each.at_ms)
    ]


def log_starts_that_went_back(history: History) -> list[Witness]:
    """Return the leaders whose logs start earlier than they did when their topic was DISABLED."""
    promises = Promises(history)
    return [
        Witness(
            f"{name_of(each.partition)} began at {each.disabled} when it was DISABLED with delete; "
            f"on its leader, node {each.node}, it begins at {each.start}",
            each.at_ms,
        )
        for each in history.tiers.events
        if isinstance(each, StartWentBack)
        if promises.stood(each.partition, each.at_ms)
    ]


def disablements_unfinished(history: History) -> list[Witness]:
    """Return what did not finish although the brokers and the store are well."""
    if history.healed_ms is None:
        return []
    return [Witness(text, history.ended_ms) for text in history.tiers.disablements_left]
