"""`keen acp`: keen as an agent for editors, on stdin and stdout."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from typing import Final

from keen import log
from keen.commands._place import Subparsers
from keen.commands.arguments import add_flags, options
from keen.core.errors import UsageError
from keen.paths import Paths

_LAST_WORDS_SECONDS: Final = 2.0
_TERMINATED: Final = (128 + signal.SIGTERM, 128 + signal.SIGHUP)


def add_parser(subparsers: Subparsers) -> None:
    """Add `acp` to a parser."""
    parser = subparsers.add_parser("acp", help="Agent Client Protocol on stdio, for editors")
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve a client until it leaves; the exit code. Raises: UsageError."""
    if arguments.is_continued or arguments.resume is not None or arguments.fork_session:
        raise UsageError("with `keen acp` the editor says which session goes on; leave the flag.")
    wanted = options(arguments)
    if sys.stdin.isatty():
        raise UsageError("`keen acp` speaks with an editor: set it up there as an agent.")
    environment = dict(os.environ)
    log.configure(Paths.from_environment(environment).logs, is_debugging=wanted.is_debugging)
    source, sink = _own_streams()
    from keen.acp.serve import serve

    async def served() -> int:
        code = await serve(wanted, environment, source, sink)
        code = 0 if code in _TERMINATED else code
        _leave_in_time(code)
        return code

    return asyncio.run(served())


def _leave_in_time(code: int) -> None:
    """Leave even if a thread never ends, such as one that reads from a network that is gone."""
    leaving = threading.Timer(_LAST_WORDS_SECONDS, os._exit, (code,))
    leaving.daemon = True
    leaving.start()


def _own_streams() -> tuple[int, int]:
    """Descriptors that only the protocol uses: nothing that is printed can get between."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink
