"""What the watches of a session with ZooKeeper promise: the part of `tests.zookeeper_checks`.

Method: as there. What a watch is told is compared whole, with its order where there is one.
"""

from ottla.base.zookeeper import (
    Check,
    Create,
    Delete,
    EventKind,
    Operation,
    SessionState,
    SetData,
    ZkCode,
)
from tests.zookeeper_bench import Bench, Log, done, got, refusal, wait, write

# -- watches -----------------------------------------------------------------------------------


def check_a_watch_fires_once_and_before_what_shows_the_change(bench: Bench) -> None:
    watching, writing = bench.open(), bench.open()
    log = Log()
    write(bench, writing, Create("/a", b"0"))
    done(bench, watching.get("/a", log.watcher("watch")))
    write(bench, writing, SetData("/a", b"1"))
    write(bench, writing, SetData("/a", b"2"))

    def look() -> bool:
        pending = watching.get("/a")
        log.note("answer", pending)
        return done(bench, pending).data == b"2"

    bench.until(look)
    fired = log.names.index("watch")
    assert log.names.count("watch") == 1
    assert log.said[fired] == ("watch", EventKind.DATA_CHANGED, "/a")
    shown = next(
        index for index, each in enumerate(log.said) if each[0] == "answer" and each[1].data != b"0"
    )
    assert fired < shown
    assert got(bench, watching, "/a").stat.version == 2


def check_ones_own_write_fires_ones_own_watch_before_its_answer(bench: Bench) -> None:
    session = bench.open()
    log = Log()
    write(bench, session, Create("/a"))
    log.note("get", session.get("/a", log.watcher("data")))
    log.note("children", session.children("/a", log.watcher("children")))
    log.note("exists", session.exists("/a/b", log.watcher("created")))
    log.note("write", session.multi([SetData("/a", b"1"), Create("/a/b")]))
    bench.until(lambda: "write" in log.names)
    assert log.names[:3] == ["get", "children", "exists"]
    assert log.said[3:-1] == [
        ("data", EventKind.DATA_CHANGED, "/a"),
        ("created", EventKind.CREATED, "/a/b"),
        ("children", EventKind.CHILDREN_CHANGED, "/a"),
    ]
    assert log.names[-1] == "write"


def check_what_each_watch_is_told(bench: Bench) -> None:
    session = bench.open()
    everything: tuple[tuple[str, Operation, list[tuple[str, EventKind, str]]], ...] = (
        (
            "data and children of their own node",
            SetData("/p", b"1"),
            [("exists", EventKind.DATA_CHANGED, "/p"), ("get", EventKind.DATA_CHANGED, "/p")],
        ),
        (
            "a child that comes",
            Create("/p/new"),
            [("children", EventKind.CHILDREN_CHANGED, "/p")],
        ),
        (
            "a child that goes",
            Delete("/p/kid"),
            [("children", EventKind.CHILDREN_CHANGED, "/p")],
        ),
        ("a child's data", SetData("/p/kid", b"1"), []),
        (
            "a node that goes",
            Delete("/q"),
            [
                ("children", EventKind.DELETED, "/q"),
                ("exists", EventKind.DELETED, "/q"),
                ("get", EventKind.DELETED, "/q"),
            ],
        ),
    )
    for what, operation, expected in everything:
        write(bench, session, Create("/p"), Create("/p/kid"), Create("/q"))
        log = Log()
        path = "/q" if operation.path == "/q" else "/p"
        done(bench, session.get(path, log.watcher("get")))
        done(bench, session.exists(path, log.watcher("exists")))
        done(bench, session.children(path, log.watcher("children")))
        write(bench, session, operation)
        assert sorted(log.said, key=str) == sorted(expected, key=str), what
        for name in (*done(bench, session.children("/p")),):
            write(bench, session, Delete(f"/p/{name}"))
        write(bench, session, Delete("/p"))
        if wait(bench, session.exists("/q")) is not None:
            write(bench, session, Delete("/q"))


def check_a_watch_on_nothing_hears_of_the_creation(bench: Bench) -> None:
    session = bench.open()
    log = Log()
    assert wait(bench, session.exists("/a", log.watcher("exists"))) is None
    # Where there is no node, neither get nor children leaves a watch.
    wait(bench, session.get("/a", log.watcher("get")))
    wait(bench, session.children("/a", log.watcher("children")))
    write(bench, session, Create("/a"))
    write(bench, session, SetData("/a", b"1"), Create("/a/b"), Delete("/a/b"), Delete("/a"))
    assert log.said == [("exists", EventKind.CREATED, "/a")]


def check_what_a_multi_creates_and_deletes_was_there(bench: Bench) -> None:
    session = bench.open()
    log = Log()
    write(bench, session, Create("/p"))
    wait(bench, session.exists("/p/x", log.watcher("exists")))
    done(bench, session.children("/p", log.watcher("children")))
    write(bench, session, Create("/p/x"), Delete("/p/x"))
    assert log.said == [
        ("exists", EventKind.CREATED, "/p/x"),
        ("children", EventKind.CHILDREN_CHANGED, "/p"),
    ]


def check_a_refused_multi_fires_nothing(bench: Bench) -> None:
    session = bench.open()
    log = Log()
    write(bench, session, Create("/p"))
    done(bench, session.get("/p", log.watcher("get")))
    done(bench, session.children("/p", log.watcher("children")))
    refused = refusal(bench, session, SetData("/p", b"1"), Create("/p/x"), Check("/none", 0))
    assert refused == (ZkCode.NO_NODE, 2)
    got(bench, session, "/p")
    assert log.said == []
    write(bench, session, SetData("/p", b"2"))
    assert log.said == [("get", EventKind.DATA_CHANGED, "/p")]


def check_each_of_several_watchers_is_told(bench: Bench) -> None:
    session = bench.open()
    log = Log()
    write(bench, session, Create("/a"))
    for number in range(3):
        done(bench, session.get("/a", log.watcher(f"watch {number}")))
    write(bench, session, SetData("/a", b"1"))
    assert sorted(log.names) == ["watch 0", "watch 1", "watch 2"]


def check_watches_outlive_a_connection(bench: Bench) -> None:
    session, other = bench.open(), bench.open()
    log = Log()
    write(bench, other, *(Create(f"/{name}") for name in ("a", "b", "c", "same", "p", "q", "gone")))
    for path in ("/a", "/same", "/gone"):
        done(bench, session.get(path, log.watcher(f"get {path}")))
    wait(bench, session.exists("/new", log.watcher("exists /new")))
    wait(bench, session.exists("/never", log.watcher("exists /never")))
    done(bench, session.children("/p", log.watcher("children /p")))
    done(bench, session.children("/q", log.watcher("children /q")))
    bench.cut(session)
    bench.until(lambda: session.state is SessionState.SUSPENDED)
    write(
        bench,
        other,
        SetData("/a", b"1"),
        Delete("/gone"),
        Create("/new"),
        Create("/p/kid"),
    )
    assert log.said == []
    log.note("answer", session.get("/a"))
    bench.heal(session)
    bench.until(lambda: "answer" in log.names)
    # First what was missed, then the answer that shows it.
    missed = [
        ("children /p", EventKind.CHILDREN_CHANGED, "/p"),
        ("exists /new", EventKind.CREATED, "/new"),
        ("get /a", EventKind.DATA_CHANGED, "/a"),
        ("get /gone", EventKind.DELETED, "/gone"),
    ]
    assert sorted(log.said[:-1], key=str) == sorted(missed, key=str)
    assert log.said[-1][1].data == b"1"
    # What did not change is still watched.
    write(bench, other, SetData("/same", b"1"), Create("/never"), Create("/q/kid"))
    bench.until(lambda: len(log.said) == 8)
    assert sorted(log.said[5:], key=str) == [
        ("children /q", EventKind.CHILDREN_CHANGED, "/q"),
        ("exists /never", EventKind.CREATED, "/never"),
        ("get /same", EventKind.DATA_CHANGED, "/same"),
    ]


WATCH_CHECKS = [value for name, value in list(globals().items()) if name.startswith("check_")]
"""All of them; each takes a Bench."""
