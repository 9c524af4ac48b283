"""A saved session as updates: what was said and done, in order, as if it happened now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acp.schema import AgentPlanUpdate, ToolCallStart

from keen import sanitize
from keen.acp.calls import TODO, changes_of, kind_of, locations_of, plan_of, title_of
from keen.acp.updates import CallIds, Update
from keen.acp.words import asked, content, fenced, said, thought
from keen.session.projection import Compacted, Ended, Reverted, Said, Shown, transcript
from keen.session.records import ReasoningItem, Record, TextItem, ToolItem


def replayed(records: Sequence[Record], cwd: str, ids: CallIds) -> Iterator[Update]:
    """All of a session, oldest first; an automatic compaction is not told."""
    is_apart = False
    for shown in transcript(records):
        is_text = isinstance(shown, TextItem)
        yield from _updates(shown, cwd, ids, gap="\n\n" if is_text and is_apart else "")
        is_apart = not isinstance(shown, Said) and (is_apart or is_text)


def _updates(shown: Shown, cwd: str, ids: CallIds, *, gap: str) -> Iterator[Update]:
    match shown:
        case Said(text=text, images=images):
            yield asked(text + (f" [{images} pictures]" if images else ""))
        case TextItem(content=text):
            yield said(gap + text)
        case ReasoningItem(content=text):
            yield thought(text)
        case ToolItem():
            yield _call(shown, cwd, ids)
        case Ended(interrupted=is_interrupted, error=error):
            words = "Interrupted." if is_interrupted else sanitize.block(error or "")
            yield said(f"\n\n[{words}]")
        case Compacted(summary=summary, status=status):
            yield said(f"{summary}\n\n{status}")
        case Reverted():
            yield said("\n\nThe last compaction was taken back.")


def _call(item: ToolItem, cwd: str, ids: CallIds) -> Update:
    arguments = dict(item.input)
    if item.name == TODO and (entries := plan_of(arguments)) is not None:
        return AgentPlanUpdate(session_update="plan", entries=entries)
    output = fenced(item.output)
    changes = [] if item.is_error else changes_of(item.name, arguments, cwd)
    return ToolCallStart(
        session_update="tool_call",
        tool_call_id=ids.fresh(item.id),
        title=title_of(item.name, arguments),
        kind=kind_of(item.name),
        status="failed" if item.is_error else "completed",
        content=changes or ([content(output)] if output else None),
        locations=locations_of(item.name, arguments, cwd) or None,
        raw_input=arguments,
    )
