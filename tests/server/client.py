"""A client that keeps its connection, as little of HTTP as the tests of the server need."""

import asyncio
import json
from typing import Any


class Client:
    """One connection, which is opened again where the server has closed it."""

    def __init__(self, port: int):
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, path: str, body: Any = None, method: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Return status and body of an answer. `body` is sent as it is if it is bytes, else as JSON."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"host": "localhost", "content-length": str(len(data)), "content-type": "application/json"}
        lines = [f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in (sent | (headers or {})).items()]
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        writer.write("\r\n".join([*lines, "", ""]).encode() + data)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        told = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
        found = await self._body(reader, told, method == "HEAD")
        if told.get("connection") == "close":
            self.close()
        return int(head[0].split()[1]), found

    async def _body(self, reader: asyncio.StreamReader, told: dict[str, str], empty: bool) -> bytes:
        if empty:
            return b""
        if told.get("transfer-encoding") != "chunked":
            return await reader.readexactly(int(told.get("content-length", 0)))
        found = b""
        while size := int(await reader.readline(), 16):
            found += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return found

    def close(self) -> None:
        """Close the connection."""
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None
