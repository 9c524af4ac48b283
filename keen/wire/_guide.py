"""What the embedded provider says and does next: a program that shows keen over the real directory.

Pure: the conversation in, one step out. It never claims to have understood anything; it lists,
reads, searches and runs what the person named, and reports what the tools said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal, TypeAlias

from keen.core.messages import JsonObject

DEMO_FILE: Final = "keen-demo.md"
INTRODUCTION: Final = "I am keen's built-in guide: a program, not a language model."

_READS_A_ROUND: Final = 3
_READS_IN_ALL: Final = 120
_LISTINGS: Final = ("./*", "**/*")
"""The top by itself, since the listing of a large tree shows only its newest files."""
_HARMLESS: Final = "pwd && ls"
_TELLING: Final = ("readme", "pyproject.toml", "package.json", "cargo.toml", "go.mod")
"""Beginnings of the names of files that say what a project is, the best first."""
_MODEL_HINT: Final = (
    "For real work connect a model: set a key such as ANTHROPIC_API_KEY or OPENAI_API_KEY, "
    "run `keen auth login`, or start a local server; then `keen -m PROVIDER/MODEL`."
)

Intent: TypeAlias = Literal["list", "read", "read_all", "search", "run", "create", "remove", "tour"]

_INTENTS: Final[tuple[tuple[Intent, str], ...]] = (
    ("remove", rf"\b(?:remove|delete|undo|clean)\b.*(?:{re.escape(DEMO_FILE)}|demo|it\b)"),
    ("create", r"\b(?:write|create|edit|make|add)\b"),
    ("search", r"\b(?:search|find|grep|where|look for)\b"),
    (
        "read_all",
        r"\b(?:read|review|study|go through|summari[sz]e)\b.*\b(?:all|every\w*|each|lot)\b",
    ),
    ("read", r"\b(?:read|open|show|explain|review|study)\b"),
    ("run", r"\b(?:run|execute|command|shell)\b"),
    ("list", r"\b(?:what|which|list|files?|director\w+|folder|project|here|repo\w*)\b"),
)


@dataclass(frozen=True, slots=True)
class Done:
    """A call of the running task and what came back."""

    name: str
    subject: str
    output: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Step:
    """What to say, and the calls to make; no calls: the task is done."""

    text: str
    calls: tuple[tuple[str, JsonObject], ...] = ()


def intent(task: str) -> Intent:
    """What the person seems to want, by the words used; unsure means the tour."""
    lowered = " ".join(task.lower().split())
    for name, pattern in _INTENTS:
        if re.search(pattern, lowered):
            return name
    return "tour"


def next_step(task: str, done: Sequence[Done], is_interactive: bool) -> Step:
    """The next step of a task, given what was done for it so far."""
    wanted = intent(task)
    listings = _of(done, "glob")
    if not listings and wanted not in ("search", "run", "create", "remove"):
        calls = tuple(_listing(pattern) for pattern in _LISTINGS)
        if done:
            return Step("Listing the files once more.", calls)
        return _opening("Let me list the files here.", *calls)
    files = list(dict.fromkeys(path for d in listings for path in paths(d.output)))
    match wanted:
        case "list":
            return _list(files, done)
        case "read":
            return _read(task, files, done)
        case "read_all":
            return _read_all(files, done)
        case "search":
            return _search(task, done)
        case "run":
            return _run(done)
        case "create" | "remove":
            return _change(wanted, done, is_interactive)
        case "tour":
            return _tour(files, done)


def paths(output: str) -> list[str]:
    """The file names in a listing, one a line; notes in brackets are no files."""
    lines = (line.strip() for line in output.splitlines())
    return [line for line in lines if line and not line.startswith(("[", "(", "No "))]


def _listing(pattern: str) -> tuple[str, JsonObject]:
    return "glob", {"pattern": pattern}


def unlisted(done: Sequence[Done]) -> int:
    """How many files the listings left out."""
    counts = (re.search(r"^\[([\d,]+) more", d.output, re.MULTILINE) for d in _of(done, "glob"))
    return max((int(count[1].replace(",", "")) for count in counts if count), default=0)


def _opening(text: str, *calls: tuple[str, JsonObject]) -> Step:
    return Step(f"{INTRODUCTION} {text}", calls)


def _of(done: Sequence[Done], name: str) -> list[Done]:
    return [d for d in done if d.name == name]


def _list(files: Sequence[str], done: Sequence[Done]) -> Step:
    reads = _of(done, "read_file")
    readme = _telling(files)
    if readme is not None and not reads:
        return Step(f"{readme} may say what this is.", (("read_file", {"path": readme}),))
    words = [described(files, unlisted(done)), *map(_gist, reads), _MODEL_HINT]
    return Step("\n\n".join(words))


def described(files: Sequence[str], more: int = 0) -> str:
    """Counts and names of what a listing showed; `more` files were not shown."""
    if not files:
        return "This directory holds no files that I can see (ignored ones are left out)."
    folders = Counter(PurePosixPath(f).parts[0] for f in files if "/" in f)
    kinds = Counter(PurePosixPath(f).suffix or "no extension" for f in files)
    top = sorted(f for f in files if "/" not in f)
    newest = f"; the counts below are of the {len(files)} newest" if more else ""
    count = len(files) + more
    lines = [f"This directory holds {count} file{'s' * (count != 1)} that I can see{newest}."]
    if top:
        lines.append("At the top: " + ", ".join(f"`{name}`" for name in top[:20]) + ".")
    if folders:
        shown = (f"`{name}/` ({count})" for name, count in folders.most_common(12))
        lines.append("Folders: " + ", ".join(shown) + ".")
    shown = (f"{kind} ({count})" for kind, count in kinds.most_common(6))
    lines.append("Kinds: " + ", ".join(shown) + ".")
    return "\n".join(lines)


def _telling(files: Sequence[str]) -> str | None:
    """The file that may say what the project is."""
    for beginning in _TELLING:
        for path in files:
            if path.lower().startswith(beginning):
                return path
    return None


def _gist(read: Done) -> str:
    """The first lines with words of a file that was read."""
    if read.is_error:
        return f"`{read.subject}` could not be read: {read.output.splitlines()[0]}"
    lines = (re.sub(r"^\s*\d+\t", "", line).strip() for line in read.output.splitlines())
    words = [line for line in lines if re.search(r"\w{3}", line) and not line.startswith("[")]
    quoted = "\n".join(f"> {line[:160]}" for line in words[:3])
    return f"`{read.subject}` begins:\n{quoted}"


def _named(task: str, files: Sequence[str]) -> list[str]:
    """Files that the task names, by path or by file name."""
    words = {word.strip("`'\".,:;?!()") for word in task.split()}
    return [f for f in files if f in words or PurePosixPath(f).name in words]


def _read(task: str, files: Sequence[str], done: Sequence[Done]) -> Step:
    reads = _of(done, "read_file")
    if not reads:
        told = _telling(files) or (files[0] if files else None)
        named = _named(task, files) or ([told] if told else [])
        if not named:
            return Step("There is nothing to read here.")
        return Step("Reading.", tuple(_reading(path) for path in named[:_READS_A_ROUND]))
    return Step("\n\n".join([*map(_gist, reads), _MODEL_HINT]))


def _read_all(files: Sequence[str], done: Sequence[Done]) -> Step:
    read = {d.subject for d in _of(done, "read_file")}
    left = [f for f in files if f not in read][: max(0, _READS_IN_ALL - len(read))]
    if left:
        batch = left[:_READS_A_ROUND]
        text = f"{len(read)} files read, {len(left)} to go."
        return Step(text, tuple(_reading(path) for path in batch))
    known = [d for d in _of(done, "read_file") if d.output]
    what = described(files, unlisted(done))
    lines = [f"I read {len(read)} files.", what, *map(_gist, known[-5:]), _MODEL_HINT]
    return Step("\n\n".join(lines))


def _reading(path: str) -> tuple[str, JsonObject]:
    return "read_file", {"path": path}


def _search(task: str, done: Sequence[Done]) -> Step:
    found = _of(done, "grep")
    if not found:
        word = search_word(task)
        call: JsonObject = {"pattern": re.escape(word)}
        return _opening(f"Searching for `{word}`.", ("grep", call))
    lines = found[-1].output.strip().splitlines()
    shown = "\n".join(lines[:20])
    more = f"\n({len(lines) - 20} more lines)" if len(lines) > 20 else ""
    return Step(f"The search gave:\n\n```\n{shown}\n```{more}\n\n{_MODEL_HINT}")


def search_word(task: str) -> str:
    """What to search for: the quoted part, else the longest word behind the verb."""
    quoted = re.search(r"[`'\"]([^`'\"]+)[`'\"]", task)
    if quoted:
        return quoted[1]
    behind = re.split(r"\b(?:search|find|grep|where|look)\b", task, maxsplit=1, flags=re.I)[-1]
    words = re.findall(r"[\w.]{2,}", behind)
    plain = {"for", "the", "is", "are", "all", "in", "me", "every", "of", "here", "please"}
    return max((w for w in words if w.lower() not in plain), key=len, default="TODO")


def _run(done: Sequence[Done]) -> Step:
    ran = _of(done, "bash")
    if not ran:
        call: JsonObject = {"command": _HARMLESS}
        return _opening("I only run one harmless command.", ("bash", call))
    outcome = "was refused or failed" if ran[-1].is_error else "printed"
    return Step(f"`{_HARMLESS}` {outcome}:\n\n```\n{ran[-1].output.strip()[:2000]}\n```")


def _change(wanted: Intent, done: Sequence[Done], is_interactive: bool) -> Step:
    if not is_interactive:
        text = "Without a screen I only read; in `keen demo` I propose one small file."
        return _opening(text)
    tried = [d for d in done if d.name in ("write_file", "bash")]
    if tried:
        what = "created" if wanted == "create" else "removed"
        said = f"was not {what}: {tried[-1].output}" if tried[-1].is_error else f"was {what}."
        return Step(f"`{DEMO_FILE}` {said}")
    if wanted == "remove":
        command: JsonObject = {"command": f"rm {DEMO_FILE}"}
        return _opening(f"Removing {DEMO_FILE}; you will be asked.", ("bash", command))
    content = (
        "# A file from keen\n\nThe built-in guide proposed this file and you said yes.\n"
        "Say `remove it` and the guide deletes it again.\n"
    )
    call: JsonObject = {"path": DEMO_FILE, "content": content}
    return _opening(f"I propose one new file, {DEMO_FILE}.", ("write_file", call))


def _tour(files: Sequence[str], done: Sequence[Done]) -> Step:
    if not _of(done, "read_file") and files:
        path = _telling(files) or files[0]
        return Step("Now a file.", (_reading(path),))
    if not _of(done, "grep"):
        return Step("Now a search.", (("grep", {"pattern": "TODO|FIXME"}),))
    if not _of(done, "bash"):
        return Step("And one harmless command.", (("bash", {"command": _HARMLESS}),))
    parts = [
        described(files, unlisted(done)),
        *map(_gist, _of(done, "read_file")[:1]),
        f"The search for TODO and FIXME gave {len(paths(_of(done, 'grep')[0].output))} lines.",
        "Ask me to list, read, search, run a command, or to create a demo file. " + _MODEL_HINT,
    ]
    return Step("\n\n".join(parts))
