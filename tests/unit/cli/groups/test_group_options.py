"""Which options of `ottla consumer-groups` go together."""

import pytest

from ottla.cli.errors import UsageError
from ottla.cli.groups.group_options import STATES, TYPES, GroupOptions, check, parse_names
from ottla.cli.typing_app import fill_values
from tests.unit.cli.conftest import Run

RESET = {"group": ("g",), "topic": ("t",)}


@pytest.mark.parametrize(
    ("action", "options", "message"),
    [
        ("list", {"group": ("g",)}, "--group cannot be used with --list"),
        ("describe", {}, "--describe needs --group or --all-groups"),
        ("describe", {"group": ("g",), "all_groups": True}, "--group cannot be used with "
         "--all-groups"),
        ("describe", {"group": ("g",), "members": True, "state": ""}, "--describe takes one of "
         "--members, --offsets and --state"),
        ("describe", {"group": ("g",), "state": "stable"}, "--state stable: expected no value "
         "with --describe"),
        ("describe", {"group": ("g",), "type": ""}, "--type cannot be used with --describe"),
        ("delete", {"group": ("g",), "topic": ("t",)}, "--topic cannot be used with --delete"),
        ("delete", {}, "--delete needs --group or --all-groups"),
        ("delete-offsets", {"group": ("g",)}, "--delete-offsets needs one --group, and --topic"),
        ("delete-offsets", {"topic": ("t",)}, "--delete-offsets needs --group"),
        ("reset-offsets", {"group": ("g",), "to_latest": True}, "--reset-offsets needs --topic or "
         "--all-topics"),
        ("reset-offsets", RESET | {"to_latest": True, "dry_run": True, "execute": True},
         "--dry-run cannot be used with --execute"),
        ("reset-offsets", RESET | {"to_latest": True, "to_offset": 0}, "--reset-offsets needs "
         "exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, "
         "--by-duration, --to-datetime, --from-file, got --to-latest, --to-offset"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_combined(
    action: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check(action, GroupOptions(**options))  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("action", "options"),
    [
        ("list", {"state": "", "type": "classic"}),
        ("describe", {"all_groups": True, "members": True, "verbose": True}),
        ("delete", {"group": ("g", "h")}),
        ("delete-offsets", RESET),
        ("reset-offsets", RESET | {"to_offset": 0, "execute": True}),
        ("reset-offsets", {"all_groups": True, "from_file": "f"}),
    ],
)
def test_options_that_can_be_combined(action: str, options: dict[str, object]) -> None:
    check(action, GroupOptions(**options))  # type: ignore[arg-type]


def test_names_in_any_case() -> None:
    assert parse_names("stable, PreparingRebalance", STATES, "--state") == (
        "Stable",
        "PreparingRebalance",
    )
    assert parse_names("", STATES, "--state") == ()
    assert parse_names(None, TYPES, "--type") == ()
    with pytest.raises(UsageError, match="--state awake: expected some of Stable, Empty"):
        parse_names("awake", STATES, "--state")


def test_options_whose_value_may_be_left_out() -> None:
    optional = {"--state": "", "--codec": "gzip"}
    assert fill_values(["--list", "--state"], optional) == ["--list", "--state", ""]
    assert fill_values(["--state", "--list"], optional) == ["--state", "", "--list"]
    assert fill_values(["--state", "empty"], optional) == ["--state", "empty"]
    assert fill_values(["--codec", "--sync"], optional) == ["--codec", "gzip", "--sync"]


def test_wrong_usage_ends_with_exit_code_2(run: Run) -> None:
    ran = run("consumer-groups", "--bootstrap-server", "x:1", "--describe")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        "ottla consumer-groups: --describe needs --group or --all-groups",
    )
