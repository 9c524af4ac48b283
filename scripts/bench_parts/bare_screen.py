"""The baselines in a terminal: Textual alone, with a prompt, or drawing the same answer.

bare_screen.py prompt, a text area; bare_screen.py log DIALECT URL, a RichLog that shows the lines
of one answer, read over a socket, and says so when it has all of them.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

from bare import MODELS, PATHS, QUESTION, Connection, text_of
from textual.app import App, ComposeResult
from textual.widgets import RichLog, TextArea

DONE = "✔ drawn"
_AT_ONCE = 64


class Prompt(App[None]):
    def compose(self) -> ComposeResult:
        yield TextArea()


class Drawn(App[None]):
    def __init__(self, dialect: str, url: str) -> None:
        super().__init__()
        self.answer = (dialect, url)

    def compose(self) -> ComposeResult:
        yield RichLog(wrap=True)

    def on_mount(self) -> None:
        self.run_worker(self.draw())

    async def draw(self) -> None:
        shown, rest = self.query_one(RichLog), ""
        for number, text in enumerate(texts(*self.answer)):
            *whole, rest = (rest + text).split("\n")
            for line in whole:
                shown.write(line)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        shown.write(rest)
        shown.write(DONE)


def texts(dialect: str, url: str) -> Iterator[str]:
    body = {"model": MODELS[dialect], "messages": QUESTION, "stream": True}
    return (text_of(dialect, event) for event in Connection(url, PATHS[dialect]).ask(body))


if __name__ == "__main__":
    (Prompt() if sys.argv[1] == "prompt" else Drawn(*sys.argv[2:])).run()
