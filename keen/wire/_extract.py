"""The embedded provider's summary of a flattened conversation: extracted, never invented."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from keen.core.estimate import text_tokens

_LABEL: Final = re.compile(
    r"^\[(?:(?P<user>USER)[^\]\n]*|(?P<agent>AGENT)(?: \(interrupted\))?"
    r"|AGENT CALLS (?P<call>[\w.-]+)|RESULT OF (?P<result>[\w.-]+): (?P<status>[^\]\n]*)"
    r"|(?P<earlier>EARLIER CHECKPOINT): merge it)\](?: \([\d,]+ characters left out\))?$",
    re.MULTILINE,
)
_TROUBLE: Final = re.compile(
    r"(?i:\b(?:fail(?:ed|ure)?|panic|fatal|traceback|warning|cannot)\b)|(?i:error|exception)\b"
)
_NOTE: Final = re.compile(r"^\s*(?:FACT|NOTE|IMPORTANT|TODO|DECISION)\b[:\s]", re.I)
_VALUE: Final = re.compile(
    r"^\s*(?:(?:export |final |static )*const\s+\w+|[A-Z][A-Z0-9_]{3,})\b.*="
)
_OF_A_FILE: Final = re.compile(r"(?:read_file|grep|glob|bash) [^:]*: ")
"""Begins a line that a tool said; what the agent said outlives it."""
_COMMENT: Final = re.compile(r"^\s*(?:#|//|--|;|/\*)+\s*\w.{15,}")
_FILLER: Final = re.compile(r"(?:let me|let's|now|okay|ok|sure|great|i will|i'll|looking)\b", re.I)
_DONE: Final = re.compile(
    r"\b(?:added|changed|created|deleted|done|fixed|has now|moved|now has|now takes|removed|renamed"
    r"|replaced|wrote)\b",
    re.I,
)
_OPEN: Final = re.compile(
    r"\b(?:blocked|missing|next|not yet|open question|remaining|remains|still|to do|todo"
    r"|unexplained|unresolved|unsolved)\b",
    re.I,
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+(?=[\w`'\"(%~/-])|\n+")
_LINE_NUMBER: Final = re.compile(r"^\s*\d+\t")
_SECTIONS: Final = (
    "Goal",
    "Key Instructions",
    "Discoveries",
    "Accomplished",
    "Relevant Files",
)
_LINE: Final = 240
_SHORTEST: Final = 20
"""Characters under which a sentence of the agent's says nothing."""
_MOST: Final = 60
"""Lines kept of one section; the newest win, and the first of the goal stays."""
_OF_A_RESULT: Final = 4
"""Lines of each kind taken from one result."""
_TOKENS: Final = 3_600
"""A summary is never longer: the guide's answers are capped like any model's."""
_COUNTED: Final = re.compile(r"\d+ tool calls since the last checkpoint|Next: go on")
_MOST_FILES: Final = 200
"""Lines kept of the last section: the guide finds there what it has read."""


@dataclass
class _Found:
    sections: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in _SECTIONS})

    def add(self, section: str, line: str) -> None:
        line = " ".join(line.split())[:_LINE]
        lines = self.sections[section]
        if line and line not in lines:
            lines.append(line)


def summary(transcript: str) -> str:
    """Five sections of what stands in the transcript, each line taken from it and shortened."""
    found = _Found()
    pending: list[str] = []
    calls = 0
    for label, body in _pieces(transcript):
        if label["earlier"]:
            _merge(found, body)
        elif label["user"]:
            goal, *rest = _SENTENCE_END.split(body)
            found.add("Goal", goal)
            for sentence in rest:
                found.add("Key Instructions", sentence)
        elif label["agent"]:
            _listen(found, body)
        elif label["call"]:
            pending.append(_subject(label["call"], body))
            calls += 1
        elif label["result"]:
            call = pending.pop(0) if pending else label["result"]
            found.add("Relevant Files", f"{call}: {label['status']}")
            _discover(found, call, body, has_failed="failed" in (label["status"] or ""))
    found.add("Accomplished", f"{calls} tool calls since the last checkpoint, listed below.")
    found.add("Accomplished", "Next: go on with the person's most recent message.")
    return _written(found)


def _pieces(transcript: str) -> Iterable[tuple[dict[str, str | None], str]]:
    labels = list(_LABEL.finditer(transcript))
    for index, label in enumerate(labels):
        end = labels[index + 1].start() if index + 1 < len(labels) else len(transcript)
        yield label.groupdict(), transcript[label.end() : end].strip()


def _merge(found: _Found, body: str) -> None:
    section = ""
    for line in body.splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
        elif section in _SECTIONS and not _COUNTED.match(line := line.removeprefix("- ")):
            found.add(section, line)


def _listen(found: _Found, body: str) -> None:
    """What the agent said, by what it says of the work; announcements are left out."""
    for sentence in _SENTENCE_END.split(body):
        if len(sentence) < _SHORTEST or _FILLER.match(sentence.strip()):
            continue
        is_progress = _DONE.search(sentence) or _OPEN.search(sentence)
        found.add("Accomplished" if is_progress else "Discoveries", sentence)


def _subject(name: str, body: str) -> str:
    """A call in a few words: its name and its first string argument."""
    argument = re.search(r':\s*"((?:[^"\\]|\\.)*)"', body)
    return f"{name} {argument[1]}" if argument else name


def _discover(found: _Found, call: str, body: str, *, has_failed: bool) -> None:
    """Notes, values and comments of a result, and its errors: the last ones say most."""
    lines = [_LINE_NUMBER.sub("", line).strip() for line in body.splitlines() if line.strip()]
    for line in filter(_NOTE.search, lines):
        found.add("Discoveries", line)
    if has_failed:
        told = list(filter(_TROUBLE.search, lines)) or lines[-1:]
    else:
        told = [line for line in lines if _VALUE.match(line) or _COMMENT.match(line)]
        told = [*told[:_OF_A_RESULT], *list(filter(_TROUBLE.search, lines))[:2]]
    for line in told[-_OF_A_RESULT:]:
        found.add("Discoveries", f"{call}: {line}")


def _written(found: _Found) -> str:
    """The sections, shortened together until the whole is short enough."""
    most = _MOST
    while True:
        text = "\n\n".join(_section(name, found.sections[name], most) for name in _SECTIONS)
        if text_tokens(text) <= _TOKENS or most <= 5:
            return text
        most = most * 3 // 4


def _is_weak(line: str) -> bool:
    return bool(_OF_A_FILE.match(line)) and not _TROUBLE.search(line)


def _section(name: str, lines: list[str], most: int) -> str:
    if name == "Relevant Files":
        most = most * _MOST_FILES // _MOST
    dropped = len(lines) - most
    shown = lines
    if dropped > 0:
        spared = {lines[0]} if name == "Goal" else {x for x in lines if not _is_weak(x)}
        weak = [line for line in lines if line not in spared][:dropped]
        gone = {*weak, *[line for line in lines if line in spared][: dropped - len(weak)]}
        shown = [f"({dropped} older lines left out)", *(x for x in lines if x not in gone)]
    return f"## {name}\n" + "\n".join(f"- {line}" for line in shown or ["nothing"])
