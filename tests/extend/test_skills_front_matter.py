from __future__ import annotations

import pytest

from keen.extend.front_matter import HEAD_CHARACTERS, FrontMatterError, front_matter

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_fields_and_body_are_parted() -> None:
    text = "---\nname: a\nallowed-tools: [Read, Bash]\nuser-invocable: no\n---\n\n# Body\n---\nx\n"

    fields, body = front_matter(text)

    assert fields == {"name": "a", "allowed-tools": ["Read", "Bash"], "user-invocable": False}
    assert body == "# Body\n---\nx\n"


def test_a_text_without_a_head_is_all_body() -> None:
    assert front_matter("# Title\n---\nx") == ({}, "# Title\n---\nx")


def test_a_byte_order_mark_and_windows_line_ends_are_read() -> None:
    assert front_matter("\ufeff---\r\nname: a\r\n---\r\nbody\r\n") == ({"name": "a"}, "body\r\n")


def test_an_empty_head_has_no_fields() -> None:
    assert front_matter("---\n---\nbody") == ({}, "body")


def test_a_sentence_with_a_colon_is_text_though_yaml_refuses_it() -> None:
    fields, _ = front_matter(
        "---\nname: a\ndescription: Use when: the user asks\n  for PDFs\n"
        'title: "q"\ndisable-model-invocation: true\n---\n'
    )

    assert fields == {
        "name": "a",
        "description": "Use when: the user asks for PDFs",
        "title": "q",
        "disable-model-invocation": True,
    }


def test_values_that_json_lacks_come_as_text() -> None:
    fields, _ = front_matter("---\nday: 2026-01-02\nnumber: .nan\n1: {2: x}\n---\n")

    assert fields == {"day": "2026-01-02", "number": "nan", "1": {"2": "x"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("---\nname: a\n", "no line --- ends"),
        ("---\nname: " + "a" * HEAD_CHARACTERS + "\n---\n", "longer than"),
        ("---\n- a\n- b\n---\n", "`name: value`"),
        ("---\n{ : [\n---\n", "no YAML"),
        (f"---\n{BOMB}---\n", "aliases"),
        ("---\na: &a [*a]\n---\n", "aliases"),
        ("---\na: " + "[" * 5_000 + "]" * 5_000 + "\n---\n", "too many values"),
        ("---\na: [" + "1," * 5_000 + "]\n---\n", "too many values"),
        ("---\na: " + "9" * 6_000 + "\n---\n", "cannot be read"),
        ("---\na: !!python/object/apply:os.system [true]\n- b\n---\n", "no YAML"),
    ],
)
def test_a_hostile_or_broken_head_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(FrontMatterError, match=said):
        front_matter(text)


@pytest.mark.parametrize(
    "line",
    [
        "name: on",
        "name: Yes",
        "a: b: c",
        "a: b # c",
        "a: b:",
        "a: null",
        "a: b  ",
        "a:   b, c",
        "a:",
    ],
)
def test_plain_lines_say_what_yaml_says_of_them(line: str) -> None:
    assert front_matter(f"---\nother: one\n{line}\n---\n") == front_matter(
        f"---\nother: 'one'\n{line}\n---\n"
    )
