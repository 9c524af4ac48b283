"""A protected MCP server on loopback, and at another port the authorization server it names."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeAlias
from urllib.parse import parse_qs, urlencode, urlsplit

Handler: TypeAlias = "Callable[[str, str, dict[str, str], bytes], tuple[int, Any]]"


@dataclass
class Site:
    """HTTP on a port of its own; every answer is JSON and closes the connection."""

    handle: Handler
    origin: str = ""
    seen: list[tuple[str, str, dict[str, str]]] = field(
        default_factory=list[tuple[str, str, dict[str, str]]]
    )
    more: dict[str, str] = field(default_factory=dict[str, str])
    """Further headers of refusals."""
    _server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.origin = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            verb, path, _ = head[0].split(" ")
            fields = (line.split(":", 1) for line in head[1:] if ":" in line)
            headers = {name.lower(): value.strip() for name, value in fields}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.seen.append((verb, path, headers))
            status, value = self.handle(verb, path, headers, body)
            content = b"" if value is None else json.dumps(value).encode()
            more = "".join(f"{name}: {text}\r\n" for name, text in self.more.items())
            writer.write(
                f"HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(content)}\r\nConnection: close\r\n"
                f"{more if status == 401 else ''}\r\n".encode()
                + content
            )
            await writer.drain()
        writer.close()


@dataclass
class Protected:
    """Both sites. `browse` is a person who signs in at once; `script` changes what they do."""

    lifetime: int = 3600
    is_open: bool = False
    """The server wants no token."""
    tokens: set[str] = field(default_factory=set[str])
    """Those that are taken."""
    refreshes: list[str] = field(default_factory=list[str])
    registered: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    authorization: str = ""
    """Where the browser is sent; empty: the authorization server's own page."""
    knows: str = ""
    """A client that is known beforehand; then none can register."""
    _codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    _valid_refresh: str = ""

    async def __aenter__(self) -> Self:
        self.resource = Site(self._resource)
        self.issuer = Site(self._issuer)
        await self.resource.open()
        await self.issuer.open()
        self.url = f"{self.resource.origin}/mcp"
        metadata = f"{self.resource.origin}/.well-known/oauth-protected-resource/mcp"
        self.resource.more = {"WWW-Authenticate": f'Bearer resource_metadata="{metadata}"'}
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.resource.close()
        await self.issuer.close()

    async def browse(self, address: str) -> None:
        """What a browser does with a person who says yes."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        code = secrets.token_hex(8)
        self._codes[code] = query
        status = await self.come_back(
            query["redirect_uri"], code=code, state=query["state"], iss=self.issuer.origin
        )
        assert status == 200

    async def come_back(self, redirect: str, host: str = "", **query: str) -> int:
        """A request of the browser to keen's page; the status of the answer."""
        parts = urlsplit(redirect)
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        target = f"{parts.path}?{urlencode(query)}"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: {host or parts.netloc}\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ")[1])

    def end_tokens(self) -> None:
        """All tokens given so far are taken no more."""
        self.tokens.clear()

    def _resource(
        self, verb: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        if path == "/.well-known/oauth-protected-resource/mcp":
            servers = [self.issuer.origin]
            return 200, {"resource": self.url, "authorization_servers": servers}
        if path != "/mcp":
            return 404, None
        token = headers.get("authorization", "").removeprefix("Bearer ")
        if not self.is_open and token not in self.tokens:
            return 401, {"error": "invalid_token"}
        if verb != "POST":
            return 405, None
        message: dict[str, Any] = json.loads(body)
        if "id" not in message:
            return 202, None
        results: dict[str, dict[str, Any]] = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "said"}]},
        }
        return 200, {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}

    def _issuer(
        self, verb: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, Any]:
        origin = self.issuer.origin
        match verb, path:
            case "GET", "/.well-known/oauth-authorization-server":
                register = {} if self.knows else {"registration_endpoint": f"{origin}/register"}
                return 200, {
                    "issuer": origin,
                    "authorization_endpoint": self.authorization or f"{origin}/authorize",
                    "token_endpoint": f"{origin}/token",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    **register,
                }
            case "POST", "/register" if not self.knows:
                client: dict[str, Any] = json.loads(body)
                self.registered.append(client)
                return 201, {**client, "client_id": f"client-{len(self.registered)}"}
            case "POST", "/token":
                form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
                return self._token(form)
            case _:
                return 404, None

    def _token(self, form: dict[str, str]) -> tuple[int, Any]:
        if form["grant_type"] == "refresh_token":
            self.refreshes.append(form["refresh_token"])
            if form["refresh_token"] != self._valid_refresh:
                return 400, {"error": "invalid_grant"}
        else:
            asked = self._codes.pop(form["code"], {})
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            same = ("client_id", "redirect_uri", "resource")
            if asked.get("code_challenge") != challenge or asked["code_challenge_method"] != "S256":
                return 400, {"error": "invalid_grant"}
            if any(asked[name] != form[name] for name in same):
                return 400, {"error": "invalid_request"}
        access = f"access-{secrets.token_hex(8)}"
        self._valid_refresh = f"refresh-{secrets.token_hex(8)}"
        self.tokens.add(access)
        return 200, {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.lifetime,
            "refresh_token": self._valid_refresh,
        }
