"""A tool call as lines: one while it runs, its result afterwards, all of it when unfolded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from keen import sanitize
from keen.app import subagent_line
from keen.app.blocks import cropped, folded
from keen.app.look import Look
from keen.core.events import SubagentProgress, SubagentState
from keen.core.messages import Json, JsonObject, ToolCall, ToolResult

State: TypeAlias = Literal["running", "done", "failed", "stopped"]

READING: Final = frozenset({"read_file", "glob", "grep", "recall"})
"""Tools whose neighbouring calls share one line."""
_SHELLS: Final = frozenset({"bash", "!"})
CHANGING: Final = frozenset({"write_file", "edit_file"})
_SUBJECTS: Final = {
    "read_file": "path",
    "write_file": "path",
    "edit_file": "path",
    "glob": "pattern",
    "grep": "pattern",
    "bash": "command",
    "web_fetch": "url",
    "recall": "query",
}
_KEPT: Final = 64 * 1024
"""Characters of output that a card keeps."""
_TAIL: Final = 5
"""Lines of output under a folded card."""
_FAILED_TAIL: Final = 10
_DIFF: Final = 24
"""Lines of a diff under a folded card."""
_OPEN: Final = 400
_SHOWN_SECONDS: Final = 1.0
_TRAIL: Final = 8
"""What a subagent did last, as lines under its own when the card is unfolded."""
_SUBAGENT_STATES: Final[dict[SubagentState, State]] = {
    "queued": "running",
    "running": "running",
    "done": "done",
    "failed": "failed",
    "interrupted": "stopped",
}


def subject(call: ToolCall) -> str:
    """What the call is about, in one harmless line."""
    if call.name == "task":
        return _shared_out(call.input.get("tasks"))
    if call.name == "ask_user":
        return _first_question(call.input.get("questions"))
    named = call.input.get(_SUBJECTS.get(call.name, ""))
    value = named if isinstance(named, str) else _first_text(call.input)
    extra = ""
    if call.name == "grep" and isinstance(path := call.input.get("path"), str):
        extra = f" in {path}"
    if call.name == "read_file" and isinstance(offset := call.input.get("offset"), int):
        extra = f":{offset}"
    return sanitize.line(value.strip() + extra)


def _first_text(arguments: JsonObject) -> str:
    return next((value for value in arguments.values() if isinstance(value, str)), "")


def _first_question(questions: Json) -> str:
    first = questions[0] if isinstance(questions, list) and questions else None
    return sanitize.line(str(first.get("text", ""))) if isinstance(first, dict) else ""


def _shared_out(tasks: Json) -> str:
    """One task by its prompt, several by who is asked."""
    given = [task for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
    agents = [str(task.get("agent") or "general") for task in given]
    if len(given) == 1:
        prompt = str(given[0].get("prompt", "")).strip().partition("\n")[0]
        return sanitize.line(f"{agents[0]}: {prompt}")
    return sanitize.line(", ".join(agents))


@dataclass
class Row:
    """One subagent of a `task` call, and what it did before."""

    told: SubagentProgress
    trail: list[str] = field(default_factory=list[str])

    def follow(self, told: SubagentProgress) -> None:
        """It stands elsewhere now."""
        if told.doing and told.doing != self.told.doing and told.state == "running":
            self.trail = [*self.trail, told.doing][-_TRAIL:]
        self.told = told

    def lines(self, width: int, look: Look, *, is_open: bool, is_over: bool) -> list[Strip]:
        """One line; unfolded, the newest steps below it. `is_over`: the call has ended."""
        state = _SUBAGENT_STATES[self.told.state]
        if is_over and state == "running":
            state = "stopped"
        mark, style = mark_of(state, look)
        words = cropped(subagent_line.line(self.told), max(width - 2, 4))
        drawn = [Strip([Segment(f"{mark} ", style), Segment(words, look.text)])]
        for step in self.trail if is_open else ():
            shown = cropped(f"    {sanitize.line(step)}", width)
            drawn.append(Strip([Segment(shown, look.muted)]))
        return drawn


@dataclass
class Card:
    """One call and what has come of it."""

    call: ToolCall
    state: State = "running"
    seconds: float = 0.0
    diff: str = ""
    """The change, when one was shown for approval or can be told from the arguments."""
    is_open: bool = False
    gap: int = 1
    rows: dict[int, Row] = field(default_factory=dict[int, Row])
    """The subagents of a `task` call, by their number."""
    _output: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.diff and self.call.name in CHANGING:
            self.diff = sketched(self.call)

    @property
    def text(self) -> str:
        return f"{self.call.name} {subject(self.call)}\n{self._output}"

    def add_output(self, text: str) -> None:
        """More live output. Only its end is kept."""
        self._output = (self._output + sanitize.plain(text))[-_KEPT:]

    def show_output(self, text: str) -> None:
        """The newest live output, in place of what there was."""
        self._output = sanitize.plain(text)[-_KEPT:]

    def show_subagent(self, told: SubagentProgress) -> None:
        """Where one of its subagents stands now."""
        if told.number in self.rows:
            self.rows[told.number].follow(told)
        else:
            self.rows[told.number] = Row(told)

    def close(self, result: ToolResult, seconds: float) -> None:
        """The call has ended."""
        self.end(result.output, is_error=result.is_error, seconds=seconds)

    def end(self, output: str, *, is_error: bool, seconds: float) -> None:
        """As `close`, for one that is replayed."""
        self.state = "failed" if is_error else "done"
        if is_error and output.startswith("Interrupted"):
            self.state = "stopped"
        self.seconds = seconds
        text = sanitize.plain(output)
        if len(text) > _KEPT:
            half = _KEPT // 2
            text = (
                f"{text[:half]}\n[… {len(text) - _KEPT:,} characters not shown …]\n{text[-half:]}"
            )
        self._output = text

    def estimate(self, width: int) -> int:
        if self.is_open:
            return self._output.count("\n") + 2 + len(self.rows)
        return 1 + len(self.rows) + min(self.diff.count("\n"), _DIFF)

    def lines(self, width: int, look: Look) -> list[Strip]:
        return [self.heading(width, look), *self._body(width, look)]

    def heading(self, width: int, look: Look) -> Strip:
        """The card's first line."""
        mark, style = mark_of(self.state, look)
        note = self._note()
        words = subject(self.call)
        name = Segment(f"{mark} {self.call.name}{' ' * bool(words)}", style + Style(bold=True))
        room = width - cell_len(name.text) - len(note)
        about = Segment(cropped(words, max(room, 8)) if words else "", look.text)
        return Strip([name, about, Segment(note, look.muted)])

    def _note(self) -> str:
        words: list[str] = []
        if self.state == "done" and self.call.name in READING and self._output:
            words.append(_count(self._output.rstrip("\n").count("\n") + 1))
        if self.state == "stopped":
            words.append("interrupted")
        if self.seconds >= _SHOWN_SECONDS:
            words.append(f"{self.seconds:.1f} s")
        return "".join(f" · {word}" for word in words)

    def _body(self, width: int, look: Look) -> list[Strip]:
        room = max(width - 2, 4)
        drawn: list[Strip] = []
        if self.diff and self.state != "failed":
            drawn += diff_lines(self.diff, room, look, _OPEN if self.is_open else _DIFF)
        for number in sorted(self.rows):
            row = self.rows[number]
            is_over = self.state != "running"
            drawn += row.lines(room, look, is_open=self.is_open, is_over=is_over)
        if self._shows_output():
            drawn += self._output_lines(room, look)
        return [Strip([Segment("  ", look.muted), *strip]) for strip in drawn]

    def _shows_output(self) -> bool:
        """Unfolded, always. Folded, where the lines of subagents do not say it already."""
        if self.is_open:
            return True
        return not self.rows and (self.state in ("failed", "stopped") or self._is_command())

    def _is_command(self) -> bool:
        return self.call.name not in READING and not self.diff

    def _output_lines(self, width: int, look: Look) -> list[Strip]:
        text = self._output.rstrip("\n")
        if not text.strip():
            return []
        style = look.error if self.state == "failed" and not self._is_command() else look.muted
        if self.is_open:
            broken = folded(text, width)
            hidden = len(broken) - _OPEN
            drawn = _strips(broken[-_OPEN:], style)
        else:
            most = _FAILED_TAIL if self.state == "failed" else _TAIL
            all_lines = text.split("\n")
            if self.state == "failed" and self.call.name not in _SHELLS:
                # What a tool of keen's says went wrong is a sentence, not a row of output.
                all_lines = folded(text, width)
            hidden = len(all_lines) - most
            tail = [cropped(line.expandtabs(4), width) for line in all_lines[-most:]]
            drawn = _strips(tail, style)
        if hidden > 0:
            more = f"… {_count(hidden)} above" + ("" if self.is_open else ", Ctrl+O shows them")
            drawn.insert(0, Strip([Segment(cropped(more, width), look.muted)]))
        return drawn


@dataclass
class Reads:
    """Neighbouring calls that only read, in one line; one each when unfolded."""

    cards: list[Card]
    is_open: bool = False
    gap: int = 1

    @property
    def text(self) -> str:
        return "\n".join(card.text for card in self.cards)

    def estimate(self, width: int) -> int:
        return len(self.cards) if self.is_open else 1

    def lines(self, width: int, look: Look) -> list[Strip]:
        failed = [card for card in self.cards if card.state in ("failed", "stopped")]
        if self.is_open:
            drawn: list[Strip] = []
            for card in self.cards:
                card.is_open = True
                drawn += card.lines(width, look)
            return drawn
        for card in self.cards:
            card.is_open = False
        if len(self.cards) == 1:
            return self.cards[0].lines(width, look)
        return [
            self._folded(width, look),
            *(strip for c in failed for strip in c.lines(width, look)),
        ]

    def _folded(self, width: int, look: Look) -> Strip:
        states = {card.state for card in self.cards}
        state: State = "running" if "running" in states else "done"
        mark, style = mark_of(state, look)
        name = f"{mark} {len(self.cards)} reads "
        about = ", ".join(dict.fromkeys(subject(card.call) for card in self.cards))
        room = max(width - len(name), 8)
        return Strip(
            [Segment(name, style + Style(bold=True)), Segment(cropped(about, room), look.text)]
        )


def mark_of(state: State, look: Look) -> tuple[str, Style]:
    """The sign of a state, told by its shape too and not by colour alone."""
    match state:
        case "running":
            return "●", look.accent
        case "done":
            return "✓", look.success
        case "failed":
            return "✗", look.error
        case "stopped":
            return "■", look.warning


def diff_lines(diff: str, width: int, look: Look, most: int) -> list[Strip]:
    """A unified diff in colour, at most `most` lines of it; signs stay, colour is not all."""
    drawn: list[Strip] = []
    rows = [row for row in diff.split("\n") if not row.startswith(("--- ", "+++ "))]
    for row in rows[:most]:
        if row.startswith("+"):
            style = look.added
        elif row.startswith("-"):
            style = look.removed
        elif row.startswith("@@"):
            style = look.accent
        else:
            style = look.muted
        drawn += _strips([cropped(sanitize.block(row).expandtabs(4), width)], style)
    if len(rows) > most:
        drawn += _strips([f"… {_count(len(rows) - most)} more of the change"], look.muted)
    return drawn


def sketched(call: ToolCall) -> str:
    """The change that a call's own arguments tell, without line numbers."""
    match call.name:
        case "edit_file":
            edits = call.input.get("edits")
            return "\n".join(_edit(edit) for edit in edits) if isinstance(edits, list) else ""
        case "write_file":
            content = call.input.get("content")
            return _signed(content, "+") if isinstance(content, str) else ""
        case _:
            return ""


def _edit(edit: Json) -> str:
    if not isinstance(edit, dict):
        return ""
    old, new = edit.get("old"), edit.get("new")
    parts = [_signed(old, "-") if isinstance(old, str) else ""]
    parts.append(_signed(new, "+") if isinstance(new, str) else "")
    return "\n".join(part for part in parts if part)


def _signed(text: str, sign: str) -> str:
    return "\n".join(sign + line for line in text.removesuffix("\n").split("\n")) if text else ""


def _strips(lines: list[str], style: Style) -> list[Strip]:
    return [Strip([Segment(line, style)]) for line in lines]


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"
