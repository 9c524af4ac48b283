from __future__ import annotations

import asyncio
import contextlib
import gzip
import ipaddress
import ssl
import subprocess
import zlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from keen.core.errors import ToolError
from keen.tools import web_fetch as module
from keen.tools._address import is_public, target_of
from keen.tools._body import Body
from keen.tools.base import Access, Outcome
from keen.tools.web_fetch import WebFetch
from tests.tools.calls import call, context_in

Answer = Callable[[str], bytes]


def answer(body: bytes, kind: str = "text/plain", status: str = "200 OK", extra: str = "") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
    )
    return head.encode() + body


def redirect(to: str) -> bytes:
    return answer(b"", status="302 Found", extra=f"location: {to}\r\n")


class Site:
    """A web server whose answers are bytes by path; the requests it saw are kept."""

    def __init__(self, pages: dict[str, bytes | None]) -> None:
        self.pages = pages
        self.seen: list[str] = []
        self.port = 0
        self.asked = asyncio.Event()
        self.handlers: list[asyncio.Task[None]] = []

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.handlers.append(asyncio.create_task(self.serve(reader, writer)))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.seen.append(head)
            self.asked.set()
            page = self.pages[head.split(" ")[1]]
            if page is None:
                await reader.read()  # until the other side goes
            else:
                writer.write(page)
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def site(
    pages: dict[str, bytes | None], tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Site, None]:
    """Ends only when every connection has ended."""
    made = Site(pages)
    server = await asyncio.start_server(made.connected, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made
        await asyncio.gather(*made.handlers)


async def fetch(where: Site, path: str, scheme: str = "http", host: str = "localhost") -> Outcome:
    url = f"{scheme}://{host}:{where.port}{path}"
    return await call(WebFetch(allow_private=True), context_in(Path("/")), url=url)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://localhost/", "http://[::1]/", "http://0.0.0.0/",
        "http://10.0.0.1/", "http://172.16.3.4/", "http://192.168.1.1/", "http://100.64.0.1/",
        "http://169.254.169.254/latest/meta-data/", "http://224.0.0.1/", "http://240.0.0.1/",
        "http://255.255.255.255/", "http://168.63.129.16/", "http://[::]/", "http://[fe80::1]/",
        "http://[fd00:ec2::254]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/",
        "http://[2001:0:1::1]/", "http://[ff02::1]/", "http://[fec0::1]/", "http://192.0.2.1/",
        "http://127.0.0.1./",
    ],
)  # fmt: skip
async def test_addresses_that_are_not_public_are_never_connected_to(url: str) -> None:
    with pytest.raises(ToolError, match="not a public address"):
        await call(WebFetch(), context_in(Path("/")), url=url)


@pytest.mark.parametrize(
    "url",
    [
        "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://127.1/",
        "http://0177.0.0.1/", "http://127.0.0.0x1/", "http://1.2.3.4.5/", "ftp://example.com/",
        "file:///etc/passwd", "gopher://x/", "http://user@example.com/", "http://a:b@example.com/",
        "http://example.com\\@127.0.0.1/", "http://exa mple.com/", "http://example.com/\r\nX: y",
        "http://[fe80::1%25eth0]/", "http://[::1/", "http://example.com:0/",
        "http://example.com:99999/", "http:///x", "http://-x.com/", "http://a..b/",
        "http://exa\x00mple.com/", "http://ex%61mple.com/", "http://example.com:80:80/", "http://",
    ],
)  # fmt: skip
def test_urls_that_can_be_read_in_two_ways_are_refused(url: str) -> None:
    with pytest.raises(ToolError):
        WebFetch().prepare({"url": url}, context_in(Path("/")))


@pytest.mark.parametrize(
    ("text", "url", "host"),
    [
        ("example.com/a?b=1#c", "https://example.com/a?b=1", "example.com"),
        ("HTTPS://EXAMPLE.com:443/A", "https://example.com/A", "example.com"),
        ("http://bücher.example/ü", "http://xn--bcher-kva.example/ü", "xn--bcher-kva.example"),
        ("http://①②⑦.example/", "http://127.example/", "127.example"),
        ("http://[2606:4700::1111]:8080/", "http://[2606:4700::1111]:8080/", "2606:4700::1111"),
        ("http://example.com./", "http://example.com/", "example.com"),
    ],
)
def test_urls_are_written_in_one_form(text: str, url: str, host: str) -> None:
    target = target_of(text)

    assert (target.url, target.host) == (url, host)
    made = WebFetch().prepare({"url": text}, context_in(Path("/")))
    assert made.accesses == (Access("web_fetch", host, length=len(url)),)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


async def test_text_comes_as_it_is_with_the_names_host(tmp_path: Path) -> None:
    async with site({"/a?b=1": answer(b"plain <b>text</b>")}) as where:
        outcome = await fetch(where, "/a?b=1")

    assert outcome.output.split("\n") == [
        f"[200 text/plain, http://localhost:{where.port}/a?b=1]",
        "plain <b>text</b>",
    ]
    assert f"Host: localhost:{where.port}\r\n".lower() in where.seen[0].lower()


async def test_a_page_becomes_markdown_with_absolute_links() -> None:
    page = b"""<!DOCTYPE html><html><head><title>The  page</title><style>p{}</style></head>
    <body><script>evil()</script><h1>Head</h1><p>A <a href="/x">link</a> and
    <a href="javascript:alert(1)">none</a><img src="data:image/png;base64,AAAA" alt="pic"></p>
    <pre><code>x = 1
y = 2</code></pre></body></html>"""
    async with site({"/": answer(page, "text/html; charset=utf-8")}) as where:
        text = (await fetch(where, "/")).output

    assert "Title: The page" in text
    assert "# Head" in text
    assert f"[link](http://localhost:{where.port}/x)" in text
    assert "x = 1\ny = 2" in text
    assert not any(word in text for word in ("evil", "p{}", "javascript", "base64"))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html; charset=iso-8859-1", "<p>gr\xfc\xdfe</p>".encode("latin-1")),
        ("text/html", b"<meta charset=windows-1251><p>gr" + "üße</p>".encode("cp1252")),
        ("text/html; charset=nonsense", "<p>grüße</p>".encode()),
        ("text/html; charset=idna", "<p>grüße</p>".encode()),
        ("", b"<!DOCTYPE html><p>" + "grüße</p>".encode()),
    ],
)
async def test_charsets_are_followed_and_bad_ones_survived(kind: str, body: bytes) -> None:
    async with site({"/": answer(body, kind)}) as where:
        text = (await fetch(where, "/")).output

    assert "gr" in text
    assert "<p>" not in text
    if "1251" not in str(body):
        assert "grüße" in text


async def test_an_error_page_is_an_error_with_its_text() -> None:
    async with site({"/": answer(b"no such page", status="404 Not Found")}) as where:
        outcome = await fetch(where, "/")

    assert outcome.is_error
    assert "[404 text/plain" in outcome.output
    assert "no such page" in outcome.output


async def test_what_is_no_text_is_described() -> None:
    pages: dict[str, bytes | None] = {
        "/pdf": answer(b"%PDF-1.7\0\0", "application/pdf"),
        "/bin": answer(b"\0\1\2", "text/plain"),
        "/gif": answer(b"GIF89a\x09\0\x07\0" + bytes(9), "image/gif"),
        "/json": answer(b'{"a": 1}', "application/vnd.api+json"),
    }
    async with site(pages) as where:
        assert "[no text: 10 bytes]" in (await fetch(where, "/pdf")).output
        assert "[no text: 3 bytes]" in (await fetch(where, "/bin")).output
        assert (await fetch(where, "/gif")).images[0].width == 9
        assert '{"a": 1}' in (await fetch(where, "/json")).output


async def test_redirects_on_one_host_are_followed_five_times() -> None:
    pages: dict[str, bytes | None] = {f"/{i}": redirect(f"/{i + 1}") for i in range(6)}
    async with site({**pages, "/6": answer(b"there")}) as where:
        assert "there" in (await fetch(where, "/1")).output
        with pytest.raises(ToolError, match="more than 5 times"):
            await fetch(where, "/0")


@pytest.mark.parametrize(
    "to", ["http://example.com/x", "//example.com/x", "https://other.example/"]
)
async def test_another_host_is_told_not_followed(to: str) -> None:
    async with site({"/": redirect(to)}) as where:
        outcome = await fetch(where, "/")

    assert "redirects to another host. To go on, fetch http" in outcome.output
    assert len(where.seen) == 1


@pytest.mark.parametrize("to", ["file:///etc/passwd", "http://user@localhost/", "http://0x7f.1/"])
async def test_a_redirect_is_judged_like_a_url(to: str) -> None:
    async with site({"/": redirect(to)}) as where:
        with pytest.raises(ToolError):
            await fetch(where, "/")


def certificate(directory: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    key, cert = directory / f"{name}.key", directory / f"{name}.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(cert)]
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run([*made, *files, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


async def test_tls_proves_the_name_though_the_address_is_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, trusted = await asyncio.to_thread(certificate, tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    names: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    pages: dict[str, bytes | None] = {"/": answer(b"safe"), "/down": redirect("http://localhost/")}
    async with site(pages, tls) as where:
        assert "safe" in (await fetch(where, "/", "https")).output
        with pytest.raises(ToolError, match="not encrypted"):
            await fetch(where, "/down", "https")
        with pytest.raises(ToolError, match="certificate verify failed"):
            await fetch(where, "/", "https", host="127.0.0.1")

    assert names[0] == "localhost"


async def test_a_certificate_for_another_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, trusted = await asyncio.to_thread(certificate, tmp_path, "other.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    async with site({"/": answer(b"stolen")}, tls) as where:
        with pytest.raises(ToolError, match="certificate verify failed"):
            await fetch(where, "/", "https")


async def test_compressed_pages_are_unpacked() -> None:
    pages: dict[str, bytes | None] = {
        "/gzip": answer(gzip.compress(b"hello"), extra="content-encoding: gzip\r\n"),
        "/deflate": answer(zlib.compress(b"hello"), extra="content-encoding: deflate\r\n"),
        "/br": answer(b"\x0b\x02\x80hello\x03", extra="content-encoding: br\r\n"),
        "/bad": answer(b"no gzip at all", extra="content-encoding: gzip\r\n"),
    }
    async with site(pages) as where:
        assert (await fetch(where, "/gzip")).output.endswith("\nhello")
        assert (await fetch(where, "/deflate")).output.endswith("\nhello")
        with pytest.raises(ToolError, match="br, unasked"):
            await fetch(where, "/br")
        with pytest.raises(ToolError, match="damaged"):
            await fetch(where, "/bad")


def test_a_decompression_bomb_is_never_unpacked_beyond_the_limit() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    body = Body("gzip", 1_000_000)

    body.feed(bomb)

    assert len(bomb) < 300_000
    assert (len(body.content), body.is_cut) == (1_000_000, True)


async def test_a_long_page_is_cut_and_says_so() -> None:
    async with site({"/": answer(b"x" * (6 * 1024 * 1024))}) as where:
        outcome = await fetch(where, "/")

    assert outcome.output.endswith("more characters]")
    assert len(outcome.output) < 1_001_000


async def test_a_page_nested_without_end_still_gives_its_text() -> None:
    page = b"<html><body>" + b"<div>" * 20_000 + b"deep text<script>no</script>"
    async with site({"/": answer(page, "text/html")}) as where:
        text = (await fetch(where, "/")).output

    assert text.endswith("\ndeep text")


async def test_a_server_that_says_nothing_ends_with_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_SECONDS", 0.2)
    async with site({"/": None}) as where:
        with pytest.raises(ToolError, match="no whole answer within"):
            await fetch(where, "/")


async def test_cancelling_ends_the_connection() -> None:
    async with site({"/": None}) as where:
        url = f"http://localhost:{where.port}/"
        task = asyncio.create_task(
            call(WebFetch(allow_private=True), context_in(Path("/")), url=url)
        )
        await where.asked.wait()

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_closed_port_and_an_unknown_name_are_explained() -> None:
    async with site({}) as where:
        pass
    with pytest.raises(ToolError, match="cannot be reached"):
        await fetch(where, "/")
    with pytest.raises(ToolError, match="cannot be resolved"):
        await fetch(where, "/", host="nowhere.invalid")


async def test_a_proxy_of_the_environment_is_used_and_gets_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with site({"http://nowhere.invalid/a": answer(b"by proxy")}) as where:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{where.port}")
        context = context_in(Path("/"))
        outcome = await call(WebFetch(), context, url="http://nowhere.invalid/a")
        with pytest.raises(ToolError, match="not a public address"):
            await call(WebFetch(), context, url="http://10.0.0.1/")

    assert outcome.output.endswith("by proxy")
