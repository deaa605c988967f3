"""A stand-in of the Hugging Face hub: an HTTP server on 127.0.0.1 that speaks the endpoints of huggingface_hub.

It serves datasets: information, listings in pages, files by range, and commits, with small files inline and large ones
through LFS. `fail` injects answers; `requests` is the log. Import the fixture `hub` in a test module:
`from tests.support.hub import serve_hub  # noqa: F401`.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

TOKEN = "hf_secret_of_the_tests"
PAGE = 3  # entries of a page of a listing; the hub has 1,000
REGULAR = 2_000  # bytes; larger files go through LFS
API = re.compile(r"/api/datasets/(?P<id>[^/]+/[^/]+)(?:/(?P<call>[a-z-]+)(?:/(?P<revision>[^/]+)(?:/(?P<path>.+))?)?)?")
FILE = re.compile(r"/datasets/(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)")
LFS = re.compile(r"/datasets/(?P<id>[^/]+/[^/]+)\.git/info/lfs/objects/batch")


@dataclass
class Dataset:
    files: dict[str, bytes] = field(default_factory=dict)
    private: bool = False
    gated: bool = False
    commits: list[dict[str, bytes]] = field(default_factory=list)  # the files at each commit

    @property
    def sha(self) -> str:
        return hash_commit(len(self.commits))

    def at(self, revision: str) -> dict[str, bytes] | None:
        if revision in ("main", self.sha):
            return self.files
        shas = [hash_commit(number) for number in range(len(self.commits))]
        return self.commits[shas.index(revision)] if revision in shas else None

    def commit(self, files: dict[str, bytes]) -> None:
        self.commits.append(self.files)
        self.files = files


def hash_commit(number: int) -> str:
    return hashlib.sha1(str(number).encode()).hexdigest()


@dataclass
class Hub:
    endpoint: str = ""
    datasets: dict[str, Dataset] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)  # method and path
    faults: list[tuple[str, int, dict[str, str]]] = field(default_factory=list)
    objects: dict[str, bytes] = field(default_factory=dict)  # LFS

    def add(self, name: str, files: dict[str, bytes], **options: bool) -> str:
        self.datasets[name] = Dataset(dict(files), **options)
        return f"hf://datasets/{name}"

    def add_folder(self, name: str, folder: Path) -> str:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        return self.add(name, {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})

    def fail(self, pattern: str, status: int, times: int = 1, **headers: str) -> None:
        """Answer the next requests whose path contains `pattern` with an error; status 0 closes the connection."""
        self.faults += [(pattern, status, headers)] * times

    def count(self, pattern: str) -> int:
        return sum(pattern in path for _, path in self.requests)

    @property
    def environment(self) -> dict[str, str]:
        return {"HF_ENDPOINT": self.endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, status: int, body: Any = b"", **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def handle_request(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        address = urlsplit(self.path)
        self.hub.requests.append((self.command, self.path))
        for fault in self.hub.faults:
            if fault[0] in self.path:
                self.hub.faults.remove(fault)
                if fault[1]:
                    return self.answer(fault[1], **fault[2])
                self.close_connection = True
                return self.connection.close()
        if match := re.fullmatch(r"/lfs/(\w+)", address.path):
            self.hub.objects[match[1]] = body
            return self.answer(200)
        match = API.fullmatch(address.path) or FILE.fullmatch(address.path) or LFS.fullmatch(address.path)
        parts = match.groupdict() if match else {}
        dataset = self.hub.datasets.get(parts.get("id", ""))
        trusted = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if dataset is None or (dataset.private and not trusted):
            return self.answer(404 if trusted else 401, X_Error_Code="RepoNotFound")
        files = dataset.at(unquote(parts.get("revision") or "main"))
        if files is None:
            return self.answer(404, X_Error_Code="RevisionNotFound")
        path = unquote(parts.get("path") or "")
        if "call" not in parts:
            return self.send_file(dataset, files, path, trusted) if "revision" in parts else self.send_places(body)
        call = {"tree": self.send_tree, "preupload": self.send_modes, "commit": self.commit}.get(parts["call"])
        if parts["call"] == "auth-check":
            return self.check_access(dataset, trusted)
        if call is None:
            names = [{"rfilename": name} for name in files]
            gates = {"gated": dataset.gated and "auto", "private": dataset.private}
            return self.answer(200, {"id": parts["id"], "sha": dataset.sha, "siblings": names, **gates})
        if self.command == "POST" and not trusted:
            return self.answer(403, {"error": "no right to write"})
        return call(dataset, files, path, body, parse_qs(address.query))

    do_GET = do_POST = do_PUT = do_HEAD = handle_request  # noqa: N815

    def check_access(self, dataset: Dataset, trusted: bool) -> None:
        self.answer(*((200, b"") if trusted or not dataset.gated else (403, b"")), X_Error_Code="GatedRepo")

    def send_file(self, dataset: Dataset, files: dict[str, bytes], path: str, trusted: bool) -> None:
        if dataset.gated and not trusted:
            return self.answer(403, X_Error_Code="GatedRepo")
        if path not in files:
            return self.answer(404, X_Error_Code="EntryNotFound")
        data, span = files[path], re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if span is None:
            return self.answer(200, data)
        start, stop = int(span[1]), min(int(span[2] or len(data) - 1) + 1, len(data))
        return self.answer(206, data[start:stop], Content_Range=f"bytes {start}-{stop - 1}/{len(data)}")

    def send_tree(self, dataset: Dataset, files: Any, path: str, body: bytes, query: dict[str, list[str]]) -> None:
        prefix = f"{path}/" if path else ""
        below = {name: data for name, data in files.items() if name.startswith(prefix)}
        if path and not below:
            return self.answer(404, X_Error_Code="EntryNotFound")
        entries: dict[str, dict[str, Any]] = {}
        recursive = query.get("recursive") == ["true"]
        for name, data in sorted(below.items()):
            folders = name[len(prefix) :].split("/")[:-1]
            for depth in range(1, len(folders) + 1 if recursive else min(len(folders), 1) + 1):
                folder = prefix + "/".join(folders[:depth])
                entries[folder] = {"type": "directory", "path": folder, "size": 0, "oid": "0" * 40}
            if recursive or not folders:
                digest = hashlib.sha1(data).hexdigest()
                entries[name] = {"type": "file", "path": name, "size": len(data), "oid": digest}
        start = int(query.get("cursor", ["0"])[0])
        page = list(entries.values())[start : start + PAGE]
        address = f"{self.hub.endpoint}{urlsplit(self.path).path}?recursive={str(recursive).lower()}"
        links = {"Link": f'<{address}&cursor={start + PAGE}>; rel="next"'} if start + PAGE < len(entries) else {}
        return self.answer(200, page, **links)

    def send_modes(self, dataset: Dataset, files: Any, path: str, body: bytes, query: Any) -> None:
        names = [(file["path"], "lfs" if file["size"] > REGULAR else "regular") for file in json.loads(body)["files"]]
        self.answer(200, {"files": [{"path": n, "uploadMode": mode, "shouldIgnore": False} for n, mode in names]})

    def send_places(self, body: bytes) -> None:
        places = [
            {**thing, "actions": {"upload": {"href": f"{self.hub.endpoint}/lfs/{thing['oid']}"}}}
            for thing in json.loads(body)["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": places})

    def commit(self, dataset: Dataset, files: dict[str, bytes], path: str, body: bytes, query: Any) -> None:
        files = dict(files)
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        dataset.commit(files)
        url = f"{self.hub.endpoint}/datasets/x/y/commit/{dataset.sha}"
        self.answer(200, {"success": True, "commitOid": dataset.sha, "commitUrl": url})


@pytest.fixture(name="hub")
def serve_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A running stand-in without datasets; huggingface_hub of this process and its children uses it."""
    from huggingface_hub import HfFileSystem, constants
    from huggingface_hub.utils import close_session

    from auditor.audit_folder import hub as store

    state = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": state}))
    server.daemon_threads = True
    state.endpoint = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    for name, value in state.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, state.endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", state.endpoint)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(store, "PAUSES", (0.01,) * len(store.PAUSES))
    HfFileSystem.clear_instance_cache()
    yield state
    HfFileSystem.clear_instance_cache()
    close_session()
    server.shutdown()
    server.server_close()
