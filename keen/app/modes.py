"""The modes by name."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Mode: TypeAlias = Literal["plan", "build", "yolo"]
MODES: Final[tuple[Mode, ...]] = ("plan", "build", "yolo")


def mode_named(name: str) -> Mode | None:
    """The mode of that name."""
    for mode in MODES:
        if mode == name:
            return mode
    return None
