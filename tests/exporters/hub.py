"""A stand-in for Hugging Face's hub: as much of its HTTP API as uploading and downloading a model takes.

Requests and answers are those that huggingface_hub 2.4 makes and reads, with files of weights as LFS objects.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = (".safetensors",)  # kept as LFS objects


class Hub(ThreadingHTTPServer):
    """Repositories as {owner/name: [{path: bytes} of each commit]}, and every request as (method, path)."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, list[dict[str, bytes]]] = {}
        self.private: set[str] = set()
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.token = "hf_of_the_test"

    def commit_of(self, name: str, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Return (id, files) of a commit by its id, or of the newest by the name of the branch."""
        commits = self.repositories.get(name, [])
        for number in range(len(commits) - 1, -1, -1):
            if revision in ("main", identity(name, number)):
                return identity(name, number), commits[number]
        return None


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        path, body = self.begin()
        if path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif self.headers.get("authorization") != f"Bearer {self.server.token}":
            self.answer({"error": "Invalid username or password."}, 401)
        elif path == "/api/repos/create":
            self.create(json.loads(body))
        elif path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            modes = [
                {
                    "path": each["path"],
                    "uploadMode": "lfs" if each["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                }
                for each in files
            ]
            self.answer({"files": modes})
        elif path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            for each in objects:
                each["actions"] = {"upload": {"href": f"{self.server.url}/lfs/{each['oid']}"}}
            self.answer({"transfer": "basic", "objects": objects})
        else:
            self.commit(path.removeprefix("/api/models/").removesuffix("/commit/main"), body)

    def do_PUT(self) -> None:
        path, body = self.begin()
        self.server.objects[path.removeprefix("/lfs/")] = body
        self.answer({})

    def do_GET(self) -> None:
        path, _ = self.begin()
        parts = path.removeprefix("/api/models/").strip("/").split("/")
        name, (kind, revision) = "/".join(parts[:2]), parts[2:4] or ("revision", "main")
        found = self.server.commit_of(name, revision)
        hidden = name in self.server.private and self.headers.get("authorization") != f"Bearer {self.server.token}"
        if found is None or hidden:
            code = "RevisionNotFound" if name in self.server.repositories and not hidden else "RepoNotFound"
            self.answer({"error": "not found"}, 404, {"X-Error-Code": code, "X-Error-Message": "not found"})
            return
        commit, files = found
        if kind == "revision":
            self.answer({"id": name, "sha": commit, "siblings": [{"rfilename": each} for each in files]})
        elif kind == "tree":
            self.answer([entry(path, data) for path, data in files.items()])
        else:
            data = files["/".join(parts[4:])]
            facts = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": commit}
            self.answer(data, 200, facts)

    do_HEAD = do_GET

    def create(self, asked: dict) -> None:
        name = f"{asked['organization']}/{asked['name']}"
        there = name in self.server.repositories
        self.server.repositories.setdefault(name, [])
        if not there and (asked.get("visibility") == "private" or asked.get("private")):
            self.server.private.add(name)
        self.answer({"url": f"{self.server.url}/{name}", "id": name}, 409 if there else 200)

    def commit(self, name: str, body: bytes) -> None:
        commits = self.server.repositories[name]
        files = dict(commits[-1]) if commits else {}
        for line in body.splitlines():
            change = json.loads(line)
            value = change["value"]
            if change["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif change["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
        commits.append(files)
        made = identity(name, len(commits) - 1)
        self.answer({"commitUrl": f"{self.server.url}/{name}/commit/{made}", "commitOid": made, "success": True})

    def begin(self) -> tuple[str, bytes]:
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, path))
        return path, self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(self, content, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *words) -> None:
        """Keep standard error for what is tested."""


def identity(name: str, number: int) -> str:
    return hashlib.sha1(f"{name} {number}".encode()).hexdigest()


def entry(path: str, data: bytes) -> dict:
    """Return a file's line in a listing of a commit."""
    digest = hashlib.sha256(data).hexdigest()
    large = {"lfs": {"oid": digest, "size": len(data), "pointerSize": 134}} if path.endswith(LARGE) else {}
    return {"type": "file", "path": path, "size": len(data), "oid": digest[:40], **large}


@contextmanager
def running() -> Iterator[Hub]:
    """Yield a hub that serves on a free port of this machine."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
