"""Options that the tools share: property files, NAME=VALUE pairs, absent options."""

from pathlib import Path

import pytest

from ottla.cli.errors import CommandError, UsageError
from ottla.cli.options import (
    connect,
    is_given,
    key_values,
    one_of,
    parse_ids,
    parse_number,
    read_property_file,
)


def test_pairs() -> None:
    assert key_values(["a=b", "c=d=e", "f=", "g"], "--property") == {
        "a": "b",
        "c": "d=e",
        "f": "",
        "g": "",
    }
    for wrong in ("=b", ""):
        with pytest.raises(UsageError, match="expected NAME=VALUE"):
            key_values([wrong], "--property")
    with pytest.raises(UsageError, match="--config g: expected NAME=VALUE"):
        key_values(["g"], "--config", empty=False)


def test_zero_is_a_value() -> None:
    """`--to-offset 0` once counted as not given, since 0 equals False."""
    assert [is_given(value) for value in (0, "", "x", True)] == [True] * 4
    assert [is_given(value) for value in (None, False, ())] == [False] * 3


def test_exactly_one() -> None:
    assert one_of(list=False, describe_all=True) == "describe_all"
    with pytest.raises(UsageError, match="expected exactly one of --list, --describe-all, got no"):
        one_of(list=False, describe_all=False)


def test_property_files(tmp_path: Path) -> None:
    assert read_property_file(None) == {}
    file = tmp_path / "client.properties"
    file.write_text("client.id=me\nsecurity.protocol=SASL_SSL\n")
    assert read_property_file(str(file))["client.id"] == "me"
    with pytest.raises(CommandError, match=r"security.protocol=SASL_SSL: expected PLAINTEXT"):
        connect("x:1", str(file))


def test_a_clients_name_that_does_not_fit_a_request(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"client.id={'x' * 32_768}\n")
    with pytest.raises(CommandError, match=r"client\.id=x*: expected 32767 bytes at most"):
        connect("x:1", str(file))


def test_ids() -> None:
    assert parse_ids("1, 2,2147483647") == [1, 2, 2_147_483_647]
    assert parse_ids("1:2", ":") == [1, 2]
    for text in ("", "1,", "x", "-1", "2147483648", "\u0661", "9" * 5000, "0" * 5000):
        assert parse_ids(text) is None


def test_numbers_of_more_digits_than_python_reads() -> None:
    assert (parse_number("042"), parse_number(str(2**63))) == (42, 2**63)
    for text in ("", "-1", "\u0661", "x", "9" * 4301, "0" * 5000):
        assert parse_number(text) is None


def test_a_timeout_must_leave_some_time() -> None:
    for text in ("0", "-1", "nan", "inf"):
        with pytest.raises(UsageError, match=f"--timeout {text}: expected more than 0 seconds"):
            connect("x:1", None, float(text))
