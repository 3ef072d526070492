"""Goal: kazoo's results are translated exactly, and sizes of requests are never underestimated.

Method: kazoo's own exceptions, and its own serialization as the measure.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.protocol.serialization import Transaction

from ottla.base.zookeeper import Check, Create, Delete, Operation, SetData, ZkCode, ZkError
from ottla.host.zookeeper.kazoo.kazoo_requests import (
    below,
    error_of,
    full_path,
    results_of,
    size_of,
    transaction,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (exceptions.NoNodeError(), ZkCode.NO_NODE),
        (exceptions.BadVersionError(), ZkCode.BAD_VERSION),
        (exceptions.SessionExpiredError(), ZkCode.SESSION_EXPIRED),
        (exceptions.ConnectionLoss(), ZkCode.CONNECTION_LOSS),
        (exceptions.SessionMovedError(), ZkCode.CONNECTION_LOSS),
        (exceptions.ConnectionClosedError(), ZkCode.CONNECTION_LOSS),
        (exceptions.QuotaExceededError(), ZkCode.SYSTEM_ERROR),
        (RuntimeError("kazoo's own"), ZkCode.SYSTEM_ERROR),
    ],
)
def test_codes(error: Exception, code: ZkCode) -> None:
    assert error_of(error, "/a").code is code


def test_of_a_failed_multi_the_operation_that_failed_is_named() -> None:
    operations = [Create("/a"), Delete("/b"), Check("/c", 1)]
    answers: list[Any] = [
        exceptions.RolledBackError(),
        exceptions.NoNodeError(),
        exceptions.RuntimeInconsistency(),
    ]
    error = results_of("/root", operations, answers)
    assert isinstance(error, ZkError)
    assert (error.code, error.path, error.index) == (ZkCode.NO_NODE, "/b", 1)


@pytest.mark.parametrize("root", ["", "/chroot"])
def test_paths_below_a_root(root: str) -> None:
    for path in ("/", "/a", "/a/b"):
        assert below(root, full_path(root, path)) == path
    assert full_path(root, "/") == (root or "/")


names = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=40)
paths = names.filter(lambda name: name not in (".", "..")).map(lambda name: "/" + name)
operations = st.one_of(
    st.builds(Create, paths, st.binary(max_size=50), st.booleans(), st.booleans()),
    st.builds(SetData, paths, st.binary(max_size=50), st.integers(-1, 9)),
    st.builds(Delete, paths, st.integers(-1, 9)),
    st.builds(Check, paths, st.integers(0, 9)),
)


@given(st.lists(operations, max_size=20))
def test_a_multi_is_never_larger_than_its_size(made: list[Operation]) -> None:
    client = KazooClient()
    request = transaction(client, "/root", made)
    # Beside the operations: the number of the request and its type.
    assert len(Transaction(request.operations).serialize()) + 8 <= size_of("/root", made)
