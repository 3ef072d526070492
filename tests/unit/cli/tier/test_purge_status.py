"""`ottla tier purge-status` against a fake broker: requests, table and JSON.

Method: answers made by hand; whole lines are compared, since people and programs read them.
"""

import json

from ottla.base.ids import Uuid, uuid_text
from ottla.metadata.deletions import DeletionState, Policy, Remote
from ottla.wire.messages import describe_deletions as wire
from tests.unit.cli.conftest import Ran, Run
from tests.unit.client.fake_broker import FakeBroker

ID = Uuid(bytes(range(16)))
ROW = wire.DeletedReplicas(
    broker_id=1, state=DeletionState.SUCCESSFUL, reason=0, error=0, partitions=(0, 1, 2)
)


def entry(name: str = "orders", **changes: object) -> wire.DescribedDeletion:
    values: dict[str, object] = {
        "topic_id": ID,
        "name": name,
        "policy": Policy.AT_ONCE,
        "asked_ms": 1_700_000_000_123,
        "halted": 0,
        "remote": Remote.PENDING,
        "replicas": (ROW,),
        "remote_partitions": 3,
        "remote_partitions_left": 2,
    }
    return wire.DescribedDeletion(**(values | changes))  # type: ignore[arg-type]


def ask(run: Run, broker: FakeBroker, *words: str, found: list[wire.DescribedDeletion]) -> Ran:
    def answer(request: wire.DescribeDeletionsRequest) -> wire.DescribeDeletionsResponse:
        assert not request.include_receipts
        return wire.DescribeDeletionsResponse(error_code=0, deletions=tuple(found))

    broker.answer(wire.DescribeDeletionsRequest, answer)
    return run("tier", "purge-status", "--bootstrap-server", broker.address, *words)


def test_each_topic_has_a_line(run: Run, broker: FakeBroker) -> None:
    known = entry(remote_segments_left=7, remote_bytes_left=2048, remote_error="denied: 403")
    local = entry("local", remote=Remote.NONE)
    purged = entry("purged", remote=Remote.PURGED)
    ran = ask(run, broker, found=[known, local, entry("payments"), purged])
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        "TOPIC     TOPIC ID                DELETED               PARTITIONS LEFT  SEGMENTS LEFT"
        "  SIZE LEFT  LAST ERROR",
        "orders    AAECAwQFBgcICQoLDA0ODw  2023-11-14T22:13:20Z  2 of 3           7            "
        "  2.0 KiB    denied: 403",
        "payments  AAECAwQFBgcICQoLDA0ODw  2023-11-14T22:13:20Z  2 of 3           -            "
        "  -          -",
    ]


def test_json_has_null_for_what_is_not_known(run: Run, broker: FakeBroker) -> None:
    ran = ask(run, broker, "--json", "--topic", "orders", found=[entry()])
    assert json.loads(ran.out) == {
        "purges": [
            {
                "topic": "orders",
                "topic_id": uuid_text(ID),
                "asked_ms": 1_700_000_000_123,
                "partitions": 3,
                "partitions_left": 2,
                "segments_left": None,
                "bytes_left": None,
                "last_error": None,
            }
        ]
    }


def test_nothing_is_pending(run: Run, broker: FakeBroker) -> None:
    assert ask(run, broker, found=[]).out == "No purge is pending.\n"
    assert json.loads(ask(run, broker, "--json", found=[]).out) == {"purges": []}
