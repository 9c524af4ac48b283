"""A command line as bash reads it: its simple commands, and what about its syntax is not plain.

Node kinds are an allow list: a construct this file does not name is never taken for plain.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:  # the grammar is loaded with the first command, not with this module
    from tree_sitter import Node, Parser

Level: TypeAlias = Literal["auto", "ask", "never"]

Hold: TypeAlias = Literal["free", "ask", "refuse"]
"""What stays of a finding in yolo: protected places ask, hidden ones are refused."""

_DEEPEST: Final = 80
"""Nesting beyond this is not followed but never trusted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that keeps a command from being plain. `is_syntax`: nothing but its form does."""

    level: Level
    reason: str
    is_syntax: bool = False
    holds: Hold = "free"


def highest(findings: Iterable[Finding]) -> Level:
    """The strictest level of all; `auto` without findings."""
    levels = {finding.level for finding in findings}
    return "never" if "never" in levels else "ask" if "ask" in levels else "auto"


@dataclass(frozen=True, slots=True)
class Word:
    """One word after quote removal. Where `is_dynamic`, parts of `text` are only a guess."""

    text: str
    is_dynamic: bool = False
    has_glob: bool = False
    has_brace: bool = False
    has_tilde: bool = False
    """Has an unquoted `~` that expands, at the start or as in `a=~/x`; a plain `~` or `~/` at the
    start is already replaced in `text`."""

    @property
    def is_literal(self) -> bool:
        """True when bash hands exactly `text` to the program."""
        return not (self.is_dynamic or self.has_glob or self.has_brace or self.has_tilde)


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection to or from a file."""

    operator: str
    descriptor: str
    target: Word

    @property
    def is_harmless(self) -> bool:
        """`2>/dev/null`, `>/dev/null` and `2>&1`."""
        shape = (self.descriptor, self.operator, self.target.text)
        return self.target.is_literal and shape in (
            ("2", ">", "/dev/null"),
            ("", ">", "/dev/null"),
            ("1", ">", "/dev/null"),
            ("2", ">&", "1"),
        )

    @property
    def writes(self) -> bool:
        return ">" in self.operator


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One simple command, in the order of the text, at whatever depth it stands."""

    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...] = ()
    has_input: bool = False
    """Something is fed to it: a pipe, a here-document, a here-string, a file."""
    is_nested: bool = False
    """Not a part of the plain list: inside a loop, a substitution, a subshell."""


@dataclass
class Script:
    """What a command line holds."""

    commands: list[SimpleCommand] = field(default_factory=list[SimpleCommand])
    findings: list[Finding] = field(default_factory=list[Finding])


_CONSTRUCTS: Final[dict[str, Finding]] = {
    "for_statement": Finding("never", "it is a loop", True),
    "c_style_for_statement": Finding("never", "it is a loop", True),
    "while_statement": Finding("never", "it is a loop", True),
    "command_substitution": Finding("never", "$(…) runs another command inside", True),
    "process_substitution": Finding("never", "<(…) runs another command inside", True),
    "arithmetic_expansion": Finding("never", "arithmetic can run commands", True),
    "declaration_command": Finding("never", "it changes the variables of later commands", True),
    "unset_command": Finding("never", "it changes the variables of later commands", True),
    "variable_assignment": Finding("never", "it sets a variable", True),
    "variable_assignments": Finding("never", "it sets variables", True),
    "function_definition": Finding("never", "it defines a function, so names lose their meaning"),
    "simple_expansion": Finding("ask", "the value of a variable is not known beforehand", True),
    "if_statement": Finding("ask", "it has a condition", True),
    "case_statement": Finding("ask", "it has a condition", True),
    "test_command": Finding("ask", "it has a test expression", True),
    "negated_command": Finding("ask", "it is negated with !", True),
    "subshell": Finding("ask", "it runs in a subshell", True),
    "compound_statement": Finding("ask", "it is a group", True),
    "ansi_c_string": Finding("ask", "$'…' hides characters", True),
    "translated_string": Finding("ask", 'of $"…"', True),
    "brace_expression": Finding("ask", "braces expand to several words", True),
    "heredoc_redirect": Finding("ask", "it has a here-document", True),
    "herestring_redirect": Finding("ask", "it has a here-string", True),
    "ERROR": Finding("never", "it cannot be read as a bash command"),
}

_TRANSPARENT: Final = frozenset({
    "program", "list", "pipeline", "redirected_statement", "command", "command_name", "word",
    "string", "string_content", "raw_string", "concatenation", "number", "comment",
    "variable_name", "special_variable_name", "do_group", "elif_clause", "else_clause",
    "case_item", "heredoc_start", "heredoc_body", "heredoc_content", "heredoc_end",
    "file_redirect", "file_descriptor",
})  # fmt: skip
"""Kinds that say nothing by themselves: commands and redirections are judged apart."""

_ENDS: Final = frozenset({"&&", "||", ";", "|", "\n", '"'})
_WORDS: Final = frozenset({
    "word", "string", "raw_string", "concatenation", "number", "simple_expansion", "expansion",
    "command_substitution", "process_substitution", "arithmetic_expansion", "ansi_c_string",
    "translated_string", "brace_expression", "extglob_pattern", "regex", "test_operator",
})  # fmt: skip
_INNER_TILDE: Final = re.compile(r"[=:]~")
_SETTING: Final = re.compile(r"[A-Za-z_]\w*=")
_PLAIN_NAME: Final = re.compile(r"\$\{[A-Za-z_]\w*\}|\$\{[0-9?#@*$!-]\}")


@functools.cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def read(command: str) -> Script:
    """Parse `command`; never raises for text that UTF-8 can hold."""
    script = Script()
    tree = _parser().parse(command.encode())
    _Reader(script).visit(tree.root_node, depth=0, nested=False)
    if tree.root_node.has_error and not any(f.level == "never" for f in script.findings):
        script.findings.append(_CONSTRUCTS["ERROR"])
    return script


@dataclass
class _Reader:
    script: Script

    def visit(self, node: Node, *, depth: int, nested: bool, fed: bool = False) -> None:
        if depth > _DEEPEST:
            self.script.findings.append(Finding("never", "it is nested too deeply to be read"))
            return
        finding = self._finding(node)
        if finding is not None:
            self.script.findings.append(finding)
        inner = nested or (finding is not None and node.type != "heredoc_redirect")
        fed = fed or _is_fed(node)
        if node.type in ("command", "declaration_command", "unset_command"):
            self._command(node, nested=inner, fed=fed)
        for position, child in enumerate(node.children):
            piped = fed or (node.type == "pipeline" and position > 0)
            self.visit(child, depth=depth + 1, nested=inner, fed=piped)
        if node.type == "redirected_statement":
            self._loose_redirects(node, nested=inner)

    def _finding(self, node: Node) -> Finding | None:
        kind = node.type
        if node.is_missing:
            return _CONSTRUCTS["ERROR"]
        if not node.is_named:
            return _separator(node)
        if kind == "expansion":
            if _PLAIN_NAME.fullmatch(_source(node)):
                return _CONSTRUCTS["simple_expansion"]
            return Finding("never", "${…} with an operator can run commands", True)
        if kind == "compound_statement" and _source(node).startswith("(("):
            return Finding("never", "arithmetic can run commands", True)
        if kind in _CONSTRUCTS:
            return _CONSTRUCTS[kind]
        if kind in _TRANSPARENT:
            return None
        return Finding("ask", f"its syntax is not plain ({kind.replace('_', ' ')})", True)

    def _command(self, node: Node, *, nested: bool, fed: bool) -> None:
        words: list[Word] = []
        if node.type != "command":
            words = [Word(t, is_dynamic=i > 0) for i, t in enumerate(_source(node).split())]
        for child in node.children:
            if child.type == "command_name":
                words.extend(_word(part) for part in child.children)
            elif child.type in _WORDS and node.type == "command":
                words.append(_word(child))
        redirects = tuple(_redirects(node))
        parent = node.parent
        if parent is not None and parent.type == "redirected_statement":
            redirects += tuple(_redirects(parent))
        fed = fed or any(redirect.operator.startswith("<") for redirect in redirects)
        if words or redirects:
            command = SimpleCommand(tuple(words), redirects, fed, nested)
            self.script.commands.append(command)

    def _loose_redirects(self, node: Node, *, nested: bool) -> None:
        """Redirections behind a list or a group: the grammar ties them to all of it."""
        body = node.child_by_field_name("body")
        if body is not None and body.type == "command":
            return
        redirects = tuple(r for r in _redirects(node) if body is None or not r.is_harmless)
        if body is None:
            self.script.findings.append(Finding("ask", "it redirects without a command", True))
        if redirects:
            self.script.commands.append(SimpleCommand((), redirects, is_nested=nested))


def _separator(node: Node) -> Finding | None:
    """What a token between commands means; tokens inside other constructs are theirs."""
    if node.parent is None or node.parent.type not in ("program", "list", "pipeline"):
        return None
    if node.type == "&":
        return Finding("never", "it leaves a process in the background")
    if node.type in _ENDS:
        return None
    return Finding("ask", f"its syntax is not plain ({node.type})", True)


def _is_fed(node: Node) -> bool:
    kinds = ("heredoc_redirect", "herestring_redirect")
    return any(
        child.type in kinds
        or (child.type == "file_redirect" and _source(child).lstrip("0123456789").startswith("<"))
        for child in node.children
    )


def _source(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _redirects(node: Node) -> list[Redirect]:
    found: list[Redirect] = []
    for child in node.children:
        if child.type != "file_redirect":
            continue
        operator = next((part.type for part in child.children if not part.is_named), "")
        descriptor = next((_source(p) for p in child.children if p.type == "file_descriptor"), "")
        targets = [_word(part) for part in child.children if part.type in _WORDS]
        found.extend(Redirect(operator, descriptor, target) for target in targets)
        if not targets:
            found.append(Redirect(operator, descriptor, Word("", is_dynamic=True)))
    return found


def _word(node: Node) -> Word:
    parts = _pieces(node)
    text = "".join(part.text for part in parts)
    home, has_tilde = _without_tilde(parts[0], text) if parts else (text, False)
    return Word(
        home,
        is_dynamic=any(part.is_dynamic for part in parts),
        has_glob=any(part.has_glob for part in parts),
        has_brace=any(part.has_brace for part in parts),
        has_tilde=has_tilde or _has_inner_tilde(parts),
    )


def _has_inner_tilde(parts: list[Word]) -> bool:
    """bash expands `~` behind `=` and `:` too in an argument that looks like an assignment."""
    before = ""
    for part in parts:
        if part.has_tilde and (not part.text.startswith("~") or before.endswith(("=", ":"))):
            return True
        before += part.text
    return False


def _without_tilde(first: Word, text: str) -> tuple[str, bool]:
    if not first.has_tilde or not text.startswith("~"):
        return text, False
    if text == "~" or text.startswith("~/"):
        return os.path.expanduser("~") + text[1:], True
    return text, True


def _pieces(node: Node) -> list[Word]:
    match node.type:
        case "concatenation":
            return [piece for child in node.children for piece in _pieces(child)]
        case "word" | "number" | "regex" | "test_operator":
            return [_bare(_source(node))]
        case "raw_string":
            return [Word(_source(node)[1:-1])]
        case "string":
            inner = _source(node)[1:-1]
            dynamic = any(c.is_named and c.type != "string_content" for c in node.children)
            return [Word(_home(unescaped(inner)), is_dynamic=dynamic)]
        case "simple_expansion" | "expansion":
            return [Word(_home(_source(node)), is_dynamic=True)]
        case "brace_expression":
            return [Word(_source(node), has_brace=True)]
        case "ansi_c_string" | "translated_string":
            return [Word(_source(node)[2:-1], is_dynamic=True)]
        case _:
            return [Word(_source(node), is_dynamic=True)]


def _bare(source: str) -> Word:
    """An unquoted piece: `\\x` is x, and what expands is noted."""
    text: list[str] = []
    has_glob = has_brace = False
    characters = iter(source)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            text.append("" if following == "\n" else following)
            continue
        has_glob = has_glob or character in "*?["
        has_brace = has_brace or character in "{}"
        text.append(character)
    tilde = source.startswith("~") or _INNER_TILDE.search(source) is not None
    return Word("".join(text), has_glob=has_glob, has_brace=has_brace, has_tilde=tilde)


def unescaped(inner: str) -> str:
    """The inside of double quotes: a backslash counts only before `$`, backtick, `"`, itself."""
    text: list[str] = []
    position = 0
    while position < len(inner):
        pair = inner[position : position + 2]
        if len(pair) == 2 and pair[0] == "\\" and pair[1] in '$`"\\\n':
            text.append("" if pair[1] == "\n" else pair[1])
            position += 2
        else:
            text.append(inner[position])
            position += 1
    return "".join(text)


def _home(text: str) -> str:
    """`$HOME` filled in, so that a path below it is recognised; the word stays dynamic."""
    home = str(Path.home())
    return text.replace("${HOME}", home).replace("$HOME", home)


def is_setting(text: str) -> bool:
    """True for `NAME=value`."""
    return _SETTING.match(text) is not None
