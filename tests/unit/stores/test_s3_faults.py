"""S3 endpoints that do not answer, refuse, break off, or fail for some of the objects."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest

from ottla.base.object_store import Failure, Pool, StoreError
from ottla.stores.obstore_backend import ObstoreBackend, s3_store
from ottla.stores.uri import S3Uri
from tests.object_store_checks import Tool
from tests.unit.stores.support import RealBench

MakeTool = Callable[[str], Tool]


@pytest.fixture
def tool_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeTool]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    benches: list[RealBench] = []

    def make(endpoint: str) -> Tool:
        uri = S3Uri(bucket="bucket", endpoint=endpoint, region="us-east-1")
        benches.append(RealBench(lambda: ObstoreBackend(s3_store(uri)), tmp_path))
        return Tool(benches[-1])

    yield make
    for bench in benches:
        bench.close()


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_an_endpoint_that_never_answers(tool_at: MakeTool, silent_port: int) -> None:
    tool = tool_at(f"http://127.0.0.1:{silent_port}")
    started = time.monotonic()
    calls = [
        tool.store.head("a", pool=Pool.FETCHER, deadline_ms=tool.bench.deadline(0.3))
        for _ in range(5)
    ]
    for call in calls:
        result = tool.bench.wait(call)
        assert isinstance(result, StoreError)
        assert result.failure is Failure.TIMED_OUT
    assert time.monotonic() - started < 20


def test_an_endpoint_that_is_not_there(tool_at: MakeTool) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    tool = tool_at(f"http://127.0.0.1:{port}")
    assert tool.put("a", b"x") is Failure.UNAVAILABLE
    assert tool.get("a", 0, 1) is Failure.UNAVAILABLE


class Scripted(BaseHTTPRequestHandler):
    """Answers as its server's `answer` says: a status and a body, or None = break off."""

    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = self.server
        assert isinstance(server, ScriptedServer)
        server.requests.append(f"{self.command} {self.path}")
        answer = server.answer(self.command, unquote(self.path), body)
        if answer is None:
            self.close_connection = True
            return
        status, content = answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", '"1"')
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


Answer = tuple[int, bytes] | None


class ScriptedServer(ThreadingHTTPServer):
    """An S3 endpoint of a test."""

    def __init__(self, answer: Callable[[str, str, bytes], Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Scripted)
        self.answer = answer
        self.requests: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[str, str, bytes], Answer]], ScriptedServer]]:
    servers: list[ScriptedServer] = []

    def make(answer: Callable[[str, str, bytes], Answer]) -> ScriptedServer:
        servers.append(ScriptedServer(answer))
        return servers[-1]

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


Serve = Callable[[Callable[[str, str, bytes], Answer]], ScriptedServer]

DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (403, Failure.DENIED),
        (401, Failure.DENIED),
        (500, Failure.UNAVAILABLE),
        (503, Failure.UNAVAILABLE),
    ],
)
def test_refusals(tool_at: MakeTool, serve: Serve, status: int, failure: Failure) -> None:
    server = serve(lambda *_: (status, DENIED))
    tool = tool_at(server.url)
    assert tool.put("a", b"x") is failure
    assert len(server.requests) == 1, "an operation is tried once"
    assert tool.get("a", 0, 1) is failure


def test_a_broken_connection_leaves_the_result_unknown(tool_at: MakeTool, serve: Serve) -> None:
    server = serve(lambda *_: None)
    tool = tool_at(server.url)
    call = tool.store.put_if_absent("a", b"x", pool=Pool.COPIER, deadline_ms=tool.bench.deadline())
    result = tool.bench.wait(call)
    assert isinstance(result, StoreError)
    assert result.failure is Failure.UNAVAILABLE
    assert result.may_have_happened
    assert len(server.requests) == 1, "a conditional write is not sent again"


def test_a_bulk_delete_that_fails_for_some_objects_names_them(
    tool_at: MakeTool, serve: Serve
) -> None:
    kept = {f"t/{number}" for number in (3, 500, 999)}
    gone: set[str] = set()

    def answer(method: str, path: str, body: bytes) -> Answer:
        if method == "POST":
            parts = ["<DeleteResult>"]
            for element in ElementTree.fromstring(body).iter():
                if element.tag.rpartition("}")[2] == "Key":
                    name = element.text or ""
                    if name in kept:
                        parts.append(
                            f"<Error><Key>{name}</Key><Code>InternalError</Code>"
                            "<Message>We encountered an internal error</Message></Error>"
                        )
                    else:
                        gone.add(name)
                        parts.append(f"<Deleted><Key>{name}</Key></Deleted>")
            return 200, "".join([*parts, "</DeleteResult>"]).encode()
        name = urlsplit(path).path.removeprefix("/bucket/")
        if name in kept:
            return 503, b""
        gone.add(name)
        return 204, b""

    tool = tool_at(serve(answer).url)
    names = [f"t/{number}" for number in range(1000)]
    failed = tool.delete(*names)
    assert set(failed) == kept
    assert {each.failure for each in failed.values()} == {Failure.UNAVAILABLE}
    assert gone == set(names) - kept
    kept.clear()
    assert tool.delete(*failed) == {}
