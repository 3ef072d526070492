"""The tree does what its operations say: all of them or none, and its Stats count every write.

Method: random transactions of three sessions, beside a reference that copies everything before
each transaction and knows only names, data, versions and owners.
"""

import copy
from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.base.zookeeper import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    EventKind,
    Operation,
    SetData,
    ZkCode,
    ZkError,
    ZnodeData,
)
from ottla.testing.sim.zookeeper.zookeeper_tree import Author, Tree, parent_of, request_bytes

PATHS = ["/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a"]
path = st.sampled_from(PATHS)
version = st.sampled_from([ANY_VERSION, ANY_VERSION, 0, 1, 2])
data = st.binary(max_size=3)
operation: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, path, data, st.booleans(), st.booleans()),
    st.builds(SetData, path, data, version),
    st.builds(Delete, path, version),
    st.builds(Check, path, version),
)
END = None
"""In a history: the session ends."""
history = st.lists(
    st.tuples(
        st.integers(1, 3), st.one_of(st.lists(operation, min_size=1, max_size=5), st.just(END))
    ),
    max_size=30,
)


@dataclass
class Known:
    data: bytes
    owner: int = 0
    version: int = 0
    creations: int = 0
    deletions: int = 0


@dataclass
class Reference:
    nodes: dict[str, Known] = field(default_factory=lambda: {"/": Known(b"")})

    def do(self, operation: Operation, session: int) -> ZkCode | str | None:
        """Do it, and answer the code of its refusal, or the path of what was created."""
        where = operation.path
        node = self.nodes.get(where)
        if isinstance(operation, Create):
            parent = self.nodes.get(parent_of(where))
            if parent is None:
                return ZkCode.NO_NODE
            if operation.sequential:
                where = f"{where}{parent.creations:010d}"
            if where in self.nodes:
                return ZkCode.NODE_EXISTS
            if parent.owner:
                return ZkCode.NO_CHILDREN_FOR_EPHEMERALS
            parent.creations += 1
            self.nodes[where] = Known(operation.data, session if operation.ephemeral else 0)
            return where
        if node is None:
            return ZkCode.NO_NODE
        if operation.version not in (ANY_VERSION, node.version):
            return ZkCode.BAD_VERSION
        if isinstance(operation, SetData):
            node.data = operation.data
            node.version += 1
        if isinstance(operation, Delete):
            if any(parent_of(each) == where for each in self.nodes if each != "/"):
                return ZkCode.NOT_EMPTY
            self.remove(where)
        return None

    def remove(self, where: str) -> None:
        del self.nodes[where]
        self.nodes[parent_of(where)].deletions += 1


def assert_same(tree: Tree, reference: Reference) -> None:
    assert set(tree.nodes) == set(reference.nodes)
    for where, known in reference.nodes.items():
        got = tree.get(where)
        assert isinstance(got, ZnodeData)
        stat = got.stat
        assert (got.data, stat.version) == (known.data, known.version)
        assert stat.ephemeral_owner == known.owner
        assert stat.cversion == known.creations + known.deletions
        children = [each for each in reference.nodes if each != "/" and parent_of(each) == where]
        assert tree.children(where) == tuple(sorted(each.rpartition("/")[2] for each in children))
        owned = {each for each in tree.ephemerals.get(known.owner, set()) if known.owner}
        assert (where in owned) == bool(known.owner)
    for owner, paths in tree.ephemerals.items():
        assert set(paths) == {
            where for where, known in reference.nodes.items() if known.owner == owner
        }


@settings(deadline=None)
@given(history)
@example([(1, [Create("/a", b""), Delete("/a"), Create("/a", b"")])])
def test_transactions_agree_with_a_reference(
    history: list[tuple[int, list[Operation] | None]],
) -> None:
    tree, reference = Tree(), Reference()
    born: dict[str, int] = {}
    for zxid, (session, operations) in enumerate(history, 1):
        author = Author(session, zxid, 1_000 + zxid)
        if operations is END:
            tree.end_session(author)
            for where in sorted(
                each for each, known in reference.nodes.items() if known.owner == session
            ):
                reference.remove(where)
            assert_same(tree, reference)
            continue
        trial = copy.deepcopy(reference)
        answers = []
        for each in operations:
            answers.append(trial.do(each, session))
            if isinstance(answers[-1], ZkCode):
                break
        done = tree.apply(operations, author)
        if isinstance(answers[-1], ZkCode):
            assert isinstance(done, ZkError)
            assert (done.code, done.index) == (answers[-1], len(answers) - 1)
        else:
            assert not isinstance(done, ZkError)
            reference = trial
            results, events = done
            made = [each for each in results if isinstance(each, str)]
            assert made == [each for each in answers if isinstance(each, str)]
            assert sum(event.kind is EventKind.CREATED for event in events) == len(made)
            for where in set(made):  # One may be created, deleted and created again.
                node = tree.nodes.get(where)
                if node is not None:
                    assert node.czxid == zxid > born.get(where, 0)
                    born[where] = zxid
        assert_same(tree, reference)


@given(st.lists(operation, max_size=6))
def test_a_refused_transaction_leaves_no_trace(operations: list[Operation]) -> None:
    tree = Tree()
    tree.apply([Create("/a", b"0"), Create("/a/a", ephemeral=True), Create("/b")], Author(1, 1, 5))
    before = copy.deepcopy(tree.nodes), copy.deepcopy(tree.ephemerals)
    done = tree.apply([*operations, Check("/none", 0)], Author(2, 2, 6))
    assert isinstance(done, ZkError)
    owned = {session: paths for session, paths in tree.ephemerals.items() if paths}
    assert (tree.nodes, owned) == before


def test_paths_that_are_none_are_refused() -> None:
    tree = Tree()
    for wrong in ("", "a", "/a/", "//a", "/a/../b", "/.", "/a\0b"):
        done = tree.apply([Create("/a"), Create(wrong)], Author(1, 1, 1))
        assert isinstance(done, ZkError), wrong
        assert (done.code, done.index) == (ZkCode.BAD_ARGUMENTS, 1), wrong
    root = tree.apply([Delete("/")], Author(1, 1, 1))
    assert isinstance(root, ZkError)
    assert root.code is ZkCode.BAD_ARGUMENTS
    assert set(tree.nodes) == {"/"}


def test_a_requests_length_counts_paths_and_data() -> None:
    small = request_bytes([Create("/a", b"x")])
    assert request_bytes([Create("/a", b"x" * 1_001)]) == small + 1_000
    assert request_bytes([Create("/a", b"x")] * 3) == 3 * small
    assert request_bytes([Delete("/ab")]) >= len("/ab")
