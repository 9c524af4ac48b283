"""The embedded provider's summary of a flattened conversation: extracted, never invented."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

_LABEL: Final = re.compile(
    r"^\[(?:(?P<user>USER)[^\]\n]*|(?P<agent>AGENT)(?: \(interrupted\))?"
    r"|AGENT CALLS (?P<call>[\w.-]+)|RESULT OF (?P<result>[\w.-]+): (?P<status>[^\]\n]*)"
    r"|(?P<earlier>EARLIER CHECKPOINT): merge it)\](?: \([\d,]+ characters left out\))?$",
    re.MULTILINE,
)
_RULE: Final = re.compile(r"\b(must|never|always|do not|don't|only|exactly|keep|without)\b", re.I)
_TROUBLE: Final = re.compile(r"\b(error|exception|failed|failure|traceback|warning)\b", re.I)
_FACT: Final = re.compile(r"^\s*(?:FACT|NOTE|IMPORTANT|TODO|DECISION)\b[:\s]", re.I)
_SECTIONS: Final = (
    "Goal",
    "Key Instructions",
    "Discoveries",
    "Accomplished",
    "Relevant Files",
)
_LINE: Final = 240
_MOST: Final = 40
"""Lines kept of one section; the newest win."""
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
            found.add("Goal", body)
            for sentence in _matching(re.split(r"(?<=[.!?])\s+|\n", body), _RULE):
                found.add("Key Instructions", sentence)
        elif label["agent"]:
            for line in _matching(body.splitlines(), _FACT):
                found.add("Discoveries", line)
        elif label["call"]:
            pending.append(_subject(label["call"], body))
            calls += 1
        elif label["result"]:
            call = pending.pop(0) if pending else label["result"]
            found.add("Relevant Files", f"{call}: {label['status']}")
            _discover(found, call, body)
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
        elif section in _SECTIONS and section != "Accomplished":
            found.add(section, line.removeprefix("- "))


def _subject(name: str, body: str) -> str:
    """A call in a few words: its name and its first string argument."""
    argument = re.search(r':\s*"((?:[^"\\]|\\.)*)"', body)
    return f"{name} {argument[1]}" if argument else name


def _discover(found: _Found, call: str, body: str) -> None:
    lines = body.splitlines()
    for line in _matching(lines, _FACT):
        found.add("Discoveries", line)
    for line in list(_matching(lines, _TROUBLE))[:3]:
        found.add("Discoveries", f"{call}: {line.strip()}")


def _matching(lines: Iterable[str], pattern: re.Pattern[str]) -> Iterable[str]:
    bare = (re.sub(r"^\s*\d+\t", "", line) for line in lines)
    return (line for line in bare if pattern.search(line))


def _written(found: _Found) -> str:
    parts: list[str] = []
    for name, lines in found.sections.items():
        most = _MOST_FILES if name == "Relevant Files" else _MOST
        dropped = len(lines) - most
        shown = lines[-most:]
        if dropped > 0:
            shown = [f"({dropped} older lines left out)", *shown]
        parts.append(f"## {name}\n" + "\n".join(f"- {line}" for line in shown or ["nothing"]))
    return "\n\n".join(parts)
