"""Calling a tool as the toolbox does, in a directory of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keen.core.messages import Json
from keen.tools.base import Context, Outcome, Tool


def context_in(directory: Path) -> Context:
    """A context whose workspace is `directory`."""
    root = directory.resolve()
    return Context(cwd=root, roots=(root,), scratch=root.parent / "scratch")


async def call(tool: Tool, context: Context, **arguments: Json) -> Outcome:
    """Prepare and run at once."""
    return await tool.prepare(arguments, context).run()


async def output(tool: Tool, context: Context, **arguments: Json) -> str:
    """What the model reads of a call that must not fail."""
    outcome = await call(tool, context, **arguments)
    assert not outcome.is_error
    return outcome.output


def outside_tmp() -> Path:
    """A directory that is not below the temporary ones, which sandboxed commands do not see."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    if not home.is_relative_to("/tmp"):
        return home
    if not os.access("/var/lib", os.W_OK):
        pytest.skip("the home directory is a temporary one, and nothing else can be written")
    return Path("/var/lib")
