"""What a session with ZooKeeper promises (`ottla.base.zookeeper`), checked of any driver.

Method: each check takes a `Bench`, which opens sessions, lets time pass, and does harm. The model
of the simulator and the driver of a real server pass the same `CHECKS`. Nothing is asserted of how
long something takes.
"""

from typing import Any

from ottla.base.pending import Pending, gather
from ottla.base.zookeeper import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    EventKind,
    SessionState,
    SetData,
    Stat,
    ZkCode,
    ZnodeData,
)
from tests.zookeeper_bench import Bench, Log, code_of, done, got, refusal, wait, write
from tests.zookeeper_watch_checks import WATCH_CHECKS

# -- the tree ----------------------------------------------------------------------------------


def check_a_node_is_created_read_changed_and_deleted(bench: Bench) -> None:
    session = bench.open()
    assert wait(bench, session.exists("/a")) is None
    assert code_of(wait(bench, session.get("/a"))) is ZkCode.NO_NODE
    assert code_of(wait(bench, session.children("/a"))) is ZkCode.NO_NODE
    assert write(bench, session, Create("/a", b"one")) == ("/a",)
    data, stat = got(bench, session, "/a")
    assert (data, stat.version, stat.cversion, stat.ephemeral_owner) == (b"one", 0, 0, 0)
    assert stat.czxid == stat.mzxid > 0
    (changed,) = write(bench, session, SetData("/a", b"two", 0))
    assert isinstance(changed, Stat)
    assert got(bench, session, "/a") == ZnodeData(b"two", changed)
    assert (changed.version, changed.czxid) == (1, stat.czxid)
    assert changed.mzxid > stat.mzxid
    assert done(bench, session.exists("/a")) == changed
    assert write(bench, session, Delete("/a", 1)) == (None,)
    assert wait(bench, session.exists("/a")) is None


def check_data_may_be_empty_or_almost_a_megabyte(bench: Bench) -> None:
    session = bench.open()
    large = bytes(range(256)) * 3_600
    write(bench, session, Create("/empty"), Create("/large", large))
    assert got(bench, session, "/empty").data == b""
    assert got(bench, session, "/large").data == large
    assert refusal(bench, session, SetData("/large", large + large))[0] is ZkCode.BAD_ARGUMENTS
    assert got(bench, session, "/large").stat.version == 0


def check_children_are_named_and_counted(bench: Bench) -> None:
    session = bench.open()
    write(bench, session, Create("/a"), Create("/a/z"), Create("/a/b"), Create("/a/b/c"))
    assert done(bench, session.children("/a")) == ("b", "z")
    assert done(bench, session.children("/a/z")) == ()
    before = got(bench, session, "/a").stat
    write(bench, session, Delete("/a/z"))
    after = got(bench, session, "/a").stat
    assert done(bench, session.children("/a")) == ("b",)
    assert (before.cversion, after.cversion) == (2, 3)
    assert (after.version, after.mzxid) == (before.version, before.mzxid)
    assert "a" in done(bench, session.children("/"))


def check_each_refusal_has_its_code(bench: Bench) -> None:
    session = bench.open()
    write(bench, session, Create("/a", b"x"), Create("/a/b"), Create("/e", ephemeral=True))
    for operation, code in (
        (Create("/a"), ZkCode.NODE_EXISTS),
        (Create("/none/b"), ZkCode.NO_NODE),
        (Create("/e/child"), ZkCode.NO_CHILDREN_FOR_EPHEMERALS),
        (SetData("/none", b""), ZkCode.NO_NODE),
        (SetData("/a", b"", 1), ZkCode.BAD_VERSION),
        (Delete("/none"), ZkCode.NO_NODE),
        (Delete("/a"), ZkCode.NOT_EMPTY),
        (Delete("/a", 7), ZkCode.BAD_VERSION),
        (Delete("/a/b", 1), ZkCode.BAD_VERSION),
        (Check("/none", ANY_VERSION), ZkCode.NO_NODE),
        (Check("/a", 1), ZkCode.BAD_VERSION),
    ):
        assert refusal(bench, session, operation) == (code, 0), operation
    assert write(bench, session, Check("/a", 0), Check("/a", ANY_VERSION)) == (None, None)
    assert write(bench, session, Check("/", ANY_VERSION)) == (None,)
    assert got(bench, session, "/a").data == b"x"


def check_a_multi_is_all_or_nothing(bench: Bench) -> None:
    session = bench.open()
    write(bench, session, Create("/a", b"0"), Create("/a/old"))
    before = got(bench, session, "/a")
    refused = refusal(
        bench,
        session,
        Check("/a", 0),
        SetData("/a", b"1"),
        Create("/a/new", ephemeral=True),
        Delete("/a/old"),
        Create("/a/next", sequential=True),
        SetData("/a", b"2", 0),
        Create("/a/after"),
        SetData("/none", b""),
    )
    assert refused == (ZkCode.BAD_VERSION, 5)
    assert got(bench, session, "/a") == before
    assert done(bench, session.children("/a")) == ("old",)


def check_operations_of_a_multi_see_those_before_them(bench: Bench) -> None:
    session = bench.open()
    answers = write(
        bench,
        session,
        Create("/a"),
        Create("/a/b", b"1"),
        SetData("/a/b", b"2", 0),
        Check("/a/b", 1),
        SetData("/a/b", b"3", 1),
        Delete("/a/b", 2),
        Create("/a/b", b"again"),
    )
    assert (answers[0], answers[1], answers[3], answers[5]) == ("/a", "/a/b", None, None)
    assert (answers[2].version, answers[4].version) == (1, 2)
    data, stat = got(bench, session, "/a/b")
    assert (data, stat.version) == (b"again", 0)
    # One transaction, one zxid.
    assert (
        stat.czxid == answers[2].czxid == answers[4].mzxid == got(bench, session, "/a").stat.czxid
    )


def check_a_node_created_again_has_a_larger_czxid(bench: Bench) -> None:
    session = bench.open()
    seen = []
    for _ in range(3):
        write(bench, session, Create("/a", ephemeral=True))
        seen.append(got(bench, session, "/a").stat.czxid)
        write(bench, session, Delete("/a"))
    assert seen == sorted(set(seen))


def check_sequential_names_count_all_children_ever_created(bench: Bench) -> None:
    session = bench.open()
    write(bench, session, Create("/q"), Create("/q/plain"), Delete("/q/plain"))
    first = Create("/q/n_", sequential=True)
    assert write(bench, session, first, first) == ("/q/n_0000000001", "/q/n_0000000002")
    write(bench, session, Delete("/q/n_0000000002"))
    other = Create("/q/m_", sequential=True, ephemeral=True)
    assert write(bench, session, first, other) == ("/q/n_0000000003", "/q/m_0000000004")
    assert refusal(bench, session, first, Check("/none", 0)) == (ZkCode.NO_NODE, 1)
    assert write(bench, session, first) == ("/q/n_0000000005",)
    children = done(bench, session.children("/q"))
    assert children == ("m_0000000004", "n_0000000001", "n_0000000003", "n_0000000005")


# -- sessions ----------------------------------------------------------------------------------


def check_a_session_says_what_becomes_of_it(bench: Bench) -> None:
    states: list[SessionState] = []
    session = bench.open(states.append)
    assert session.state is SessionState.CONNECTING or states == [SessionState.CONNECTED]
    # What is asked before it is connected waits.
    assert write(bench, session, Create("/a")) == ("/a",)
    assert states == [SessionState.CONNECTED] == [session.state]
    assert session.id != 0
    wait(bench, session.close())
    assert states == [SessionState.CONNECTED, SessionState.CLOSED]
    assert session.state is SessionState.CLOSED
    assert code_of(wait(bench, session.get("/a"))) is ZkCode.SESSION_EXPIRED
    assert code_of(wait(bench, session.multi([Delete("/a")]))) is ZkCode.SESSION_EXPIRED
    other = bench.open()
    assert wait(bench, other.exists("/a")) is not None
    assert other.id != session.id
    wait(bench, session.close())


def check_ephemerals_go_with_their_session(bench: Bench) -> None:
    owner, other = bench.open(), bench.open()
    write(bench, owner, Create("/mine", b"x", ephemeral=True), Create("/stays"))
    write(bench, other, Create("/others", ephemeral=True))
    assert got(bench, other, "/mine").stat.ephemeral_owner == owner.id
    log = Log()
    assert wait(bench, other.exists("/mine", log.watcher("watch"))) is not None
    wait(bench, owner.close())
    bench.until(lambda: bool(log.said))
    assert log.said == [("watch", EventKind.DELETED, "/mine")]
    assert wait(bench, other.exists("/mine")) is None
    assert wait(bench, other.exists("/stays")) is not None
    assert got(bench, other, "/others").stat.ephemeral_owner == other.id


def check_what_is_unanswered_at_the_close_is_answered(bench: Bench) -> None:
    session = bench.open()
    write(bench, session, Create("/a"))
    log = Log()
    done(bench, session.get("/a", log.watcher("watch")))
    pending: list[Pending[Any]] = [session.get("/a"), session.multi([SetData("/a", b"1")])]
    closed = session.close()
    answers = wait(bench, gather(pending))
    assert [code_of(each) for each in answers] == [ZkCode.SESSION_EXPIRED] * 2
    wait(bench, closed)
    other = bench.open()
    write(bench, other, SetData("/a", b"2"))
    got(bench, other, "/a")
    assert log.said == []


def check_answers_come_in_the_order_of_the_questions(bench: Bench) -> None:
    session = bench.open()
    log = Log()
    for number in range(20):
        log.note(f"create {number}", session.multi([Create(f"/n{number}")]))
        log.note(f"get {number}", session.get(f"/n{number}"))
        log.note(f"none {number}", session.get("/none"))
    log.note("children", session.children("/"))
    asked = [f"{what} {number}" for number in range(20) for what in ("create", "get", "none")]
    bench.until(lambda: len(log.said) == 61)
    assert log.names == [*asked, "children"]
    assert all(isinstance(value, ZnodeData) for name, value in log.said if name.startswith("get"))


# -- connections that break --------------------------------------------------------------------


def check_a_broken_connection_is_no_end_of_the_session(bench: Bench) -> None:
    states: list[SessionState] = []
    session, other = bench.open(states.append), bench.open()
    write(bench, session, Create("/mine", ephemeral=True))
    bench.cut(session)
    bench.until(lambda: session.state is SessionState.SUSPENDED)
    log = Log()
    log.note("get", session.get("/mine"))
    log.note("exists", session.exists("/none"))
    assert wait(bench, other.exists("/mine")) is not None
    assert log.said == []
    bench.heal(session)
    bench.until(lambda: len(log.said) == 2)
    assert log.names == ["get", "exists"]
    assert states == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    assert got(bench, other, "/mine").stat.ephemeral_owner == session.id


def check_a_write_without_an_answer_is_told_so(bench: Bench) -> None:
    """Both outcomes are possible: it is reported as unknown, and the next read shows which."""
    session, other = bench.open(), bench.open()
    write(bench, session, Create("/a", b"0"))
    log = Log()
    bench.hold_answers(session)
    log.note("read", session.get("/a"))
    log.note("write", session.multi([SetData("/a", b"1", 0)]))
    log.note("again", session.get("/a"))
    bench.until(lambda: got(bench, other, "/a").data == b"1")
    assert log.said == []
    bench.cut(session)
    bench.until(lambda: session.state is SessionState.SUSPENDED)
    bench.heal(session)
    bench.until(lambda: len(log.said) == 3)
    answers = dict(log.said)
    assert code_of(answers["write"]) is ZkCode.CONNECTION_LOSS
    # Reads are repeated, and so see what was done; the order is that of the questions.
    assert log.names == ["read", "write", "again"]
    assert answers["read"].data == answers["again"].data == b"1"


def check_what_is_asked_while_suspended_waits_in_order(bench: Bench) -> None:
    session = bench.open()
    write(bench, session, Create("/a"))
    bench.cut(session)
    bench.until(lambda: session.state is SessionState.SUSPENDED)
    log = Log()
    for number in range(5):
        log.note(f"create {number}", session.multi([Create(f"/a/{number}")]))
        log.note(f"children {number}", session.children("/a"))
    bench.heal(session)
    bench.until(lambda: len(log.said) == 10)
    asked = [f"{what} {number}" for number in range(5) for what in ("create", "children")]
    assert log.names == asked
    for name, value in log.said:
        if name.startswith("create"):
            # Not sent twice: done once, or said to be lost.
            assert value == (f"/a/{name[-1]}",) or code_of(value) is ZkCode.CONNECTION_LOSS


# -- sessions that expire ----------------------------------------------------------------------


def check_an_expired_session_is_over_for_good(bench: Bench) -> None:
    states: list[SessionState] = []
    session, other = bench.open(states.append), bench.open()
    log = Log()
    write(bench, session, Create("/mine", ephemeral=True), Create("/a"))
    done(bench, session.get("/a", log.watcher("own")))
    done(bench, other.get("/mine", log.watcher("others")))
    bench.expire(session)
    bench.until(lambda: "others" in log.names)
    assert log.said == [("others", EventKind.DELETED, "/mine")]
    bench.until(lambda: session.state is SessionState.EXPIRED)
    assert states[-1] is SessionState.EXPIRED
    assert states.count(SessionState.EXPIRED) == 1
    for pending in (session.multi([Create("/zombie")]), session.get("/a")):
        assert code_of(wait(bench, pending)) is ZkCode.SESSION_EXPIRED
    write(bench, other, SetData("/a", b"1"))
    assert wait(bench, other.exists("/zombie")) is None
    wait(bench, session.close())
    assert log.names == ["others"]
    assert session.state is SessionState.EXPIRED or session.state is SessionState.CLOSED


def check_what_waits_is_answered_at_the_expiry(bench: Bench) -> None:
    session, other = bench.open(), bench.open()
    write(bench, session, Create("/mine", ephemeral=True))
    bench.cut(session)
    bench.until(lambda: session.state is SessionState.SUSPENDED)
    read = session.get("/mine")
    written = session.multi([Create("/zombie")])
    bench.until(lambda: wait(bench, other.exists("/mine")) is None)
    bench.heal(session)
    bench.until(lambda: session.state is SessionState.EXPIRED)
    assert code_of(wait(bench, read)) is ZkCode.SESSION_EXPIRED
    assert code_of(wait(bench, written)) in (ZkCode.SESSION_EXPIRED, ZkCode.CONNECTION_LOSS)
    assert wait(bench, other.exists("/zombie")) is None


CHECKS = [
    *(value for name, value in list(globals().items()) if name.startswith("check_")),
    *WATCH_CHECKS,
]
"""All of them; each takes a Bench."""
