"""Records that are gone must fail a query, or be left out where the query says so.

Method: DeleteRecords and topics deleted and re-created, before and after planning.
"""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.spark import ClusterError

pytestmark = pytest.mark.spark


@pytest.fixture
def hundred(make_topic: Callable[..., str], produce: Callable[..., None]) -> str:
    topic = make_topic()
    produce(topic, [(None, b"%d" % number) for number in range(100)])
    return topic


def delete_before(admin: AdminClient, topic: str, offset: int) -> None:
    (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    future.result(30)


def test_before_planning(load: Callable[..., Any], admin: AdminClient, hundred: str) -> None:
    delete_before(admin, hundred, 30)
    assert load(hundred).agg({"offset": "min"}).first()[0] == 30
    explicit = {"startingOffsets": f'{{"{hundred}":{{"0":0}}}}'}
    with pytest.raises(Exception, match="offsets 0 to 29 are no longer available"):
        load(hundred, **explicit).count()
    assert load(hundred, failOnDataLoss="false", **explicit).count() == 70


def test_an_end_beyond_the_log(load: Callable[..., Any], hundred: str) -> None:
    explicit = {"endingOffsets": f'{{"{hundred}":{{"0":500}}}}'}
    with pytest.raises(Exception, match="the query ends at 500, the log at 100"):
        load(hundred, **explicit).count()
    assert load(hundred, failOnDataLoss="false", **explicit).count() == 100


def test_after_planning(load: Callable[..., Any], admin: AdminClient, hundred: str) -> None:
    strict, lenient = load(hundred), load(hundred, failOnDataLoss="false")
    assert (strict.count(), lenient.count()) == (100, 100)
    delete_before(admin, hundred, 60)
    with pytest.raises(Exception, match="offsets 0 to 59 are no longer available"):
        strict.count()
    assert lenient.count() == 40


def test_a_topic_created_anew(
    load: Callable[..., Any],
    admin: AdminClient,
    produce: Callable[..., None],
    hundred: str,
) -> None:
    quick = {"kafka__default__api__timeout__ms": "1000"}
    strict = load(hundred, **quick)
    lenient = load(hundred, failOnDataLoss="false", **quick)
    assert (strict.count(), lenient.count()) == (100, 100)
    admin.delete_topics([hundred])[hundred].result(30)
    admin.create_topics([NewTopic(hundred, 1, 1)])[hundred].result(30)
    # Longer than before: offsets alone would not tell.
    produce(hundred, [(None, b"new %d" % number) for number in range(150)])
    with pytest.raises(Exception, match="deleted and re-created"):
        strict.count()
    assert lenient.count() == 0
    assert load(hundred).count() == 150


def test_no_such_topic(load: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match=f"{ClusterError.__name__}.*topic no-such-topic"):
        load("no-such-topic", kafka__default__api__timeout__ms="500").count()
