from __future__ import annotations

import json

import pytest

from keen.core.errors import ToolError
from keen.core.messages import JsonObject
from keen.tools._arguments import parse
from keen.tools.edit_file import EditFile, EditFileArguments
from keen.tools.file_memory import FileMemory
from keen.tools.read_file import ReadFileArguments

GOOD: JsonObject = {"path": "a", "edits": [{"old": "x", "new": "y"}]}


def test_a_schema_is_small_closed_and_without_references() -> None:
    schema = EditFile(FileMemory()).spec.schema
    text = json.dumps(schema)

    assert schema["additionalProperties"] is False
    assert schema["required"] == ["path", "edits"]
    assert not any(word in text for word in ("title", "$ref", "$defs", "default", "null"))
    assert '"items": {"additionalProperties": false' in text


def test_an_error_names_the_field_what_was_expected_and_a_valid_call() -> None:
    wrong: JsonObject = {"edits": [{"old": 1, "new": "y"}], "file": "a"}

    with pytest.raises(ToolError) as caught:
        parse(EditFileArguments, wrong, "edit_file")

    text = str(caught.value)
    assert "edits[0].old: expected a valid string, got 1" in text
    assert "path is missing" in text
    assert "file is no argument of this tool (it takes: path, edits)" in text
    example = text.partition("A valid call: ")[2]
    assert parse(EditFileArguments, json.loads(example), "edit_file")


def test_an_error_about_many_mistakes_stays_short() -> None:
    wrong: JsonObject = {"path": "a", "edits": [{"old": "x" * 9000} for _ in range(5000)]}

    with pytest.raises(ToolError) as caught:
        parse(EditFileArguments, wrong, "edit_file")

    assert len(str(caught.value)) < 2_000


def test_null_stands_for_an_absent_argument() -> None:
    assert parse(ReadFileArguments, {"path": "a", "offset": None}, "read_file").offset == 1


def test_a_list_sent_as_its_json_text_is_read() -> None:
    quoted: JsonObject = {"path": "a", "edits": json.dumps(GOOD["edits"])}

    assert parse(EditFileArguments, quoted, "x") == parse(EditFileArguments, GOOD, "x")


@pytest.mark.parametrize("text", ["not json", "[" * 100_000, "1", '"x"'])
def test_any_other_text_for_a_list_is_an_error(text: str) -> None:
    with pytest.raises(ToolError, match="edits"):
        parse(EditFileArguments, {"path": "a", "edits": text}, "edit_file")
