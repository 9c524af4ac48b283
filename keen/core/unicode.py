"""Text that can be written as UTF-8."""

from __future__ import annotations


def writable(text: str) -> str:
    """`text` with split surrogate pairs joined and lone ones replaced by U+FFFD.

    They come from names of files that are not UTF-8, and from JSON that was cut.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
