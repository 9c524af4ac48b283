"""From a server's answer to what a tool has to say."""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
from pathlib import Path
from typing import Final

import mcp_types

from keen.core.messages import Image, Json
from keen.tools._images import image
from keen.tools.base import Outcome

_MOST_IMAGES: Final = 20
_MOST_WORDS: Final = 200


def outcome(result: mcp_types.CallToolResult, scratch: Path) -> Outcome:
    """Text in the order it came, pictures beside it, other bytes in `scratch`. Blocking."""
    texts: list[str] = []
    images: list[Image] = []
    for part in result.content:
        text, picture = _part(part, scratch)
        if picture is not None and len(images) < _MOST_IMAGES:
            images.append(picture)
        if text:
            texts.append(text)
    structured: Json = result.structured_content
    if structured is not None and not _is_said(structured, texts):
        texts.append(json.dumps(structured, ensure_ascii=False))
    if not texts and not images:
        texts.append("(the tool answered without content)")
    return Outcome("\n\n".join(texts), bool(result.is_error), tuple(images))


def contents(
    parts: list[mcp_types.TextResourceContents | mcp_types.BlobResourceContents], scratch: Path
) -> Outcome:
    """The contents of a resource that was read. Blocking."""
    texts: list[str] = []
    images: list[Image] = []
    for part in parts:
        text, picture = _resource(part, scratch)
        texts.append(text)
        if picture is not None:
            images.append(picture)
    return Outcome("\n\n".join(texts) or "(an empty resource)", images=tuple(images))


def prompt(messages: list[mcp_types.PromptMessage], scratch: Path) -> Outcome:
    """What the messages of a prompt say, in their order, and the pictures in them. Blocking."""
    texts: list[str] = []
    images: list[Image] = []
    for message in messages:
        text, picture = _part(message.content, scratch)
        if picture is not None and len(images) < _MOST_IMAGES:
            images.append(picture)
        if text:
            texts.append(text)
    return Outcome("\n\n".join(texts), images=tuple(images))


def _part(part: mcp_types.ContentBlock, scratch: Path) -> tuple[str, Image | None]:
    match part:
        case mcp_types.TextContent(text=text):
            return text, None
        case mcp_types.ImageContent(data=data, mime_type=kind):
            return _bytes(data, kind, "image", scratch)
        case mcp_types.AudioContent(data=data, mime_type=kind):
            return _bytes(data, kind, "audio", scratch)
        case mcp_types.EmbeddedResource(resource=resource):
            return _resource(resource, scratch)
        case mcp_types.ResourceLink(uri=uri, name=name, description=description):
            about = f": {description[:_MOST_WORDS]}" if description else ""
            return f"[resource {name} at {uri}{about}]", None


def _resource(
    resource: mcp_types.TextResourceContents | mcp_types.BlobResourceContents, scratch: Path
) -> tuple[str, Image | None]:
    if isinstance(resource, mcp_types.TextResourceContents):
        return f"[resource {resource.uri}]\n{resource.text}", None
    text, picture = _bytes(resource.blob, resource.mime_type or "", str(resource.uri), scratch)
    return text or f"[resource {resource.uri}: an image]", picture


def _bytes(data: str, kind: str, what: str, scratch: Path) -> tuple[str, Image | None]:
    try:
        content = base64.b64decode(data, validate=False)
    except (binascii.Error, ValueError):
        return f"[{what}: its bytes are no base64]", None
    picture = image(content)
    if picture is not None:
        return "", picture
    path = scratch / f"mcp-{secrets.token_hex(4)}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        return f"[{what}, {kind}, {len(content):,} bytes: not kept, {error.strerror}]", None
    return f"[{what}, {kind}, {len(content):,} bytes, in {path}]", None


def _is_said(structured: Json, texts: list[str]) -> bool:
    """True when the texts hold the structured content, as servers repeat it for older clients."""
    values = structured.values() if isinstance(structured, dict) else ()
    if values and all(isinstance(value, str) and value in texts for value in values):
        return True
    return any(_says(text, structured) for text in texts)


def _says(text: str, structured: Json) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        return json.loads(text) == structured
    except (ValueError, RecursionError):
        return False
