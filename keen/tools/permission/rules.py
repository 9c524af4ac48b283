"""Permission rules: how `tool(pattern)` is read, what it matches, and where saved ones are kept."""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, cast

from keen._files import locked, write_private
from keen.core.errors import ConfigError

Kind: TypeAlias = Literal["allow", "ask", "deny"]
Source: TypeAlias = Literal["built-in", "user", "project", "flag", "session", "saved"]
Subject: TypeAlias = Literal["bash", "read", "edit", "web_fetch", "mcp", "sandbox"]

_SHAPE: Final = re.compile(r"\s*([A-Za-z_][\w.-]*\*?)\s*(?:\((.*)\))?\s*", re.DOTALL)
_SUBJECTS: Final[dict[str, Subject]] = {
    "bash": "bash",
    "read": "read",
    "read_file": "read",
    "glob": "read",
    "grep": "read",
    "edit": "edit",
    "write": "edit",
    "edit_file": "edit",
    "write_file": "edit",
    "web_fetch": "web_fetch",
    "webfetch": "web_fetch",
    "sandbox": "sandbox",
}
_KNOWN: Final = (
    "bash(…), read(…), edit(…), web_fetch(domain:…), mcp__server__tool, sandbox(network), "
    "sandbox(write:/folder)"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule as it is applied; `text` as somebody wrote it."""

    kind: Kind
    text: str
    source: Source
    origin: str = ""
    """The file and line, or the flag, it comes from."""
    subject: Subject = "bash"
    pattern: str | None = None
    """What stands in parentheses; None without them: everything of the subject."""
    words: tuple[str, ...] = ()
    """bash: the words it begins with, or all of them."""
    is_prefix: bool = False

    @property
    def place(self) -> str:
        """Where it comes from, for a person."""
        return f"{self.source} {self.origin}".strip()


def parse_rule(text: str, kind: Kind, source: Source, origin: str = "") -> Rule:
    """Read one rule. Raises: ConfigError when it is none; the message shows how rules look."""
    match = _SHAPE.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is no permission rule. Rules read: {_KNOWN}.")
    name, pattern = match[1], match[2]
    if name.startswith("mcp__"):
        if pattern is not None:
            raise ConfigError(f"{text!r}: a rule for an MCP tool has no parentheses.")
        return Rule(kind, text, source, origin, "mcp", name)
    subject = _SUBJECTS.get(name.lower())
    if subject is None:
        raise ConfigError(f"{text!r}: there are no rules for {name!r}. Rules read: {_KNOWN}.")
    if subject == "sandbox":
        return Rule(kind, text, source, origin, subject, _opening(text, kind, pattern or ""))
    if pattern is None or pattern.strip() in ("", "*", "**"):
        return Rule(kind, text, source, origin, subject)
    if subject == "bash":
        words, is_prefix = _command_words(text, pattern)
        return Rule(kind, text, source, origin, subject, pattern, words, is_prefix)
    if subject == "web_fetch":
        if not re.fullmatch(r"domain:(?:\*\.)?[a-z0-9.-]+", pattern.lower()):
            raise ConfigError(f"{text!r}: write web_fetch(domain:example.org).")
        return Rule(kind, text, source, origin, subject, pattern[7:].lower().rstrip("."))
    try:
        re.compile(_glob(pattern))
    except re.error as error:
        raise ConfigError(f"{text!r}: {error} in the pattern.") from error
    return Rule(kind, text, source, origin, subject, pattern)


def _opening(text: str, kind: Kind, pattern: str) -> str:
    """The pattern of a rule that opens the sandbox: `network`, or `write:` and a path."""
    place = os.path.normpath(os.path.expanduser(pattern.removeprefix("write:")))
    is_place = pattern.startswith("write:/") or pattern.startswith("write:~/")
    if kind == "ask" or "\0" in pattern or (pattern != "network" and not is_place):
        raise ConfigError(
            f"{text!r}: write sandbox(network) or sandbox(write:/folder), to allow or to deny."
        )
    if pattern != "network" and place in ("/", "//", os.path.expanduser("~")):
        raise ConfigError(f"{text!r}: name a folder inside; {place} holds everything.")
    return pattern if pattern == "network" else f"write:{place}"


def parse_rules(
    texts: Iterable[str], kind: Kind, source: Source, origin: str = ""
) -> tuple[Rule, ...]:
    """Several rules of one place. Raises: ConfigError."""
    return tuple(parse_rule(text, kind, source, origin) for text in texts)


def _command_words(text: str, pattern: str) -> tuple[tuple[str, ...], bool]:
    bare, is_prefix = pattern, False
    for end in (":*", " *", " ..."):
        if pattern.endswith(end):
            bare, is_prefix = pattern.removesuffix(end), True
            break
    try:
        words = tuple(shlex.split(bare))
    except ValueError as error:
        raise ConfigError(f"{text!r}: {error}. Close the quotes in the rule.") from error
    if not words:
        raise ConfigError(f"{text!r} names no command. Write bash(npm run test:*).")
    if any("*" in word for word in words) and not is_prefix:
        raise ConfigError(
            f"{text!r}: a * stands for more words only at the end, as in bash(npm run test:*)."
        )
    return words, is_prefix


def denial(rule: Rule) -> str:
    """What the model is told where a rule denies."""
    return (
        f"The rule {rule.text} ({rule.place}) denies this. Do not try to get around it; go on "
        "without it or say what you need."
    )


def covers_words(rule: Rule, words: Sequence[str]) -> bool:
    """True when a bash rule speaks of a simple command with these words."""
    if rule.pattern is None:
        return True
    head = tuple(words[: len(rule.words)])
    return head == rule.words and (rule.is_prefix or len(words) == len(rule.words))


def covers_text(rule: Rule, command: str) -> bool:
    """True when a whole command text begins as a bash rule does: a net below the parser."""
    if rule.pattern is None:
        return True
    start = " ".join(rule.words)
    squeezed = " ".join(command.split())
    if not rule.is_prefix:
        return squeezed == start
    return squeezed == start or squeezed.startswith(start + " ")


def covers_path(rule: Rule, path: Path, roots: Sequence[Path]) -> bool:
    """True when a read or edit rule speaks of an absolute path.

    A pattern with a slash is anchored at a root (or at `/`, or `~`); one without is a name at any
    depth. `**` crosses directories, `*` and `?` do not. A directory covers what lies in it. Deny
    and ask rules do not mind upper and lower case.
    """
    if rule.pattern is None:
        return True
    flags = 0 if rule.kind == "allow" else re.IGNORECASE
    pattern = os.path.expanduser(rule.pattern)
    if pattern.startswith("./"):
        pattern = pattern[2:]
    elif "/" not in pattern:
        pattern = f"**/{pattern}"
    shape = re.compile(_glob(pattern), flags)
    if pattern.startswith("/"):
        return shape.fullmatch(str(path)) is not None
    inside = (path.relative_to(root) for root in roots if path.is_relative_to(root))
    candidates = [str(name) for name in inside]
    if not candidates and "/" not in rule.pattern and rule.kind != "allow":
        candidates = [str(path).lstrip("/")]
    return any(shape.fullmatch(name) for name in candidates)


def names_path(rule: Rule, path: Path, roots: Sequence[Path]) -> bool:
    """True when a rule names exactly this file, without wildcards."""
    pattern = rule.pattern
    if pattern is None or any(character in pattern for character in "*?["):
        return False
    spelled = os.path.expanduser(pattern)
    return any(Path(os.path.normpath(root / spelled)) == path for root in roots)


def names_secret(rule: Rule, path: Path, roots: Sequence[Path]) -> bool:
    """True when a rule speaks of secret files by name: `.env` or `.env*`, not `**`."""
    last = (rule.pattern or "").rpartition("/")[2]
    literal = re.split(r"[*?\[]", last)[0]
    return literal.startswith(".env") and covers_path(rule, path, roots)


def covers_host(rule: Rule, host: str) -> bool:
    """True when a web_fetch rule speaks of a host; deny and ask include its subdomains."""
    if rule.pattern is None:
        return True
    host = host.lower().rstrip(".")
    if rule.pattern.startswith("*."):
        return host.endswith(rule.pattern[1:])
    return host == rule.pattern or (rule.kind != "allow" and host.endswith("." + rule.pattern))


def covers_tool(rule: Rule, tool: str) -> bool:
    """True when an mcp rule speaks of a tool: its name, its server's name, or a `*` at the end."""
    pattern = rule.pattern or ""
    if pattern.endswith("*"):
        return tool.startswith(pattern[:-1])
    return tool == pattern or tool.startswith(pattern + "__")


def _glob(pattern: str) -> str:
    """A regular expression for a glob; what lies in a matched directory matches too."""
    pieces: list[str] = []
    for token in re.findall(r"\*\*/|/\*\*|\*\*|\*|\?|\[!?[^\]/]+\]|.", pattern, re.DOTALL):
        match token:
            case "**/":
                pieces.append("(?:.*/)?")
            case "/**":
                pieces.append("(?:/.*)?")
            case "**":
                pieces.append(".*")
            case "*":
                pieces.append("[^/]*")
            case "?":
                pieces.append("[^/]")
            case _ if token.startswith("[") and len(token) > 2:
                inner = token[1:-1].replace("\\", "\\\\")
                pieces.append(f"[{'^' + inner[1:] if inner.startswith('!') else inner}]")
            case _:
                pieces.append(re.escape(token))
    return "(?s:" + "".join(pieces).removesuffix("/") + "(?:/.*)?)"


@dataclass(frozen=True, slots=True)
class SavedRules:
    """The rules of permissions.toml that belong to one project; keen writes that file."""

    file: Path
    project: Path
    faults: list[str] = field(default_factory=list[str])

    def load(self) -> tuple[Rule, ...]:
        """The project's rules; entries that are none are left out and named in `faults`.

        Raises:
            ConfigError: the file is there and cannot be read.
        """
        rules: list[Rule] = []
        for entry in self._entries():
            if entry.get("project") != str(self.project):
                continue
            try:
                text = str(entry.get("allow", ""))
                rules.append(parse_rule(text, "allow", "saved", str(self.file)))
            except ConfigError as error:
                self.faults.append(f"{self.file}: {error}")
        return tuple(rules)

    def append(self, text: str) -> Rule:
        """Keep one more allow rule for the project. Raises: ConfigError."""
        rule = parse_rule(text, "allow", "saved", str(self.file))
        with locked(self.file):
            known = [(e.get("project"), e.get("allow")) for e in self._entries()]
            if (str(self.project), text) not in known:
                write_private(self.file, self._text() + self._entry(text))
        return rule

    def _text(self) -> str:
        try:
            text = self.file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return "# Written by keen when you allow something always in a project.\n"
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"Cannot read {self.file}: {error}") from error
        return text if text.endswith("\n") or not text else text + "\n"

    def _entry(self, text: str) -> str:
        # A JSON string without surrogates is a TOML basic string, but for DEL.
        project, rule = (
            json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
            for value in (str(self.project), text)
        )
        return f"\n[[rule]]\nproject = {project}\nallow = {rule}\n"

    def _entries(self) -> list[dict[str, object]]:
        if not self.file.exists():
            return []
        try:
            table = tomllib.loads(self._text())
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{self.file}: {error}. Mend or delete it.") from error
        found: object = table.get("rule", [])
        if not isinstance(found, list):
            raise ConfigError(f"{self.file}: rule is no list of tables. Mend or delete it.")
        entries = cast("list[object]", found)
        return [cast("dict[str, object]", entry) for entry in entries if isinstance(entry, dict)]
