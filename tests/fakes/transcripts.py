"""A recorded request read back into one canonical form, whatever protocol it came in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal
from urllib.parse import unquote

from keen.core.messages import Json, JsonObject
from tests.fakes.script import Recorded
from tests.fakes.shapes import at, fields, objects, words


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call as the history tells it. `signature` is the protocol's own, "" where there is none."""

    id: str
    name: str
    input: JsonObject
    signature: str = ""


@dataclass(frozen=True, slots=True)
class GivenResult:
    """A result as the history tells it. `name` is "" where the protocol does not repeat it."""

    call_id: str
    output: str
    images: int = 0
    is_error: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """Neighbouring messages of one side of the conversation, as one."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[AskedCall, ...] = ()
    results: tuple[GivenResult, ...] = ()
    images: int = 0
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a request says. `output_tokens` is the cap it asks for, None where it asks for none."""

    system: str
    messages: tuple[Entry, ...]
    tools: tuple[str, ...]
    output_tokens: int | None
    model: str

    @property
    def calls(self) -> tuple[AskedCall, ...]:
        """All calls, in order."""
        return tuple(call for entry in self.messages for call in entry.calls)

    @property
    def results(self) -> tuple[GivenResult, ...]:
        """All results, in order."""
        return tuple(result for entry in self.messages for result in entry.results)

    @property
    def texts(self) -> tuple[str, ...]:
        """The visible text of every message that has some."""
        return tuple(entry.text for entry in self.messages if entry.text)


def read(request: Recorded) -> Transcript:
    """The request as a transcript. Raises: ValueError for a path of no protocol."""
    reader = _READERS.get(request.protocol)
    if reader is None:
        raise ValueError(f"no protocol of keen's is spoken at {request.path}")
    return reader(request)


def pairing_faults(transcript: Transcript) -> list[str]:
    """Every call answered once, at once and in order; no result without its call."""
    faults: list[str] = []
    waiting: tuple[str, ...] = ()
    for index, entry in enumerate(transcript.messages):
        if waiting or entry.results:
            given = tuple(result.call_id for result in entry.results)
            if given != waiting:
                faults.append(
                    f"message {index} answers {list(given)}, the calls were {list(waiting)}"
                )
        waiting = tuple(call.id for call in entry.calls)
        if len(set(waiting)) != len(waiting):
            faults.append(f"message {index} has the same call id twice: {list(waiting)}")
    if waiting:
        faults.append(f"calls {list(waiting)} are not answered")
    return faults


def _merged(messages: Iterable[Entry]) -> tuple[Entry, ...]:
    """Neighbours of one role as one entry; a result behind an unanswered call starts a new one."""
    merged: list[Entry] = []
    for entry in messages:
        last = merged[-1] if merged else None
        if last is None or last.role != entry.role:
            merged.append(entry)
            continue
        merged[-1] = replace(
            last,
            text="\n".join(filter(None, (last.text, entry.text))),
            calls=last.calls + entry.calls,
            results=last.results + entry.results,
            images=last.images + entry.images,
            reasoning=last.reasoning + entry.reasoning,
        )
    return tuple(merged)


def _arguments(text: Json) -> JsonObject:
    try:
        value: Json = json.loads(words(text) or "{}")
    except ValueError:
        return {"unreadable": text}
    return fields(value)


def _number(value: Json) -> int | None:
    return value if isinstance(value, int) else None


def _content(content: Json) -> tuple[str, int]:
    """Text and number of images of an OpenAI content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content, 0
    parts = objects(content)
    text = "".join(words(part.get("text")) for part in parts)
    return text, sum("image" in words(part.get("type")) for part in parts)


def _read_chat(request: Recorded) -> Transcript:
    body = request.json
    system: list[str] = []
    messages: list[Entry] = []
    for message in objects(body.get("messages")):
        text, images = _content(message.get("content"))
        match message.get("role"):
            case "system" | "developer":
                system.append(text)
            case "tool":
                call_id = words(message.get("tool_call_id"))
                messages.append(Entry("user", results=(GivenResult(call_id, text, images),)))
            case "assistant":
                messages.append(
                    Entry(
                        "assistant",
                        text,
                        tuple(map(_chat_call, objects(message.get("tool_calls")))),
                        reasoning=words(message.get("reasoning_content")),
                    )
                )
            case _:
                messages.append(Entry("user", text, images=images))
    cap = body.get("max_completion_tokens", body.get("max_tokens"))
    tools = tuple(words(at(tool, "function", "name")) for tool in objects(body.get("tools")))
    return Transcript(
        "\n".join(system), _merged(messages), tools, _number(cap), words(body.get("model"))
    )


def _chat_call(call: JsonObject) -> AskedCall:
    function = fields(call.get("function"))
    return AskedCall(
        words(call.get("id")), words(function.get("name")), _arguments(function.get("arguments"))
    )


def _read_responses(request: Recorded) -> Transcript:
    body = request.json
    system = [words(body.get("instructions"))]
    messages: list[Entry] = []
    given = body.get("input")
    items: list[JsonObject] = (
        [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)
    )
    for item in items:
        match item.get("type", "message"):
            case "function_call":
                call = AskedCall(
                    words(item.get("call_id")),
                    words(item.get("name")),
                    _arguments(item.get("arguments")),
                )
                messages.append(Entry("assistant", calls=(call,)))
            case "function_call_output":
                text, images = _content(item.get("output"))
                result = GivenResult(words(item.get("call_id")), text, images)
                messages.append(Entry("user", results=(result,)))
            case "reasoning":
                thought = "".join(words(p.get("text")) for p in objects(item.get("summary")))
                messages.append(Entry("assistant", reasoning=thought))
            case _:
                text, images = _content(item.get("content"))
                role = item.get("role")
                if role in ("system", "developer"):
                    system.append(text)
                elif role == "assistant":
                    messages.append(Entry("assistant", text))
                else:
                    messages.append(Entry("user", text, images=images))
    return Transcript(
        "\n".join(filter(None, system)),
        _merged(messages),
        tuple(words(tool.get("name")) for tool in objects(body.get("tools"))),
        _number(body.get("max_output_tokens")),
        words(body.get("model")),
    )


def _read_anthropic(request: Recorded) -> Transcript:
    body = request.json
    system = body.get("system")
    return Transcript(
        _content(system)[0],
        _merged(map(_anthropic_message, objects(body.get("messages")))),
        tuple(words(tool.get("name")) for tool in objects(body.get("tools"))),
        _number(body.get("max_tokens")),
        words(body.get("model")),
    )


def _anthropic_message(message: JsonObject) -> Entry:
    entry = Entry("assistant" if message.get("role") == "assistant" else "user")
    content = message.get("content")
    if isinstance(content, str):
        return replace(entry, text=content)
    for block in objects(content):
        match block.get("type"):
            case "text":
                entry = replace(entry, text=entry.text + words(block.get("text")))
            case "image":
                entry = replace(entry, images=entry.images + 1)
            case "thinking":
                entry = replace(entry, reasoning=entry.reasoning + words(block.get("thinking")))
            case "tool_use":
                call = AskedCall(
                    words(block.get("id")), words(block.get("name")), fields(block.get("input"))
                )
                entry = replace(entry, calls=(*entry.calls, call))
            case "tool_result":
                text, images = _content(block.get("content"))
                result = GivenResult(
                    words(block.get("tool_use_id")), text, images, block.get("is_error") is True
                )
                entry = replace(entry, results=(*entry.results, result))
            case _:
                pass
    return entry


def _read_google(request: Recorded) -> Transcript:
    body = request.json
    messages: list[Entry] = []
    asked: list[AskedCall] = []
    for content in objects(body.get("contents")):
        entry = _google_content(content, asked)
        if entry.calls:
            asked = list(entry.calls)
        messages.append(entry)
    tools = [
        words(declaration.get("name"))
        for tool in objects(body.get("tools"))
        for declaration in objects(tool.get("functionDeclarations"))
    ]
    system = "".join(
        words(part.get("text")) for part in objects(at(body, "systemInstruction", "parts"))
    )
    model = request.path.rpartition("/models/")[2].partition(":")[0]
    cap = _number(at(body, "generationConfig", "maxOutputTokens"))
    return Transcript(system, _merged(messages), tuple(tools), cap, unquote(model))


def _google_content(content: JsonObject, asked: list[AskedCall]) -> Entry:
    """One content; a response without an id answers the first open call of its name."""
    entry = Entry("assistant" if content.get("role") == "model" else "user")
    open_calls = list(asked)
    for part in objects(content.get("parts")):
        if part.get("thought") is True:
            entry = replace(entry, reasoning=entry.reasoning + words(part.get("text")))
        elif (text := part.get("text")) is not None:
            entry = replace(entry, text=entry.text + words(text))
        elif "inlineData" in part:
            entry = replace(entry, images=entry.images + 1)
        elif (made := part.get("functionCall")) is not None:
            name = words(at(made, "name"))
            call = AskedCall(
                words(at(made, "id")) or f"{name}#{len(entry.calls)}",
                name,
                fields(at(made, "args")),
                words(part.get("thoughtSignature")),
            )
            entry = replace(entry, calls=(*entry.calls, call))
        elif response := fields(part.get("functionResponse")):
            entry = replace(entry, results=(*entry.results, _google_result(response, open_calls)))
    return entry


def _google_result(response: JsonObject, open_calls: list[AskedCall]) -> GivenResult:
    name = words(response.get("name"))
    call_id = words(response.get("id"))
    for call in open_calls:
        if call_id in ("", call.id) and call.name == name:
            open_calls.remove(call)
            call_id = call.id
            break
    given = fields(response.get("response"))
    output = "".join(words(value) for value in given.values() if isinstance(value, str))
    images = sum("inlineData" in part for part in objects(response.get("parts")))
    return GivenResult(call_id or f"{name}?", output, images, "error" in given, name)


def _read_bedrock(request: Recorded) -> Transcript:
    body = request.json
    tools = objects(at(body, "toolConfig", "tools"))
    model = request.path.rpartition("/model/")[2].partition("/")[0]
    return Transcript(
        "".join(words(block.get("text")) for block in objects(body.get("system"))),
        _merged(map(_bedrock_message, objects(body.get("messages")))),
        tuple(name for tool in tools if (name := words(at(tool, "toolSpec", "name")))),
        _number(at(body, "inferenceConfig", "maxTokens")),
        unquote(model),
    )


def _bedrock_message(message: JsonObject) -> Entry:
    entry = Entry("assistant" if message.get("role") == "assistant" else "user")
    for block in objects(message.get("content")):
        if (text := block.get("text")) is not None:
            entry = replace(entry, text=entry.text + words(text))
        elif "image" in block:
            entry = replace(entry, images=entry.images + 1)
        elif "reasoningContent" in block:
            thought = words(at(block, "reasoningContent", "reasoningText", "text"))
            entry = replace(entry, reasoning=entry.reasoning + thought)
        elif use := fields(block.get("toolUse")):
            call = AskedCall(
                words(use.get("toolUseId")), words(use.get("name")), fields(use.get("input"))
            )
            entry = replace(entry, calls=(*entry.calls, call))
        elif result := fields(block.get("toolResult")):
            entry = replace(entry, results=(*entry.results, _bedrock_result(result)))
    return entry


def _bedrock_result(result: JsonObject) -> GivenResult:
    blocks = objects(result.get("content"))
    return GivenResult(
        words(result.get("toolUseId")),
        "".join(words(block.get("text")) for block in blocks),
        sum("image" in block for block in blocks),
        result.get("status") == "error",
    )


_READERS: Final[Mapping[str, Callable[[Recorded], Transcript]]] = {
    "chat": _read_chat,
    "responses": _read_responses,
    "codex": _read_responses,
    "anthropic": _read_anthropic,
    "google": _read_google,
    "bedrock": _read_bedrock,
}
