"""Signatures as a provider gives them: bound to an account and to the content they stand for.

`issued` remembers what was signed for a call, so that a request which returns the call without its
signature can be told from one whose call came from elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
from typing import Final

_numbers: Final = itertools.count(1)
issued: Final[dict[str, str]] = {}
"""Call id, or name and arguments where a protocol has no ids, to the reasoning signed for it."""


def fresh_id(prefix: str) -> str:
    """An id no other call of this process has."""
    return f"{prefix}{next(_numbers):06d}"


def sign(account: str, content: str) -> str:
    """The signature of `content`: 128 bytes in base64, different in every account."""
    digest = hashlib.sha512(f"{account}\0{content}".encode())
    more = hashlib.sha512(digest.digest())
    return base64.b64encode(digest.digest() + more.digest()).decode()


def is_signature(account: str, content: str, signature: str) -> bool:
    """True when this account signed exactly this content; the base64 alphabet does not matter."""
    try:
        given = base64.b64decode(signature.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        return False
    return given == base64.b64decode(sign(account, content))
