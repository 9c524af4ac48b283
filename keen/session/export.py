"""A session for reading elsewhere: as Markdown, as JSON, as one HTML page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from keen import sanitize
from keen.core.messages import Json, JsonObject, Usage
from keen.secrets import masked
from keen.session.projection import total_usage
from keen.session.records import (
    AssistantTurn,
    Compaction,
    CompactionReverted,
    Item,
    ModelChanged,
    Payload,
    ReasoningItem,
    Record,
    Recovered,
    SessionRenamed,
    SessionStarted,
    TextItem,
    ToolItem,
    UserMessage,
)
from keen.session.turns import settled

Form: TypeAlias = Literal["md", "html", "json"]
FORMS: Final[tuple[Form, ...]] = ("md", "html", "json")
_TITLE_LENGTH: Final = 100


def export(records: Sequence[Record], form: Form) -> str:
    """The whole session in one form, known keys masked; ends with a newline."""
    match form:
        case "md":
            return masked(_markdown(records))
        case "json":
            return masked(json.dumps(_as_json(records), ensure_ascii=False, indent=2) + "\n")
        case "html":
            from keen.session.page import page

            return masked(page(records))


@dataclass(frozen=True, slots=True)
class About:
    """What stands above an exported session."""

    title: str
    session_id: str
    cwd: str
    model: str
    started: str
    turns: int
    usage: Usage

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Label and value, for people."""
        facts = (
            ("Model", self.model),
            ("Directory", self.cwd),
            ("Started", self.started.replace("T", " ")[:16]),
            ("Turns", f"{self.turns:,}"),
            ("Tokens", f"{self.usage.total_tokens:,}" if self.usage.total_tokens else ""),
            ("Session", self.session_id),
        )
        return tuple((label, value) for label, value in facts if value)


def about(records: Sequence[Record]) -> About:
    """What is known of the session as a whole."""
    name = title = session_id = cwd = model = ""
    turns = 0
    for record in records:
        match record.payload:
            case SessionStarted() as started:
                session_id, cwd, model = started.session_id, started.cwd, started.model
            case SessionRenamed(name=new):
                name = new
            case ModelChanged(model=new):
                model = new
            case UserMessage(steering=False, content=content):
                turns += 1
                title = title or " ".join(content.split())
            case _:
                pass
    if len(title) > _TITLE_LENGTH:
        title = title[:_TITLE_LENGTH].rstrip() + "…"
    first = records[0].ts if records else ""
    usage = total_usage(records)
    return About(name or title or "keen session", session_id, cwd, model, first, turns, usage)


def compaction_line(compaction: Compaction) -> str:
    """One line that says why a compaction was and what it did."""
    how = "at the user's request" if compaction.trigger == "manual" else "automatically"
    after = "" if compaction.tokens_after is None else f" → {compaction.tokens_after:,}"
    sizes = f": {compaction.tokens_before:,}{after} tokens" if compaction.tokens_before else ""
    return f"Context compacted {how}{sizes}"


def tool_headline(item: ToolItem) -> str:
    """The argument that tells most of a call, in one line."""
    for key in ("command", "path", "file_path", "pattern", "url", "query"):
        if isinstance(value := item.input.get(key), str):
            return sanitize.line(value.strip().split("\n")[0])[:200]
    first = next((value for value in item.input.values() if isinstance(value, str)), "")
    return sanitize.line(first.strip().split("\n")[0])[:200]


def turn_end(turn: AssistantTurn) -> str:
    """How a turn ended that did not end well, "" for the others."""
    if turn.error is not None:
        return f"Failed: {turn.error}"
    return "Interrupted." if turn.interrupted else ""


def note(payload: Payload) -> str:
    """One line about what happened to the session itself, "" for everything else."""
    match payload:
        case CompactionReverted(seq=seq):
            return f"The compaction of record {seq} was taken back"
        case ModelChanged(model=model):
            return f"Model: {model}"
        case Recovered(bytes=count) if count:
            return f"{count:,} bytes of a torn record were put aside"
        case _:
            return ""


def _markdown(records: Sequence[Record]) -> str:
    records = settled(records)
    head = about(records)
    blocks = [f"# {sanitize.line(head.title)}"]
    blocks.append("\n".join(f"- {label}: {sanitize.line(value)}" for label, value in head.facts))
    for record in records:
        blocks.extend(_markdown_blocks(record))
    return "\n\n".join(blocks) + "\n"


def _markdown_blocks(record: Record) -> Iterator[str]:
    match record.payload:
        case UserMessage() as message:
            yield "## You (while keen was working)" if message.steering else "## You"
            yield sanitize.block(message.content)
            if message.attachments:
                yield f"*{len(message.attachments)} attached pictures*"
        case AssistantTurn() as turn:
            yield "## keen"
            for item in turn.transcript:
                yield _markdown_item(item)
            if ending := turn_end(turn):
                yield f"*{sanitize.block(ending)}*"
        case Compaction() as compaction:
            yield f"---\n\n*{compaction_line(compaction)}.*"
            if compaction.summary:
                yield _fenced(sanitize.block(compaction.summary), "markdown")
        case _:
            if text := note(record.payload):
                yield f"*{sanitize.line(text)}.*"


def _markdown_item(item: Item) -> str:
    match item:
        case TextItem(content=content):
            return sanitize.block(content)
        case ReasoningItem(content=content):
            return "\n".join(f"> {line}" for line in sanitize.block(content).split("\n"))
        case ToolItem():
            mark = "✘" if item.is_error else "✔"
            head = f"{mark} **{sanitize.line(item.name)}** ({item.seconds:.1f} s)"
            arguments = json.dumps(item.input, ensure_ascii=False, indent=2)
            parts = [head, _fenced(sanitize.block(arguments), "json")]
            if item.output:
                parts.append(_fenced(sanitize.plain(item.output), "text"))
            return "\n\n".join(parts)


def _fenced(text: str, language: str) -> str:
    """A code block whose fence the text cannot close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _as_json(records: Sequence[Record]) -> JsonObject:
    records = settled(records)
    head = about(records)
    return {
        "session_id": head.session_id,
        "title": head.title,
        "cwd": head.cwd,
        "model": head.model,
        "started": head.started,
        "turns": head.turns,
        "usage": head.usage.as_json(),
        "records": [_json_record(record) for record in records],
    }


def _json_record(record: Record) -> Json:
    payload: JsonObject = record.payload.model_dump(mode="json")
    return {"seq": record.seq, "ts": record.ts, "kind": record.kind, "payload": payload}
