"""What the console commands make of their options, up to the client's configuration."""

from pathlib import Path

import pytest

from ottla.cli.console.console_consumer import check, consumer_settings, one_group, parse_offset
from ottla.cli.console.console_producer import producer_settings
from ottla.cli.console.librdkafka import given_properties, make, translate
from ottla.cli.errors import CommandError, UsageError

from .conftest import Run

SETTINGS = {"acks": (None, "-1"), "retries": (None, 3), "linger.ms": (None, 1000)}


def test_a_producer_sends_equal_keys_where_java_clients_do() -> None:
    assert producer_settings("x:1", {}, SETTINGS)["partitioner"] == "murmur2_random"


def test_options_win_over_properties_and_these_over_defaults() -> None:
    settings = SETTINGS | {"linger.ms": (5, 1000)}
    config = producer_settings("x:1", {"linger.ms": "7", "acks": "1"}, settings)
    assert (config["linger.ms"], config["acks"], config["retries"]) == (5, "1", 3)


def test_an_idempotent_producer_is_not_kept_from_it_by_the_tools_defaults() -> None:
    config = producer_settings("x:1", {"enable.idempotence": "true"}, SETTINGS)
    assert "retries" not in config
    assert "acks" not in config


def test_java_properties_are_translated() -> None:
    assert translate({"key.serializer": "x", "max.request.size": "9", "client.id": "me"}) == {
        "message.max.bytes": "9",
        "client.id": "me",
    }


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_the_clients_options_under_both_names(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=f\nacks=1\n")
    given, now = ["client.id=p"], ({"client.id": "f", "acks": "1"}, {"client.id": "p"})
    assert given_properties(kind, str(file), given, None, []) == now
    assert capsys.readouterr() == ("", "")
    assert given_properties(kind, None, [], str(file), given) == now
    captured = capsys.readouterr()
    assert captured.out == "", "stdout is for records"
    assert [line.split()[1] for line in captured.err.splitlines()] == [
        f"--{kind}.config",
        f"--{kind}-property",
    ]
    with pytest.raises(UsageError, match=r"--command-config and .* together"):
        given_properties(kind, str(file), [], str(file), [])
    with pytest.raises(UsageError, match=r"--command-property and .* together"):
        given_properties(kind, None, given, None, given)


def test_a_consumer_without_a_group_keeps_no_offsets() -> None:
    config = consumer_settings("x:1", {}, None, False)
    assert config["enable.auto.commit"] == "false"
    assert config["group.id"].startswith("console-consumer-")
    assert (config["auto.offset.reset"], config["isolation.level"]) == (
        "latest",
        "read_uncommitted",
    )
    named = consumer_settings("x:1", {"isolation.level": "read_committed"}, "g", True)
    assert "enable.auto.commit" not in named
    assert (named["group.id"], named["auto.offset.reset"], named["isolation.level"]) == (
        "g",
        "earliest",
        "read_committed",
    )
    with pytest.raises(UsageError, match=r"cannot be used with auto.offset.reset=latest"):
        consumer_settings("x:1", {"auto.offset.reset": "latest"}, None, True)


def test_groups_named_twice_must_agree() -> None:
    assert one_group(None, None) is None
    assert one_group("g", None, "g") == "g"
    with pytest.raises(UsageError, match="different groups: 'g', 'h'"):
        one_group("g", "h")


@pytest.mark.parametrize("name", ["", " ", "\t", "\0", "a\0b", "\udcff"])
def test_groups_that_would_end_the_process(name: str) -> None:
    for given, where in (((name, None), "--group "), ((None, name), "group.id ")):
        with pytest.raises(UsageError, match="expected a group's name") as caught:
            one_group(*given)
        assert str(caught.value).startswith(where)


def test_offsets() -> None:
    assert parse_offset(None, False) == "latest"
    assert parse_offset(None, True) == "earliest"
    assert parse_offset("Earliest", False) == "earliest"
    assert parse_offset("42", False) == 42
    for wrong in ("-1", "first", "", str(2**63), "9" * 4301):
        with pytest.raises(UsageError, match="expected 'earliest', 'latest' or a number from 0"):
            parse_offset(wrong, False)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None, None, None, None, False), "exactly one of --topic and --include is required"),
        (("t", "r", None, None, False), "exactly one of --topic and --include is required"),
        ((None, "r", 0, None, False), "--partition needs --topic"),
        ((None, "\udcff", None, None, False), "expected text in UTF-8"),
        (("t", None, None, "5", False), "--offset needs --partition"),
        (("t", None, 0, "5", True), "--from-beginning cannot be used with --offset"),
    ],
)
def test_options_that_cannot_be_combined(
    given: tuple[str | None, str | None, int | None, str | None, bool], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        check(*given)


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("console-producer", ["--topic", "t", "--compression-codec", "rar"],
         "--compression-codec rar: expected one of none, gzip, snappy, lz4, zstd"),
        ("console-producer", ["--topic", "t", "--line-reader", "com.example.R"],
         "--line-reader com.example.R: Java classes cannot be loaded here"),
        ("console-consumer", ["--topic", "t", "--formatter", "com.example.F"],
         "--formatter com.example.F: expected DefaultMessageFormatter or NoOpMessageFormatter"),
        ("console-consumer", ["--topic", "t", "--group", "g", "--partition", "0"],
         "--group cannot be used with --partition"),
        ("console-consumer", ["--topic", "t", "--partition", "-1"],
         "--partition -1: expected 0 to 2147483647"),
        ("console-consumer", ["--topic", "t", "--timeout", "nan"],
         "--timeout nan: expected more than 0 seconds, at most 1e+06"),
        ("console-consumer", ["--topic", "t", "--command-property", "group.id="],
         "group.id '': expected a group's name, text in UTF-8"),
        ("console-consumer", ["--topic", "t", "--command-property", "\udcff"],
         "--command-property '\\udcff': expected text in UTF-8"),
        ("console-producer", ["--topic", "t", "--command-property", "client.id=\udcff"],
         "--command-property 'client.id=\\udcff': expected text in UTF-8"),
        ("console-consumer", ["--topic", "x" * 600],
         f"--topic {'x' * 100}... (600 characters): "
         "the topic's name is longer than 249 characters"),
        ("console-producer", ["--topic", "\udcff"],
         "--topic '\\udcff': the topic's name '\\udcff' has characters other than "
         "a-z, A-Z, 0-9, '.', '_', '-'"),
        ("console-producer", ["--topic", "t", "--max-block-ms", "0"],
         "--max-block-ms 0: expected 1 or more"),
    ],
)  # fmt: skip
def test_wrong_usage(run: Run, command: str, arguments: list[str], message: str) -> None:
    ran = run(command, "--bootstrap-server", "x:1", *arguments)
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"ottla {command}: {message}")


def test_a_property_that_librdkafka_does_not_know(run: Run) -> None:
    ran = run("console-producer", "--bootstrap-server", "x:1", "--topic", "t",
              "--command-property", "no.such=1")  # fmt: skip
    assert ran.code == 1
    assert ran.err.startswith("ottla console-producer: client configuration: ")
    assert "no.such" in ran.err


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("\udcff", "x", "text in UTF-8"),
        ("client.id", "\udcff", "text in UTF-8"),
        ("client.id", "a\0b", "text in UTF-8"),
        ("stats_cb", "x", "a property that text can set"),
        ("default.topic.config", "x", "a property that text can set"),
    ],
)
def test_properties_that_a_client_does_not_survive(name: str, value: str, expected: str) -> None:
    """No client is made of them, wherever they come from: a file, too, can hold any character."""
    made: list[object] = []
    with pytest.raises(CommandError, match=f"^client configuration: .*: expected {expected}$"):
        make(made.append, {"bootstrap.servers": "x:1", "error_cb": made.append, name: value})
    assert made == []
