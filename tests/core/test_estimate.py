from __future__ import annotations

import json

import pytest

from keen.core.estimate import Opaque, image_tokens, json_tokens, text_tokens
from keen.core.messages import Json


def test_ascii_counts_two_tokens_for_seven_bytes() -> None:
    assert text_tokens("abcdefg" * 100) == 200


def test_cjk_counts_a_token_each_and_emoji_two() -> None:
    assert text_tokens("漢字" * 80) == 160
    assert text_tokens("🎉" * 10) == 20
    assert text_tokens("한글과 日本語 テスト") >= 9


def test_other_scripts_are_not_undercounted() -> None:
    assert text_tokens("привет" * 10) == 60


@pytest.mark.parametrize(
    ("width", "height", "tokens"), [(0, 0, 1_600), (10, 10, 85), (1_000, 750, 1_000)]
)
def test_images_count_by_their_pixels(width: int, height: int, tokens: int) -> None:
    assert image_tokens(width, height) == tokens


def test_opaque_strings_cost_what_they_say_and_are_ordinary_json() -> None:
    picture = Opaque("A" * 1_000_000, 900)

    assert json_tokens({"data": picture}) < 910
    assert json.loads(json.dumps({"data": picture})) == {"data": "A" * 1_000_000}


def test_every_value_of_a_request_counts() -> None:
    body: Json = {"a": [1, None, True, "word"], "b": {"c": "x" * 70}}

    assert json_tokens(body) > json_tokens({"a": [1, None, True], "b": {"c": ""}}) + 20
