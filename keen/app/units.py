"""Numbers as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`7s`, `1m 02s`, `2h 05m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3_600}h {whole % 3_600 // 60:02d}m"


def tokens(count: int) -> str:
    """`812`, `3.4k`, `128k`, `1.2M`."""
    if count < 1_000:
        return str(count)
    if count < 10_000:
        return f"{count / 1_000:.1f}k"
    if count < 1_000_000:
        return f"{count // 1_000}k"
    return f"{count / 1_000_000:.1f}M"


def dollars(amount: float) -> str:
    """`$0.04`, `$12.30`; a fraction of a cent is `<$0.01`."""
    if 0 < amount < 0.005:
        return "<$0.01"
    return f"${amount:.2f}"


def several(count: int, one: str, many: str = "") -> str:
    """`1 file`, `3 files`."""
    return f"1 {one}" if count == 1 else f"{count:,} {many or one + 's'}"
