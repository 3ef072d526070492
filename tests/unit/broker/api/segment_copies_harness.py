"""A broker that leads `t`, whose grant tasks are a test's: they answer when it says so."""

from types import SimpleNamespace
from typing import Any, cast

from ottla.base.ids import Uuid
from ottla.base.pending import Pending
from ottla.metadata.tiering import TopicTiering, tiering_record
from tests.unit.broker.harness import TOPIC_ID, BrokerHarness


class CopiesHarness(BrokerHarness):
    """See the module. `asked`: partition and request; `answers`: one for each, in order."""

    def __init__(self, *, partitions: int = 2, is_tiered: bool = True) -> None:
        super().__init__()
        self.add_broker()
        self.add_topic(partitions=partitions)
        if is_tiered:
            self.commit(tiering_record(TopicTiering(topic_id=TOPIC_ID)))
        self.asked: list[tuple[int, Any]] = []
        self.answers: list[Pending[Any]] = []
        manager = SimpleNamespace(grant_copies=self._take, commit_copies=self._take)
        self.broker.remote = cast(Any, SimpleNamespace(manager=manager))

    def _take(self, topic_id: Uuid, partition: int, request: Any) -> Pending[Any]:
        assert topic_id == TOPIC_ID
        answer: Pending[Any] = Pending()
        self.asked.append((partition, request))
        self.answers.append(answer)
        return answer

    def begun(self, api: Any, request: Any) -> Pending[Any]:
        answer = api.handle(self.context(api.API.key, 0), request)
        assert isinstance(answer, Pending)
        return answer
