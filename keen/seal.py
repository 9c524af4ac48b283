"""Closes this process's memory to the commands it starts: keys are in it and in its environment."""

from __future__ import annotations

import sys
from typing import Final

_SET_DUMPABLE: Final = 4


def seal() -> bool:
    """Keep /proc/PID/environ and debuggers of the same user out; True where the system can.

    Linux alone has this. Programs started from here on are not affected themselves.
    """
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        return ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False
