"""What a command's end says of its sandbox: one line of what was denied, one of what was hidden."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.tools.guard import real_path
from keen.tools.sandbox.confines import Confines

Kind: TypeAlias = Literal["outside", "network", "git", "protected", "hidden"]

_READ_BYTES: Final = 65_536
_MOST_NAMED: Final = 3
_MOST_PATH: Final = 4_096

_SURE: Final = re.compile(
    r"read-only file system|permission denied|operation not permitted"
    r"|\b(?:EROFS|EACCES|EPERM)\b",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    _SURE.pattern + r"|is a directory|file exists|resource busy|\b(?:EISDIR|EEXIST|EBUSY)\b",
    re.IGNORECASE,
)
"""What a refusal looks like; the latter kinds only where a protected name is spoken of."""
_READ_ONLY: Final = re.compile(r"read-only file system|\bEROFS\b", re.IGNORECASE)
_NETWORK: Final = re.compile(
    r"network is (?:unreachable|down)|temporary failure in name resolution|no route to host"
    r"|could ?n[o']t resolve|name or service not known|failed to establish a new connection"
    r"|nodename nor servname|unable to resolve|failed to lookup address|no such host"
    r"|\b(?:ENETUNREACH|EAI_AGAIN|ENOTFOUND|EHOSTUNREACH|ECONNREFUSED)\b|connection refused"
    r"|failed to connect to|cannot assign requested address",
    re.IGNORECASE,
)
_PATH: Final = re.compile(
    r"'([^'\n]{1,4096})'|\"([^\"\n]{1,4096})\"|‘([^’\n]{1,4096})’|`([^'`\n]{1,4096})['`]"
    r"|((?:~|[\w.@+-]*)/[^\s:;,'\"()]+)|(\.[A-Za-z][\w./-]*)"
)
_PROGRAM: Final = re.compile(r"[\w./+-]+: (?:line \d+: )?(?=\S)")
"""Who complains, where more than that stands before the complaint."""
_NOT_STARTED: Final = re.compile(r"(?:bwrap|keen|sandbox-exec): [^\n]+")
_SIGNING: Final = re.compile(r"gpg failed to sign|failed to sign the data|error: Load key", re.I)


@dataclass(frozen=True, slots=True)
class Denied:
    """One thing the sandbox stopped. `words` say it; `path` is where a write was tried."""

    words: str
    kind: Kind
    path: Path | None = None


def note(
    text: str, code: int, confines: Confines, *, is_reading: bool = False, hooks: bool = False
) -> str:
    """The lines for the model, from the output of a command and its exit code; "" for none.

    `is_reading`: the workspace was read-only on purpose. `hooks`: git hooks did not run.
    """
    if code and _NOT_STARTED.fullmatch(text.strip()):
        return (
            "[sandbox] it could not be set up for this command, which did not run. Ask for "
            'permission with needs: "outside" and a reason.'
        )
    lines: list[str] = []
    if found := denied(text, code, confines):
        advice = _advice({each.kind for each in found}, is_reading=is_reading)
        lines.append(f"[sandbox] {'; '.join(each.words for each in found)}. {advice}")
    if confines.covered:
        names = [_short(path, confines) for path in confines.covered]
        verb = "is" if len(names) == 1 else "are"
        lines.append(f"[sandbox] {_listed(names)} {verb} hidden")
    if hooks:
        lines.append("[sandbox] git hooks did not run")
    if code and _SIGNING.search(text):
        lines.append("[sandbox] signing was blocked: the keys are hidden")
    return "\n".join(lines)


def denied(text: str, code: int, confines: Confines) -> tuple[Denied, ...]:
    """What the sandbox stopped, as far as the output of a command and its exit code tell."""
    end = text[-_READ_BYTES:]
    found = _denied(end, code, confines)
    if code and not confines.has_network and _NETWORK.search(end):
        found.append(Denied("network is off", "network"))
    return tuple(found)


def _advice(kinds: set[Kind], *, is_reading: bool) -> str:
    """What the model may do about it; never a way around what is protected."""
    if is_reading and "network" not in kinds:
        return "Plan mode changes nothing; describe the change instead."
    words: list[str] = []
    if ways := [way for way in ("network", "outside") if way in kinds]:
        asking = " or ".join(f'needs: "{way}"' for way in ways)
        words.append(f"Ask for permission with {asking} and a reason; do not change the code to ")
        words.append("avoid it.")
    if "git" in kinds:
        words.append(" git works in a call of its own, without other programs beside it.")
    if kinds & {"protected", "hidden"}:
        words.append(" This is not to be got around; say what you need it for.")
    return "".join(words).strip()


def _denied(text: str, code: int, confines: Confines) -> list[Denied]:
    """The first few things that were refused, each once."""
    found: dict[str, Denied] = {}
    is_read_only = False
    for line in text.splitlines():
        if not (match := _REFUSED.search(line)):
            continue
        is_read_only = is_read_only or _READ_ONLY.search(line) is not None
        is_certain = _SURE.search(line) is not None
        for path in _paths(line, match, confines.cwd):
            if (reason := _reason(path, confines, is_certain=is_certain)) is not None:
                found.setdefault(reason.words, reason)
                break
    if not found and is_read_only and code:
        return [Denied("a write outside the workspace was denied", "outside")]
    return list(found.values())[:_MOST_NAMED]


def _paths(line: str, match: re.Match[str], cwd: Path) -> list[Path]:
    """Words of a line that may be the path it speaks of, the likeliest first."""
    program = _PROGRAM.match(line, 0, match.start())
    start = program.end() if program is not None else 0
    before = line[start : match.start()].rstrip().removesuffix(":").rpartition(": ")[2]
    spelled = [one.group(one.lastindex or 0) for one in _PATH.finditer(line, start)]
    bare = [before] if before and not _PATH.search(before) else []
    return [
        Path(real_path(cwd / os.path.expanduser(one)))
        for one in (*bare, *reversed(spelled))
        if "\0" not in one and len(one) < _MOST_PATH
    ]


def _reason(path: Path, confines: Confines, *, is_certain: bool) -> Denied | None:
    """Why a path was refused, when it was the sandbox; else None."""
    name = _short(path, confines)
    if any(path.is_relative_to(place) for place in (*confines.hidden, *confines.covered)):
        return Denied(f"{name} is hidden", "hidden", path)
    barred = (*confines.protected, *confines.missing, *confines.pinned)
    if any(path.is_relative_to(place) for place in barred):
        kind: Kind = "git" if ".git" in path.parts else "protected"
        return Denied(f"write to {name} denied", kind, path)
    free = (*confines.writable, confines.temporary, Path("/tmp"), Path("/dev"))
    is_free = confines.is_wide or any(path.is_relative_to(place) for place in free)
    if is_free or not is_certain:
        return None
    # What this user could not have written anyway was not the sandbox's doing.
    is_ours = os.access(path if os.path.exists(path) else path.parent, os.W_OK)
    return Denied(f"write to {name} denied", "outside", path) if is_ours else None


def _short(path: Path, confines: Confines) -> str:
    root = next((root for root in confines.roots if path.is_relative_to(root)), None)
    name = str(path.relative_to(root)) if root is not None else str(path)
    return name if name.isprintable() else ascii(name)


def _listed(names: list[str]) -> str:
    if len(names) <= _MOST_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED} more"
