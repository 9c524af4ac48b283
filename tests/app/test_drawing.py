"""Lines of the transcript: Markdown that grows, cards, blocks in their places."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.segment import Segment
from textual.strip import Strip

from keen import themes
from keen.app import markdown
from keen.app.blocks import Block, Mine, Prose, Thinking, Words, folded
from keen.app.highlights import marked
from keen.app.layout import Layout
from keen.app.look import look_of
from keen.app.tool_cards import Card, Reads, diff_lines, subject
from keen.core.messages import ToolCall, ToolResult

LOOK = look_of(themes.load("keen-dark"))

SAMPLE = """\
# Heading

A paragraph with **bold** and `code`.

- one
- two
  - nested

1. first
2. second

```python
def f():
    return 1


x = 2
```

| a | b |
|---|---|
| 1 | 2 |

> quoted

The end.
"""


def streamed(text: str, sizes: list[int], width: int = 60) -> list[Prose]:
    """The blocks a text becomes when it arrives in pieces of these sizes, over and over."""
    blocks = [Prose("")]
    position = turn = 0
    while position < len(text):
        size = sizes[turn % len(sizes)]
        blocks[-1].text += text[position : position + size]
        position, turn = position + size, turn + 1
        while (cut := markdown.cut(blocks[-1].text, width)) is not None:
            blocks[-1].text = cut.head
            blocks.append(Prose(cut.tail, gap=cut.gap))
    return blocks


def drawn(blocks: list[Prose], width: int = 60) -> list[str]:
    """The lines of blocks, with their gaps."""
    rows: list[str] = []
    for index, block in enumerate(blocks):
        rows += [""] * (block.gap if index else 0)
        rows += [strip.text.rstrip() for strip in block.lines(width, LOOK)]
    return rows


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6))
def test_a_streamed_answer_looks_as_if_it_had_come_at_once(sizes: list[int]) -> None:
    whole = drawn([Prose(SAMPLE)])

    assert drawn(streamed(SAMPLE, sizes)) == whole


def test_a_long_paragraph_is_cut_at_the_ends_of_its_lines() -> None:
    random.seed(1)
    text = " ".join("x" * random.randint(1, 12) for _ in range(4_000))

    blocks = streamed(text, [50])

    assert len(blocks) > 3
    assert drawn(blocks) == drawn([Prose(text)])
    assert max(len(block.text) for block in blocks) < 5_000


def test_a_long_code_block_is_cut_between_lines_and_stays_code() -> None:
    lines = [f"value_{number} = {number}" for number in range(600)]
    text = "```python\n" + "\n".join(lines) + "\n```\n\nDone."

    blocks = streamed(text, [37])

    rows = [row.strip() for row in drawn(blocks)]
    assert [row for row in rows if row.startswith("value_")] == lines
    assert rows[-1] == "Done."
    assert len(blocks) > 5


def test_nothing_is_wider_than_the_screen() -> None:
    wide = "表" * 100 + " " + "x" * 300 + "\n\n```\n" + "y" * 300 + "\n```\n"
    blocks: list[Block] = [
        Prose(wide),
        Mine(wide),
        Thinking(wide, is_open=True),
        Thinking(wide),
        Words(wide, mark="· "),
        card("bash", {"command": "z" * 500}, "w" * 500),
    ]
    for width in (20, 40, 79):
        for block in blocks:
            for strip in block.lines(width, LOOK):
                assert strip.cell_length <= width, (type(block).__name__, strip.text)


def card(name: str, arguments: dict[str, object], output: str, *, is_error: bool = False) -> Card:
    """A finished call."""
    made = Card(ToolCall("1", name, dict(arguments)))  # pyright: ignore[reportArgumentType]
    made.close(ToolResult("1", name, output, is_error), 0.1)
    return made


def rows(block: Block, width: int = 60) -> list[str]:
    return [strip.text.rstrip() for strip in block.lines(width, LOOK)]


def test_a_running_card_is_one_line_and_a_finished_command_shows_its_tail() -> None:
    running = Card(ToolCall("1", "bash", {"command": "make"}))
    assert rows(running) == ["● bash make"]

    done = card("bash", {"command": "make"}, "\n".join(f"line {n}" for n in range(20)))

    assert rows(done)[0] == "✓ bash make"
    assert rows(done)[1] == "  … 15 lines above, Ctrl+O shows them"
    assert rows(done)[-1] == "  line 19"


def test_an_unfolded_card_shows_all_but_no_more_than_four_hundred_lines() -> None:
    done = card("bash", {"command": "make"}, "\n".join(f"line {n}" for n in range(5_000)))
    done.is_open = True

    assert len(rows(done)) == 402
    assert rows(done)[-1] == "  line 4999"


def test_neighbouring_reads_share_one_line_and_a_failed_one_says_why() -> None:
    good = card("read_file", {"path": "a.py"}, "x\ny\n")
    bad = card("read_file", {"path": "b.py"}, "There is no file b.py.", is_error=True)

    folded_rows = rows(Reads([good, bad]))

    assert folded_rows[0] == "✓ 2 reads a.py, b.py"
    assert folded_rows[1] == "✗ read_file b.py"
    assert folded_rows[2] == "  There is no file b.py."


def test_the_signs_of_a_diff_stay_beside_its_colours() -> None:
    lines = diff_lines("--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new", 40, LOOK, 10)

    assert [strip.text for strip in lines] == ["@@ -1 +1 @@", "-old", "+new"]
    assert lines[1]._segments[0].style == LOOK.removed  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "hostile", ["\x1b]52;c;aGk=\x07", "\x1b[2J", "a\rb", "\u202egnp.exe", "\x9b31m", "\u200bx"]
)
def test_nothing_from_outside_reaches_the_terminal_as_a_control(hostile: str) -> None:
    name = subject(ToolCall("1", "bash", {"command": hostile}))
    shown = "".join(rows(card("bash", {"command": hostile}, hostile))) + name

    assert not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or c in "\u202e\u200b" for c in shown)


def test_lines_are_folded_by_cells_and_tabs_are_four() -> None:
    assert folded("\tx", 10) == ["    x"]
    assert folded("表表表", 4) == ["表表", "表"]


def test_every_line_of_a_layout_is_its_blocks_line_whatever_was_changed() -> None:
    random.seed(3)
    plan = Layout(LOOK, width=30)
    model: list[Words] = []
    for step in range(300):
        match random.choice(["add", "add", "change", "remove", "cut"]):
            case "add":
                model.append(Words(f"{step} " * random.randint(1, 30), gap=random.randint(0, 2)))
                plan.add(model[-1])
            case "change" if model:
                block = random.choice(model)
                block.text += "more words " * 5
                plan.changed(next(i for i, one in enumerate(model) if one is block))
            case "remove" if model:
                index = random.randrange(len(model))
                del model[index]
                plan.remove(index)
            case _ if len(model) > 20:
                del model[15:]
                plan.truncate(15)
            case _:
                pass
    for index in range(len(model)):
        plan.measure(index)
    expected: list[str] = []
    for index, block in enumerate(model):
        expected += [""] * (block.gap if index else 0) + [s.text for s in block.lines(30, LOOK)]

    assert plan.total == len(expected)
    assert [plan.line(number).text for number in range(plan.total)] == expected


def test_a_hundred_thousand_lines_cost_what_is_in_sight() -> None:
    plan = Layout(LOOK, width=80)
    plan.extend([Words(f"message {number}\n" * 10) for number in range(10_000)])

    assert plan.total > 100_000
    assert plan.line(plan.total - 1).text in ("message 9999", "")
    assert sum(plan.is_exact) == 0


def test_numbers_of_a_list_keep_their_stop_and_stand_below_one_another() -> None:
    text = "9. nine\n10. ten and so many words that they wrap\n\n---\n\nend"

    drawn = [strip.text.rstrip() for strip in markdown.lines(text, 24, LOOK)]

    assert drawn[:3] == ["  9. nine", " 10. ten and so many", "     words that they"]
    assert "─" * 20 in "".join(drawn)


def test_the_hit_a_search_stands_at_looks_unlike_the_others() -> None:
    strip = Strip([Segment("one needle more", LOOK.text)])

    here = marked(strip, "needle", LOOK, is_here=True)
    elsewhere = marked(strip, "needle", LOOK, is_here=False)

    assert here.text == elsewhere.text == strip.text
    assert [s.text for s in here if s.style and s.style.reverse] == ["needle"]
    assert not [s for s in elsewhere if s.style and s.style.reverse]
    assert [s.text for s in elsewhere if s.style and s.style.underline] == ["needle"]
