"""Long pastes, pictures and command outputs as short marks in the prompt."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from keen.core.messages import Image, User

_LONG_LINES: Final = 8
_LONG_CHARACTERS: Final = 800
_MARK: Final = re.compile(r"\[(?:Pasted|Image|Output)[^\[\]\n]* #\d+\]")


def is_long(text: str) -> bool:
    """True for a paste that would push the prompt off the screen."""
    return len(text) > _LONG_CHARACTERS or text.count("\n") >= _LONG_LINES


@dataclass
class Chips:
    """What the marks in the prompt stand for."""

    _texts: dict[str, str] = field(default_factory=dict[str, str])
    _images: dict[str, Image] = field(default_factory=dict[str, Image])
    _number: int = 0

    def text(self, content: str) -> str:
        """A mark for a pasted text."""
        lines = content.count("\n") + 1
        size = f"{lines:,} lines" if lines > 1 else f"{len(content):,} characters"
        return self._keep(f"Pasted {size}", content)

    def output(self, command: str, output: str) -> str:
        """A mark for what the person's own command printed."""
        short = re.sub(r"[\[\]#\s]+", " ", command).strip()[:30]
        content = f"I ran `{command}`. Its output:\n\n```\n{output.rstrip()}\n```"
        return self._keep(f"Output of {short}", content)

    def image(self, name: str, image: Image) -> str:
        """A mark for a picture."""
        self._number += 1
        short = re.sub(r"[\[\]#\s]+", " ", name).strip()[-40:]
        mark = f"[Image {short} #{self._number}]"
        self._images[mark] = image
        return mark

    def before(self, text: str) -> str:
        """The mark that `text` ends with, "" when it ends with none."""
        for match in _MARK.finditer(text):
            if match.end() == len(text) and (match[0] in self._texts or match[0] in self._images):
                return match[0]
        return ""

    def message(self, text: str) -> User:
        """What is sent: texts in the place of their marks, pictures attached in their order."""
        images: list[Image] = []

        def expand(match: re.Match[str]) -> str:
            mark = match[0]
            if (image := self._images.get(mark)) is not None:
                images.append(image)
                return mark
            return self._texts.get(mark, mark)

        return User(_MARK.sub(expand, text), tuple(images))

    def _keep(self, label: str, content: str) -> str:
        self._number += 1
        mark = f"[{label} #{self._number}]"
        self._texts[mark] = content
        return mark
