"""The tool `grep`: lines by a regular expression, with ripgrep where there is one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import Field

from keen.core.errors import ToolError
from keen.core.messages import JsonObject, ToolSpec
from keen.tools._arguments import Arguments, parse, tool_spec
from keen.tools._blocking import in_thread
from keen.tools._ignore import MOST_SECONDS, Walk, matcher
from keen.tools._search import (
    BadPattern,
    Engine,
    Hit,
    hits,
    python_engine,
    ripgrep,
    ripgrep_engine,
)
from keen.tools.base import Context, Effect, Outcome, PreparedCall
from keen.tools.glob import check_searchable
from keen.tools.guard import Place, is_environment_file, locate, shown

_MOST_SHOWN: Final = 200
_MOST_OUTPUT: Final = 50_000
_MOST_WIDTH: Final = 400
_MOST_COUNTED: Final = 100_000


class GrepArguments(Arguments):
    """What the model sends."""

    example: ClassVar[JsonObject] = {"pattern": r"def \w+_tokens\(", "include": "*.py"}

    pattern: str = Field(min_length=1, max_length=4_000)
    path: str = Field(default=".", min_length=1)
    include: str = Field(default="", max_length=1_000, description="glob of file names")
    mode: Literal["content", "files", "count"] = "content"


class Grep:
    """`is_left_out` tells which files a search does not show unless they are named as its path."""

    effect: Effect = "read"

    def __init__(self, is_left_out: Callable[[Path], bool] = is_environment_file) -> None:
        self._is_left_out = is_left_out
        self.spec: ToolSpec = tool_spec(
            "grep",
            "Search file contents by regular expression, line by line; (?i) ignores case. Ignored"
            " and binary files are left out.",
            GrepArguments,
        )

    def prepare(self, input: JsonObject, context: Context) -> PreparedCall:
        arguments = parse(GrepArguments, input, "grep")
        if "\n" in arguments.pattern:
            raise ToolError("grep looks at one line at a time: send a pattern without line ends.")
        place = locate(arguments.path, context)
        matches = matcher(arguments.include) if arguments.include else None

        async def run() -> Outcome:
            check_searchable(place, context)
            search = _Search(arguments, place, context, matches, self._is_left_out)
            return Outcome(await search.run())

        return PreparedCall(place.accesses("read"), run)


@dataclass(slots=True)
class _Search:
    """One search and what it found so far; memory is bounded by what is shown."""

    arguments: GrepArguments
    place: Place
    context: Context
    matches: Callable[[str], bool] | None
    is_left_out: Callable[[Path], bool]
    lines: list[str] = field(default_factory=list[str])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    wanted: dict[str, bool] = field(default_factory=dict[str, bool])
    secret: int = 0
    size: int = 0
    total: int = 0
    notes: list[str] = field(default_factory=list[str])

    async def run(self) -> str:
        try:
            async with asyncio.timeout(MOST_SECONDS):
                await self._collect()
        except TimeoutError:
            last = f" in {next(reversed(self.counts))}" if self.counts else ""
            self.notes.append(
                f"stopped after {MOST_SECONDS:.0f} s, after the matches{last}: the pattern is slow"
                " or the tree is large; narrow path or include"
            )
        return self._report()

    async def _collect(self) -> None:
        program = ripgrep(self.context.roots)
        if program is not None:
            engine = ripgrep_engine(
                program, self.arguments.pattern, self.place.real, self._most, self._plain_include
            )
            with contextlib.suppress(BadPattern):
                await self._take(engine)
                return
        engine = await in_thread(lambda stop: self._python(Walk(self.place.real, stop)))
        try:
            await self._take(engine)
        except BadPattern as error:
            raise ToolError(
                f"The pattern is no valid regular expression: {error}. Escape ( ) [ ] {{ }} . * +"
                " ? | ^ $ and \\ where they are meant literally."
            ) from None

    @property
    def _most(self) -> int:
        return 1 if self.arguments.mode == "files" else 0

    @property
    def _plain_include(self) -> str:
        """The include where ripgrep can apply it below its ignore rules: names without a colon."""
        include = self.arguments.include
        return "" if set(include) & set("/:\\!") else include

    def _python(self, walk: Walk) -> Engine:
        files = [str(walk.start)] if walk.start.is_file() else list(walk.files())
        if walk.is_cut:
            self.notes.append("the tree is too large to be searched whole; narrow path")
        wanted = [path for path in files if self._is_included(path)]
        return python_engine(self.arguments.pattern, wanted, self._most)

    async def _take(self, engine: Engine) -> None:
        async with contextlib.aclosing(hits(engine, self.place.real)) as found:
            async for hit in found:
                if self._is_wanted(hit.path):
                    self._add(hit)
                if self.total >= _MOST_COUNTED:
                    self.notes.append(f"stopped after {_MOST_COUNTED:,} matches")
                    return

    def _is_wanted(self, path: str) -> bool:
        if path not in self.wanted:
            if len(self.wanted) > _MOST_COUNTED:
                self.wanted.clear()
            self.wanted[path] = self._judged(path)
        return self.wanted[path]

    def _judged(self, path: str) -> bool:
        if not self._is_included(path):
            return False
        if path == str(self.place.real) or not self.is_left_out(Path(path)):
            return True
        self.secret += 1
        return False

    def _is_included(self, path: str) -> bool:
        start = str(self.place.real)
        if self.matches is None or path == start:
            return True
        return self.matches(path[len(start.rstrip("/")) + 1 :])

    def _add(self, hit: Hit) -> None:
        self.total += 1
        self.counts[hit.path] = self.counts.get(hit.path, 0) + 1
        if self.arguments.mode != "content" or len(self.lines) >= _MOST_SHOWN:
            return
        text = hit.text if len(hit.text) <= _MOST_WIDTH else f"{hit.text[:_MOST_WIDTH]}…"
        line = f"{shown(Path(hit.path), self.context)}:{hit.number}:{text}"
        self.size += len(line.encode("utf-8", "replace")) + 1
        if self.size <= _MOST_OUTPUT:
            self.lines.append(line)

    def _report(self) -> str:
        files = list(self.counts)
        match self.arguments.mode:
            case "content":
                lines, rest = self.lines, self.total - len(self.lines)
                more = f"{rest:,} more matching lines, {len(files):,} files in all"
            case "files":
                lines = [shown(Path(path), self.context) for path in files[:_MOST_SHOWN]]
                rest = len(files) - len(lines)
                more = f"{rest:,} more files"
            case "count":
                lines = [
                    f"{shown(Path(path), self.context)}:{self.counts[path]}"
                    for path in files[:_MOST_SHOWN]
                ]
                rest = len(files) - len(lines)
                more = f"{rest:,} more files, {self.total:,} matching lines in all"
        notes = [f"{more}; narrow the search"] if rest else []
        notes += self.notes
        if self.secret:
            notes.append(
                f"{self.secret} files with secrets left out; name one as path to search it"
            )
        if not lines and not notes:
            where = shown(self.place.real, self.context)
            return f"No match for {self.arguments.pattern} in {where}"
        return "\n".join([*lines, *(f"[{note}]" for note in notes)])
