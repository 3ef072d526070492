"""Which options of `ottla topics` go together, and how their values are read."""

import pytest

from ottla.cli.errors import UsageError
from ottla.cli.topics.topic_options import (
    TopicOptions,
    check,
    parse_assignment,
    parse_configs,
    parse_topic_id,
)
from tests.unit.cli.conftest import Run

ACTIONS = "--create, --delete, --describe, --list, --alter, --describe-deletions, --describe-idle"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], f"expected exactly one of {ACTIONS}, got none"),
        (
            ["--create", "--list"],
            f"expected exactly one of {ACTIONS}, got --create, --list",
        ),
        (["--create"], "--topic is required with --create"),
        (["--delete"], "--topic is required with --delete"),
        (["--alter", "--topic", "t"], "--partitions is required with --alter"),
        (["--list", "--partitions", "3"], "--partitions cannot be used with --list"),
        (["--delete", "--topic", "t", "--if-not-exists"], "--if-not-exists cannot be used with "
         "--delete"),
        (["--create", "--topic", "t", "--if-exists"], "--if-exists cannot be used with --create"),
        (["--list", "--under-replicated-partitions"], "--under-replicated-partitions cannot be "
         "used with --list"),
        (["--alter", "--topic", "t", "--partitions", "2", "--config", "a=b"], "--config cannot be "
         "used with --alter"),
        *(
            ([f"--{action}", "--topic", "t", "--partitions", number], f"--partitions {number}: "
             "expected 1 to 2147483647")
            for action in ("create", "alter")
            for number in ("0", "99999999999")
        ),
        *(
            (["--describe", "--partition-size-limit-per-response", number],
             f"--partition-size-limit-per-response {number}: expected 1 to 2147483647")
            for number in ("-5", "0", "99999999999")
        ),
        (
            ["--create", "--topic", "t", "--replica-assignment", "1:99999999999"],
            "--replica-assignment 1:99999999999: expected broker ids from 0 to 2147483647, "
            "as 1:2,2:3",
        ),
        (
            ["--create", "--topic", "t", "--replication-factor", "40000"],
            "--replication-factor 40000: expected 1 to 32767",
        ),
        (
            ["--create", "--topic", "t", "--replica-assignment", "1", "--partitions", "1"],
            "--partitions cannot be used with --replica-assignment",
        ),
        (["--create", "--topic", "t", "--config", "a"], "--config a: expected NAME=VALUE"),
        (["--describe", "--topic-id", "x"], "--topic-id 'x' is not a UUID: expected 22 base64url "
         "characters"),
        (["--list"], "--bootstrap-server HOST:PORT is required, since no cluster runs from "
         "./ottla-data"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_and_exit_code_2(
    run: Run, arguments: list[str], message: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))  # Where no ./ottla-data is.
    ran = run("topics", *arguments)
    assert ran.code == 2
    assert ran.err == f"ottla topics: {message}\nSee 'ottla topics --help'.\n"


def test_assignments() -> None:
    assert parse_assignment(None) == ()
    assert parse_assignment("1:2,2:3, 3:1") == ((1, 2), (2, 3), (3, 1))


@pytest.mark.parametrize("text", ["1:1", "1:2,3", "1:x", "", "1,", "1:" + "9" * 5000, "\u0661"])
def test_assignments_that_make_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--replica-assignment"):
        parse_assignment(text)


def test_configs_keep_equal_signs_and_empty_values() -> None:
    assert parse_configs(["a = b", "c=d=e", "f="]) == (("a", "b"), ("c", "d=e"), ("f", ""))


def test_topic_ids() -> None:
    assert parse_topic_id(None) is None
    assert parse_topic_id("AAAAAAAAAAAAAAAAAAAAAQ") == bytes(15) + b"\x01"


def test_valid_options_pass() -> None:
    check("create", TopicOptions(topic="t", partitions=3, replication_factor=1, if_not_exists=True))
    check("describe", TopicOptions(topic="t", if_exists=True, at_min_isr_partitions=True))
    check("alter", TopicOptions(topic="t", partitions=3, replica_assignment=((1,), (2,), (3,))))
    check("list", TopicOptions(exclude_internal=True))
