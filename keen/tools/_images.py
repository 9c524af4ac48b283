"""What kind of picture some bytes are, and how large it is, by its header alone."""

from __future__ import annotations

import struct
from typing import Final

from keen.core.messages import Image

_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG markers that carry the size."""


def image(content: bytes) -> Image | None:
    """The picture, or None when it is no PNG, JPEG, GIF or WebP that can be measured."""
    try:
        media_type, (width, height) = _measured(content)
    except (struct.error, IndexError, ValueError):
        return None
    if width <= 0 or height <= 0:
        return None
    return Image(media_type, content, width, height)


def _measured(content: bytes) -> tuple[str, tuple[int, int]]:
    """Raises struct.error, IndexError or ValueError where the header is not whole."""
    match content[:12]:
        case head if head.startswith(b"\x89PNG\r\n\x1a\n") and content[12:16] == b"IHDR":
            return "image/png", struct.unpack(">II", content[16:24])
        case head if head.startswith((b"GIF87a", b"GIF89a")):
            return "image/gif", struct.unpack("<HH", content[6:10])
        case head if head.startswith(b"RIFF") and head[8:] == b"WEBP":
            return "image/webp", _webp(content)
        case head if head.startswith(b"\xff\xd8\xff"):
            return "image/jpeg", _jpeg(content)
        case _:
            raise ValueError("no picture")


def _webp(content: bytes) -> tuple[int, int]:
    match content[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", content[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            (bits,) = struct.unpack("<I", content[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            width = int.from_bytes(content[24:27], "little") + 1
            height = int.from_bytes(content[27:30], "little") + 1
            return width, height
        case _:
            raise ValueError("unknown WebP")


def _jpeg(content: bytes) -> tuple[int, int]:
    position = 2
    while True:
        while content[position] != 0xFF:
            position += 1
        while content[position] == 0xFF:
            position += 1
        marker = content[position]
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", content[position + 4 : position + 8])
            return width, height
        if marker == 0xDA:
            raise ValueError("picture data before its size")
        if marker == 0x01 or 0xD0 <= marker <= 0xD9:
            position += 1
            continue
        (length,) = struct.unpack(">H", content[position + 1 : position + 3])
        position += 1 + length
