"""From the blocks of a prompt to a message of the person's."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final, TypeAlias
from urllib.parse import unquote, urlsplit

from acp.exceptions import RequestError
from acp.schema import (
    AudioContentBlock,
    BlobResourceContents,
    EmbeddedResourceContentBlock,
    ImageContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from keen.core.messages import Image, User
from keen.tools._images import image

Block: TypeAlias = (
    TextContentBlock
    | ImageContentBlock
    | AudioContentBlock
    | ResourceContentBlock
    | EmbeddedResourceContentBlock
)

_MOST_IMAGE: Final = 5 * 1024 * 1024


def words_of(blocks: Sequence[Block]) -> str:
    """What the person typed, links where they were named; contents and pictures left out."""
    words: list[str] = []
    for block in blocks:
        match block:
            case TextContentBlock(text=text):
                words.append(text)
            case ResourceContentBlock(name=name, uri=uri):
                words.append(_link(uri, name))
            case EmbeddedResourceContentBlock(resource=resource):
                words.append(_link(resource.uri))
            case _:
                pass
    return "".join(words).strip("\n")


def user_message(blocks: Sequence[Block]) -> User:
    """The message; links stand where they were named, embedded contents behind the text. Blocking.

    Raises: RequestError for an empty prompt, and for what no model is sent.
    """
    contents: list[str] = []
    pictures: list[Image] = []
    for block in blocks:
        match block:
            case ImageContentBlock(data=data):
                pictures.append(_picture(data))
            case EmbeddedResourceContentBlock(resource=resource):
                _embed(resource, contents, pictures)
            case AudioContentBlock():
                raise _refused("keen takes no audio.")
            case TextContentBlock() | ResourceContentBlock():
                pass
    text = "\n\n".join(filter(None, [words_of(blocks), *contents]))
    if not text.strip() and not pictures:
        raise _refused("The prompt is empty.")
    return User(text, tuple(pictures))


def _link(uri: str, name: str = "") -> str:
    """A file by its path, as the tools take it; anything else by its address."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        lines = f"#{parts.fragment}" if parts.fragment else ""
        return f"@{unquote(parts.path)}{lines}"
    return f"[{name}]({uri})" if name and name != uri else uri


def _embed(
    resource: TextResourceContents | BlobResourceContents,
    contents: list[str],
    pictures: list[Image],
) -> None:
    match resource:
        case TextResourceContents(uri=uri, text=text):
            contents.append(f'<resource uri="{uri}">\n{text}\n</resource>')
        case BlobResourceContents(uri=uri, blob=blob):
            data = _decoded(blob)
            found = image(data)
            if found is not None and len(data) <= _MOST_IMAGE:
                pictures.append(found)
                return
            contents.append(f"[{uri} is binary, {len(data):,} bytes; its content is not included]")


def _picture(data: str) -> Image:
    content = _decoded(data)
    if len(content) > _MOST_IMAGE:
        raise _refused(f"The picture has {len(content):,} bytes; at most {_MOST_IMAGE:,} can go.")
    found = image(content)
    if found is None:
        raise _refused("The picture is no PNG, JPEG, GIF or WebP.")
    return found


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _refused(f"The data is no base64: {error}.") from error


def _refused(words: str) -> RequestError:
    return RequestError(-32602, words)
