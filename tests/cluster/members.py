"""The parent's side of `member.py`: starts members, hears what they say, ends them."""

import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .clients import eventually
from .member import STUCK, STUCK_SECONDS

ROOT = Path(__file__).parents[2]
END_SECONDS = STUCK_SECONDS + 15.0

STUCK_MAX = 1
"""How many members of a group may lock themselves up in one test. One is rare."""


def flat(assignments: Iterable[Iterable[int]]) -> list[int]:
    """Return all partitions of some members, one owned twice coming twice."""
    return sorted(itertools.chain.from_iterable(assignments))


class Member:
    """A member of a group. Order: `leave` or `kill` before the parent forgets it."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        command = [sys.executable, "-m", "tests.cluster.member", json.dumps(options)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._events: list[list[Any]] = []
        self._ear = threading.Thread(target=self._hear, daemon=True)
        self._ear.start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._events.append(json.loads(line))

    @property
    def assignments(self) -> list[list[int]]:
        """Return all assignments that it had, in order."""
        return [each[1] for each in list(self._events) if each[0] == "assigned"]

    @property
    def assignment(self) -> list[int]:
        """Return the newest assignment; nothing before there is one."""
        return self.assignments[-1] if self.assignments else []

    @property
    def records(self) -> list[tuple[int, int, str]]:
        """Return partition, offset and value of all that it read."""
        return [(each[1], each[2], each[3]) for each in list(self._events) if each[0] == "record"]

    def leave(self) -> None:
        """Let it leave the group in order, and wait for its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(END_SECONDS)
        self._end()
        if not self.is_stuck:
            assert code == 0, f"a member ended with {code}"
            assert self._events[-1] == ["left"]

    def kill(self) -> None:
        """Kill it: its sockets close without a word to the coordinator."""
        self._process.kill()
        self._process.wait(END_SECONDS)
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._end()

    def _end(self) -> None:
        self._ear.join(END_SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    @property
    def instance(self) -> str | None:
        """Return its group.instance.id."""
        return self._options["instance"]  # type: ignore[no-any-return]

    @property
    def is_stuck(self) -> bool:
        """Tell whether it ended because its library had locked itself up."""
        return self._options["client"] == "confluent" and self._process.poll() == STUCK


class Group:
    """Members of one group that read one topic."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.living: list[Member] = []
        self.all: list[Member] = []
        self._stuck = 0

    def join(self, instance: str | None = None) -> Member:
        """Start a member."""
        member = Member(**self._options, instance=instance)
        self.living.append(member)
        self.all.append(member)
        return member

    def leave(self, member: Member) -> None:
        member.leave()
        self.living.remove(member)

    def kill(self, member: Member) -> None:
        member.kill()
        self.living.remove(member)

    def wait_covered(self, partitions: int, *, within: float = 60.0) -> None:
        """Wait until the living members share all partitions, each having some."""

        def assignments() -> list[list[int]]:
            self._replace_stuck()
            ended = [member for member in self.living if member.ended]
            assert not ended, f"{len(ended)} members ended on their own"
            return [member.assignment for member in self.living]

        eventually(
            assignments,
            lambda found: all(found) and flat(found) == list(range(partitions)),
            within=within,
            what=f"{partitions} partitions to be shared by {len(self.living)} members",
        )

    def wait_read(self, values: Iterable[str], *, within: float = 60.0) -> None:
        """Wait until the members, past ones too, have read all values."""
        wanted = set(values)

        def unread() -> set[str]:
            self._replace_stuck()
            return wanted - set(self.read())

        eventually(
            unread,
            lambda missing: not missing,
            within=within,
            what="all records to be read",
        )

    def _replace_stuck(self) -> None:
        for member in [each for each in self.living if each.is_stuck]:
            self._stuck += 1
            assert self._stuck <= STUCK_MAX, f"{self._stuck} members locked themselves up"
            self.kill(member)
            self.join(member.instance)

    def read(self) -> Counter[str]:
        """Return how often each value was read, by all members together."""
        return Counter(value for member in self.all for _, _, value in member.records)


@contextmanager
def group_of(**options: Any) -> Iterator[Group]:
    """A group whose members end with the block, however it ends."""
    group = Group(**options)
    try:
        yield group
    finally:
        for member in list(group.living):
            group.kill(member)
