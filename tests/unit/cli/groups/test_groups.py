"""`ottla groups` prints what kafka-groups.sh prints. Method: a fake broker lists groups."""

import pytest

from ottla.wire.messages import list_groups as wire
from tests.unit.cli.conftest import Run
from tests.unit.client.fake_broker import FakeBroker

GROUPS = {
    "billing": ("consumer", "classic"),
    "connect": ("connect", "classic"),
    "offsets-only": ("", "classic"),
    "new": ("consumer", "consumer"),
    "shared": ("share", "share"),
    "a-name-that-is-wider-than-the-column": ("streams", "streams"),
}


@pytest.fixture(autouse=True)
def _serve(broker: FakeBroker) -> None:
    def answer(_: wire.ListGroupsRequest) -> wire.ListGroupsResponse:
        return wire.ListGroupsResponse(
            error_code=0,
            groups=tuple(
                wire.ListedGroup(
                    group_id=name, protocol_type=protocol, group_state="Empty", group_type=kind
                )
                for name, (protocol, kind) in GROUPS.items()
            ),
        )

    broker.answer(wire.ListGroupsRequest, answer)


def test_the_table_has_kafkas_columns(run: Run, broker: FakeBroker) -> None:
    words = ("groups", "--bootstrap-server", broker.address, "--list")
    ran = run(*words, "--protocol", "connect")
    assert ran == (
        0,
        "GROUP                TYPE                 PROTOCOL            \n"
        "connect              Classic              connect              \n",
        "",
    )
    wide = run(*words, "--streams").out.splitlines()
    assert wide[1].startswith("a-name-that-is-wider-than-the-column Streams              streams ")
    assert wide[0].index("TYPE") == wide[1].index("Streams")


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ((), sorted(GROUPS)),
        (("--consumer",), ["billing", "new", "offsets-only"]),
        (("--share",), ["shared"]),
        (("--group-type", "Classic"), ["billing", "connect", "offsets-only"]),
        (("--group-type", "classic", "--protocol", ""), ["offsets-only"]),
    ],
)
def test_filters(run: Run, broker: FakeBroker, options: tuple[str, ...], chosen: list[str]) -> None:
    ran = run("groups", "--bootstrap-server", broker.address, "--list", *options)
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == chosen


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Command must include exactly one action: --list."),
        (("--list", "--consumer", "--share"), "--consumer cannot be used with --share"),
        (("--list", "--share", "--group-type", "share"), "--share cannot be used with --group-ty"),
        (("--list", "--group-type", "cats"), "--group-type cats: expected classic, consumer"),
    ],
)
def test_wrong_usage(run: Run, options: tuple[str, ...], message: str) -> None:
    ran = run("groups", "--bootstrap-server", "x:1", *options)
    assert ran.code == 2
    assert ran.err.startswith(f"ottla groups: {message}")
