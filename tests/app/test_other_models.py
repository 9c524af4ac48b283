"""Another model: for a review beside the conversation, and for the conversation itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.app.terminal import Terminal
from tests.fakes.dialects import Dialect
from tests.fakes.server import FakeProvider

Start = Callable[..., Terminal]
SMALL: Final = """
[providers.fake.models."small"]
context_window = 16384
max_output_tokens = 2000
"""


async def test_a_review_may_be_another_models_and_is_not_kept(keen: Start, chat: Dialect) -> None:
    answers = (
        chat.says("Done, all proven."),
        chat.calls("read_file", path="parser.py"),
        chat.says("Nothing is proven."),
        chat.says("Second."),
    )
    async with FakeProvider(*answers) as provider, keen(provider, settings=SMALL) as terminal:
        await terminal.ready()
        await terminal.say("one")
        await terminal.until("all proven.")
        await terminal.until("✔ ")

        await terminal.say("/review -m fake/small the tests")

        await terminal.until("Nothing is proven.")
        await terminal.until("fake/small: ")
        first, second = provider.requests[1:3]
        assert "small" in first.path
        assert "small" in second.path
        assert "Focus: the tests" in first.text
        assert "write_file" not in str(first.json["toolConfig"])
        assert "def parse" in second.text
        await terminal.quiet()
        await terminal.say("two")
        await terminal.until("Second.")
        assert "small" not in provider.requests[3].path
        assert "Nothing is proven." not in provider.requests[3].text


async def test_a_review_by_a_model_of_no_provider_says_what_is_wrong(
    keen: Start, chat: Dialect
) -> None:
    async with FakeProvider(chat.says("Fine.")) as provider, keen(provider) as terminal:
        await terminal.ready()

        await terminal.say("/review -m nowhere/model")

        await terminal.until("nowhere")
        await terminal.until("✗ ")
        await terminal.say("hello")
        await terminal.until("Fine.")


async def test_a_model_too_small_for_the_conversation_is_preceded_by_a_compaction(
    keen: Start, chat: Dialect
) -> None:
    answers = (chat.says("word " * 16_000), chat.says("## Goal\nWords."), chat.says("Small talk."))
    async with FakeProvider(*answers) as provider, keen(provider, settings=SMALL) as terminal:
        await terminal.ready()
        await terminal.say("one")
        await terminal.until("✔ ")

        await terminal.say("/model fake/small")
        await terminal.until("The conversation does not fit fake/small")
        await terminal.until("first, then switch")
        terminal.press("enter")

        await terminal.until("Context compacted.")
        await terminal.until("fake/small · build")
        await terminal.say("two")
        await terminal.until("Small talk.")
        assert "small" not in provider.requests[1].path
        assert "small" in provider.requests[2].path
