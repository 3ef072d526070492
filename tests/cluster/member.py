"""One member of a consumer group, as a process: so that it can be killed like a real one.

Run as `python -m tests.cluster.member '<options as JSON>'`. Says on standard output, a JSON list
a line, what happens: its assignment whenever that changes, each record, each commit. A record is
said before its offset is committed. The end of standard input makes it leave the group in order.

librdkafka can lock itself up (`closing`), and then some of its calls hold up the whole process. It
ends with STUCK as its code then, as if it had been killed.
"""

import faulthandler
import json
import select
import sys
import traceback
from typing import Any

from .clients import Refused, client_of

POLL_SECONDS = 0.1
STUCK_SECONDS = 30.0
"""How long one round of librdkafka's may take, of which a commit may wait for a new coordinator."""

STUCK = 1
"""What faulthandler ends a process with."""

FAILED = 3


def say(*event: Any) -> None:
    print(json.dumps(event), flush=True)


def asked_to_leave() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def main(options: dict[str, Any]) -> None:
    consumer = client_of(options["client"]).consumer(
        options["bootstrap"],
        group=options["group"],
        instance=options["instance"],
        session_timeout_ms=options["session_timeout_ms"],
    )
    consumer.subscribe([options["topic"]])
    assigned: list[int] = []
    can_lock_up = options["client"] == "confluent"
    while not asked_to_leave():
        if can_lock_up:
            faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
        records = consumer.poll(POLL_SECONDS)
        now = sorted(partition for _, partition in consumer.assignment())
        if now != assigned:
            assigned = now
            say("assigned", assigned)
        for each in records:
            say("record", each.partition, each.offset, (each.value or b"").decode())
        if records:
            try:
                consumer.commit()
            except Refused as error:
                say("commit-refused", error.code)
            else:
                say("committed")
    if can_lock_up:
        faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)
    consumer.close()
    faulthandler.cancel_dump_traceback_later()
    say("left")


if __name__ == "__main__":
    try:
        main(json.loads(sys.argv[1]))
    except Exception:
        traceback.print_exc()
        sys.exit(FAILED)
