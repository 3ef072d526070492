"""The JSON files of reassign-partitions and leader-election: what is taken, what is refused how.

Method: texts in, values or one-line refusals out; what is written is read back.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.errors import CommandError
from ottla.cli.partitions import partition_file as files

partitions = st.tuples(st.text(max_size=5), st.integers(0, files.NUMBER_MAX))
replicas = st.lists(st.integers(0, files.NUMBER_MAX), max_size=4).map(tuple)


def test_a_reassignment() -> None:
    text = (
        '{"partitions": [{"topic": "b", "partition": 1, "replicas": [3, 1]},'
        ' {"topic": "a", "partition": 0, "replicas": [2], "log_dirs": ["any"]}]}'
    )
    assert files.parse_reassignment(text) == [(("b", 1), (3, 1)), (("a", 0), (2,))]
    assert files.parse_reassignment("{}") == []


def test_the_written_format() -> None:
    assert files.format_reassignment({("b", 0): (2, 1), ("a", 7): (3,)}) == (
        '{"version":1,"partitions":['
        '{"topic":"a","partition":7,"replicas":[3],"log_dirs":["any"]},'
        '{"topic":"b","partition":0,"replicas":[2,1],"log_dirs":["any","any"]}]}'
    )


@given(st.dictionaries(partitions, replicas, max_size=5))
def test_a_written_file_can_be_read_back(
    assignment: dict[tuple[str, int], tuple[int, ...]],
) -> None:
    text = files.format_reassignment(assignment)
    assert files.parse_reassignment(text) == sorted(assignment.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not JSON: "),
        ("[]", "expected a JSON object"),
        ('{"version": 2}', "Not supported version field value 2"),
        ('{"partitions": 7}', '"partitions": expected a list'),
        ('{"partitions": [{"topic": "a"}]}', '{"topic": "a"}: expected {"topic": text, '),
        ('{"partitions": [{"topic": "a", "partition": -1, "replicas": []}]}', '{"topic": "a", '),
        ('{"partitions": [{"topic": "a", "partition": true, "replicas": []}]}', '{"topic": "a", '),
        ('{"partitions": [{"topic": "a", "partition": 0, "replicas": ["1"]}]}', '{"topic": "a", '),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": []}]}',
            "Size of replicas list [1] is different from size of log dirs list [] for partition",
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": [7]}]}',
            'a-0: "log_dirs": expected a list of text',
        ),
        (
            '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}',
            'a-0: "log_dirs": /d: expected "any": choosing a '
            "replica's log directory is not supported",
        ),
    ],
)
def test_refused_reassignments(text: str, message: str) -> None:
    with pytest.raises(CommandError) as refusal:
        files.parse_reassignment(text)
    assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("proposals", "message"),
    [
        ([], "Partition reassignment list cannot be empty"),
        ([(("a", 0), ())], "Partition replica list cannot be empty: that of a-0 is"),
        (
            [(("a", 0), (1,)), (("a", 0), (2,))],
            "Partition reassignment contains duplicate topic partitions: a-0",
        ),
        (
            [(("a", 0), (2, 1, 2, 1))],
            "Partition replica lists may not contain duplicate entries: "
            "a-0 contains multiple entries for 1,2",
        ),
    ],
)
def test_invalid_reassignments(proposals: list[files.Proposal], message: str) -> None:
    with pytest.raises(CommandError) as refusal:
        files.check_executable(proposals)
    assert str(refusal.value) == message


def test_valid_reassignments() -> None:
    assert files.check_executable([(("a", 0), (2, 1))]) == {("a", 0): (2, 1)}


def test_topics_to_move() -> None:
    text = '{"topics": [{"topic": "b"}, {"topic": "a"}], "version": 1}'
    assert files.parse_topics(text) == ["b", "a"]
    with pytest.raises(CommandError, match=r'{"name": "b"}: expected {"topic": text}'):
        files.parse_topics('{"topics": [{"name": "b"}]}')
    with pytest.raises(CommandError, match="to reassign contains duplicate entries: a"):
        files.parse_topics('{"topics": [{"topic": "a"}, {"topic": "a"}]}')


def test_partitions_to_elect() -> None:
    text = '{"partitions": [{"topic": "b", "partition": 1}, {"topic": "a", "partition": 0}]}'
    assert files.parse_partitions(text) == [("b", 1), ("a", 0)]
    with pytest.raises(CommandError, match='is missing "partitions" field'):
        files.parse_partitions("{}")
    with pytest.raises(CommandError, match=r"expected {.topic.: text, .partition.: number from 0}"):
        files.parse_partitions('{"partitions": [{"topic": "b"}]}')
    with pytest.raises(CommandError, match="contains duplicate partitions: a-0"):
        files.parse_partitions(
            '{"partitions": [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 0}]}'
        )


def test_refusals_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "moves.json"
    with pytest.raises(CommandError) as refusal:
        files.read_as(path, files.parse_topics)
    assert str(refusal.value) == f"{path}: no such file or directory"
    path.write_text("{")
    with pytest.raises(CommandError, match=r"moves\.json: not JSON"):
        files.read_as(path, files.parse_topics)
    path.write_bytes(b"\xff")
    with pytest.raises(CommandError, match=r"moves\.json: expected text in UTF-8"):
        files.read_as(path, files.parse_topics)
