"""Goal: log start <= local log start <= high watermark, whatever moves one of them.

Method: each movement by itself; the checkpoint entries that follow from it.
"""

from ottla.log.dirs.checkpoint_limits import CheckpointLimits
from ottla.log.log_offsets import LogOffsets


def offsets(start: int = 10, local: int = 10, high: int = 60, *, had: bool = False) -> LogOffsets:
    return LogOffsets(
        log_start_offset=start,
        local_log_start_offset=local,
        high_watermark=high,
        clean_offset=40,
        had_remote_prefix=had,
    )


def facts(of: LogOffsets) -> tuple[int, int, int, int]:
    return (of.log_start_offset, of.local_log_start_offset, of.high_watermark, of.clean_offset)


def test_what_is_in_remote_storage_only_was_committed() -> None:
    assert offsets(0, 30, 20).high_watermark == 30


def test_the_local_log_start_follows_the_log_start_forward_only() -> None:
    of = offsets(10, 30)
    assert of.has_remote_prefix
    assert of.advance_log_start(20)
    assert facts(of)[:2] == (20, 30)
    assert not of.advance_log_start(15)
    assert of.advance_log_start(50)
    assert facts(of)[:2] == (50, 50)
    assert not of.has_remote_prefix


def test_the_local_log_start_moves_back_to_the_log_start_at_most() -> None:
    of = offsets(10, 30)
    of.lower_local_start(20)
    assert facts(of)[:2] == (10, 20)
    of.lower_local_start(5)
    assert facts(of)[:2] == (10, 10)
    of.lower_local_start(20)
    assert facts(of)[:2] == (10, 10)


def test_what_is_copied_is_not_known_from_an_earlier_local_log_start_on() -> None:
    of = offsets(10, 30)
    of.remote_copied_to(39)
    of.lower_local_start(30)
    assert of.highest_remote_offset == 39
    of.lower_local_start(20)
    assert of.highest_remote_offset == -1


def test_a_cut_lowers_what_is_above_the_end() -> None:
    of = offsets(10, 30)
    of.remote_copied_to(55)
    of.cut(50)
    assert facts(of) == (10, 30, 50, 40)
    assert of.highest_remote_offset == 49
    of.cut(8)
    assert facts(of) == (8, 8, 8, 8)


def test_a_new_beginning_has_no_remote_prefix() -> None:
    of = offsets(10, 30)
    of.remote_copied_to(29)
    of.start_at(20)
    assert facts(of) == (20, 20, 20, 20)
    assert of.highest_remote_offset == 19
    of.start_at(100)
    assert facts(of) == (100, 100, 100, 20)
    assert of.highest_remote_offset == 19


def test_what_is_copied_does_not_go_back() -> None:
    of = offsets()
    of.remote_copied_to(20)
    of.remote_copied_to(15)
    assert of.highest_remote_offset == 20


def test_a_checkpoint_has_a_local_log_start_only_for_a_remote_prefix() -> None:
    entries = CheckpointLimits(45, 10, 60, 40)
    assert offsets().checkpoint_entries(45) == entries
    assert offsets(10, 30).checkpoint_entries(45) == entries._replace(local_log_start_offset=30)


def test_an_older_checkpoint_may_have_one_that_is_over() -> None:
    of = offsets(10, 10, had=True)
    assert of.checkpoint_entries(45).local_log_start_offset == 0
    assert of.possible_entries(45).local_log_start_offset == 10
    of = offsets(10, 10)
    of.expire_locally(30)
    of.advance_log_start(30)
    assert of.possible_entries(45).local_log_start_offset == 30
