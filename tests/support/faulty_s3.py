"""An HTTP proxy in front of the S3 server of the tests that injects faults: errors, resets, delays, cut transfers.

    with faulty_bucket.faults.inject(Fault(503, "samples", "GET", times=2)): ...

A fault applies to the next `times` requests that match. Import the fixtures in a test module, with those of
tests/support/s3.py: `from tests.support.faulty_s3 import faulty_bucket  # noqa: F401`.
"""

import http.client
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

import pytest

from tests.support.s3 import Bucket

CODES = {500: "InternalError", 503: "SlowDown", 403: "AccessDenied"}
ALWAYS = 10**9
SLOW = 1.0  # seconds


@dataclass
class Fault:
    """`kind`: a status of CODES, "reset", "slow", "cut" (half of the answer) or "stale" (the last listing again)."""

    kind: int | str
    pattern: str = ""  # of the path and query, decoded
    method: str = "GET|HEAD|PUT|POST|DELETE"
    times: int = ALWAYS
    hits: int = 0

    def matches(self, method: str, path: str) -> bool:
        return self.hits < self.times and bool(re.fullmatch(self.method, method) and re.search(self.pattern, path))


@dataclass
class Faults:
    """The faults of a proxy, and what it has answered."""

    active: list[Fault] = field(default_factory=list)
    listings: dict[str, tuple[int, list[tuple[str, str]], bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def choose(self, method: str, path: str) -> Fault | None:
        with self.lock:
            self.requests.append((method, path))
            for fault in self.active:
                if fault.matches(method, path):
                    fault.hits += 1
                    return fault
        return None

    @contextmanager
    def inject(self, *faults: Fault) -> Iterator[tuple[Fault, ...]]:
        self.active[:] = faults
        try:
            yield faults
        finally:
            self.active.clear()


@dataclass(frozen=True)
class FaultyBucket(Bucket):
    """A bucket behind the proxy; its `client` does not pass through the proxy."""

    faults: Faults


class ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet per answer
    disable_nagle_algorithm = True
    timeout = 30
    server: "FaultyProxy"

    def handle_request(self) -> None:
        body = self.read_body()
        path = unquote(self.path)
        fault = self.server.faults.choose(self.command, path)
        kind = fault.kind if fault else None
        if isinstance(kind, int):
            text = f"<?xml version='1.0'?><Error><Code>{CODES[kind]}</Code><Message>as injected</Message></Error>"
            self.answer(kind, [("Content-Type", "application/xml")], text.encode())
        elif kind == "reset":
            self.reset()
        elif kind == "stale" and path in self.server.faults.listings:
            self.answer(*self.server.faults.listings[path])
        else:
            if kind == "slow":
                time.sleep(SLOW)
            status, headers, data = self.forward(body)
            if "list-type=" in path:
                self.server.faults.listings[path] = status, headers, data
            self.answer(status, headers, data, cut=kind == "cut")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request  # noqa: N815

    def handle_expect_100(self) -> bool:
        go_on = super().handle_expect_100()
        self.wfile.flush()
        return go_on

    def read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        headers = {k: v for k, v in self.headers.items() if k.lower() not in {"transfer-encoding", "expect"}}
        connection = http.client.HTTPConnection(self.server.backend, timeout=30)
        connection.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        dropped = {"connection", "transfer-encoding", "server", "date"}
        return answer.status, [(k, v) for k, v in answer.getheaders() if k.lower() not in dropped], data

    def answer(self, status: int, headers: list[tuple[str, str]], data: bytes, cut: bool = False) -> None:
        names = {name.lower() for name, _ in headers}
        if "content-length" not in names and status not in {204, 304}:
            headers = [*headers, ("Content-Length", str(len(data)))]
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.reset()

    def reset(self) -> None:
        """Close the connection with RST, as a dead load balancer does."""
        self.wfile.flush()
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class FaultyProxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, backend: str) -> None:
        self.backend, self.faults = urlsplit(backend).netloc, Faults()
        super().__init__(("127.0.0.1", 0), ProxyHandler)

    def handle_error(self, *_: object) -> None:
        """Clients that go away are no error."""


@pytest.fixture
def faulty_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyBucket]:
    proxy = FaultyProxy(bucket.endpoint)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    endpoint = f"http://127.0.0.1:{proxy.server_port}"
    # fewer attempts of botocore: s3fs tries again, too
    environment = bucket.environment | {"AWS_ENDPOINT_URL": endpoint, "AWS_MAX_ATTEMPTS": "2"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    yield FaultyBucket(bucket.name, endpoint, bucket.client, environment, proxy.faults)
    proxy.shutdown()
    proxy.server_close()
    thread.join(10)
