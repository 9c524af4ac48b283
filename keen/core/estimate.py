"""How many tokens a piece of an encoded request costs, without a tokenizer."""

from __future__ import annotations

import re
from typing import Final

from keen.core.messages import Json

_CJK: Final = (
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef"
    "\U00020000-\U0003ffff]"
)
_EMOJI: Final = "[\u2600-\u27bf\U0001f000-\U0001faff]"
_ASCII: Final = "[\x00-\x7f]+"
_STRUCTURE: Final = 1
"""Tokens for the punctuation around one key or element."""


class Opaque(str):
    """A string that costs `tokens` whatever its length: base64 of an image, a signature.

    It is an ordinary string to every JSON encoder; only the estimate tells it apart.
    """

    __slots__ = ("tokens",)
    tokens: int

    def __new__(cls, value: str, tokens: int = 0) -> Opaque:
        self = super().__new__(cls, value)
        self.tokens = tokens
        return self


def text_tokens(text: str) -> int:
    """About 3.5 bytes of ASCII a token, one token per CJK character, two per emoji, two bytes else.

    Characters divided by four undercount CJK two to six times (openclaw#103930).
    """
    if text.isascii():
        return -(-len(text) * 2 // 7)
    # Compiled and kept by `re` when first needed: a start over plain text does without.
    cjk = len(re.findall(_CJK, text))
    emoji = len(re.findall(_EMOJI, text))
    plain = sum(map(len, re.findall(_ASCII, text)))
    other = len(text) - cjk - emoji - plain
    return -(-plain * 2 // 7) + cjk + 2 * emoji + other


def image_tokens(width: int, height: int) -> int:
    """Tokens of an image by its pixels, about 750 a token; unknown dimensions count 1,600."""
    if width <= 0 or height <= 0:
        return 1_600
    return max(85, min(width * height // 750, 6_400))


def json_tokens(value: Json) -> int:
    """Tokens of a JSON value as it stands in a request; an `Opaque` costs what it says."""
    total = 0
    stack: list[Json] = [value]
    while stack:
        match stack.pop():
            case Opaque() as opaque:
                total += opaque.tokens
            case str() as text:
                total += text_tokens(text)
            case dict() as fields:
                total += sum(text_tokens(key) + _STRUCTURE for key in fields)
                stack.extend(fields.values())
            case list() as items:
                total += _STRUCTURE
                stack.extend(items)
            case None:
                pass
            case _:
                total += 1
    return total
