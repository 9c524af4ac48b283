"""The parts of the app that have no screen: queue, history, chips, keys, fuzzy, numbers, themes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from keen import themes
from keen.app import units
from keen.app.chips import Chips, is_long
from keen.app.coalesce import Channel, Coalescer
from keen.app.fuzzy import ranked
from keen.app.history import History
from keen.app.keys import COMMANDS, keymap
from keen.app.outbox import MOST, Outbox
from keen.core.errors import ConfigError
from keen.core.messages import Image, User


def test_the_queue_takes_twenty_and_gives_the_oldest_first() -> None:
    outbox = Outbox()
    assert all(outbox.add(User(str(number))) for number in range(MOST))

    assert not outbox.add(User("one too many"))
    assert outbox.take_next() == User("0")
    assert outbox.take_newest() == User(str(MOST - 1))


def test_an_emptied_queue_is_no_longer_held() -> None:
    outbox = Outbox([User("a")])
    outbox.hold()
    assert outbox.is_held

    outbox.take_newest()

    assert not outbox.is_held


def test_walking_back_in_history_keeps_the_draft_at_the_bottom() -> None:
    history = History(["one", "two"])

    assert history.older("draft") == "two"
    assert history.older("two") == "one"
    assert history.older("one") is None
    assert history.newer() == "two"
    assert history.newer() == "draft"
    assert history.newer() is None


def test_history_finds_entries_with_all_the_words_newest_first_each_once() -> None:
    history = History(["fix the parser", "read it", "fix the Lexer", "fix the parser"])

    assert history.matching("FIX the") == ["fix the parser", "fix the Lexer"]


def test_a_chip_is_expanded_when_it_is_sent_and_a_typed_one_is_not() -> None:
    chips = Chips()
    text = "\n".join(f"row {number}" for number in range(20))
    mark = chips.text(text)

    assert mark == "[Pasted 20 lines #1]"
    assert chips.message(f"look: {mark}").text == f"look: {text}"
    assert chips.message("[Pasted 3 lines #9]").text == "[Pasted 3 lines #9]"
    assert chips.before(f"look: {mark}") == mark
    assert chips.before("look [Pasted 3 lines #9]") == ""


def test_pictures_are_attached_in_the_order_of_their_chips() -> None:
    chips = Chips()
    first, second = (chips.image(name, Image("image/png", name.encode())) for name in ("a", "b"))

    sent = chips.message(f"{second} then {first}")

    assert [image.data for image in sent.images] == [b"b", b"a"]


def test_only_long_pastes_become_chips() -> None:
    assert not is_long("three\nshort\nlines")
    assert is_long("\n" * 8)
    assert is_long("x" * 801)


def test_every_key_belongs_to_one_command() -> None:
    keys = [key for command in COMMANDS for key in command.keys]

    assert len(keys) == len(set(keys))


def test_a_rebound_key_leaves_its_old_command_and_a_wrong_name_is_told() -> None:
    table, faults = keymap({"steer": ["Ctrl-E"], "todos": ["f1"]})

    assert table["ctrl+e"] == "steer"
    assert "ctrl+s" not in table
    assert faults == ["keys.todos: there is no such command. Did you mean todo?"]


def test_fuzzy_prefers_the_file_name_and_needs_the_letters_in_order() -> None:
    names = ["src/parser/lexer.py", "src/lexer/parser.py", "docs/guide.md"]

    assert ranked("parser", names)[0] == "src/lexer/parser.py"
    assert ranked("dgm", names) == ["docs/guide.md"]
    assert ranked("zzz", names) == []


async def test_deltas_are_joined_and_another_channel_keeps_the_order() -> None:
    got: list[tuple[Channel, str]] = []
    joined = asyncio.Event()

    def take(channel: Channel, text: str) -> None:
        got.append((channel, text))
        joined.set()

    coalescer = Coalescer(take, every=0.01)
    coalescer.add("reasoning", "hm ")
    coalescer.add("reasoning", "so")
    coalescer.add("text", "Yes")
    coalescer.add("text", ".")
    assert got == [("reasoning", "hm so")]
    joined.clear()
    await joined.wait()

    assert got == [("reasoning", "hm so"), ("text", "Yes.")]


async def test_dropped_deltas_are_never_handed_over() -> None:
    got: list[str] = []
    coalescer = Coalescer(lambda _channel, text: got.append(text))
    coalescer.add("text", "void")

    coalescer.drop()
    coalescer.add("text", "real")
    coalescer.flush()

    assert got == ["real"]


@pytest.mark.parametrize(
    ("seconds", "shown"), [(7.9, "7s"), (62, "1m 02s"), (3_599, "59m 59s"), (7_500, "2h 05m")]
)
def test_durations_read_like_a_clock(seconds: float, shown: str) -> None:
    assert units.duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"), [(999, "999"), (3_450, "3.5k"), (128_000, "128k"), (1_250_000, "1.2M")]
)
def test_tokens_are_short(count: int, shown: str) -> None:
    assert units.tokens(count) == shown


def test_every_packaged_theme_can_be_read_and_is_legible() -> None:
    assert set(themes.names()) >= {"keen-dark", "keen-light", "high-contrast", "ansi"}
    for name in themes.names():
        palette = themes.load(name)
        if palette.is_ansi:
            continue
        for color in ("text", "muted", "accent", "success", "warning", "error", "added", "removed"):
            for ground in ("background", "surface"):
                ratio = contrast(palette[color], palette[ground])
                assert ratio >= 4.5, (name, color, ground, ratio)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(color: str) -> float:
        parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
        linear = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
        red, green, blue = linear
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_a_theme_of_ones_own_may_name_only_what_differs(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('dark = false\n[colors]\naccent = "#aa0000"\n')

    palette = themes.load("mine", tmp_path)

    assert palette["accent"] == "#aa0000"
    assert palette["text"] == themes.load("keen-light")["text"]
    assert "mine" in themes.names(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[colors]\naccnt = '#aa0000'\n", "did you mean accent?"),
        ("[colors]\naccent = 'red'\n", 'expected "#rrggbb"'),
        ("[colors\n", "expected TOML"),
        ("colors = 3\n", "expected a table"),
    ],
)
def test_a_mistake_in_a_theme_names_the_file_and_what_was_expected(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "mine.toml").write_text(text)

    with pytest.raises(ConfigError, match="mine\\.toml") as raised:
        themes.load("mine", tmp_path)

    assert words in str(raised.value)


def test_an_unknown_theme_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match="Did you mean keen-dark"):
        themes.load("keen-drak")
    with pytest.raises(ConfigError, match="There is no theme"):
        themes.load("../../etc/passwd")
