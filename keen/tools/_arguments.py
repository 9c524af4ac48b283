"""A tool's arguments as a pydantic model: the schema a model reads, and errors it can act on."""

from __future__ import annotations

import json
from functools import cache
from typing import ClassVar, Final, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from keen.core.errors import ToolError
from keen.core.messages import Json, JsonObject, ToolSpec

_MOST_MISTAKES: Final = 8
"""Mistakes named in one message; a list of a thousand wrong items says the same thing."""


class Arguments(BaseModel):
    """The arguments of one tool. `example` is a valid call, shown beside every mistake."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    example: ClassVar[JsonObject] = {}


_Model = TypeVar("_Model", bound=Arguments)


def tool_spec(name: str, description: str, model: type[Arguments]) -> ToolSpec:
    """A tool as the model is told about it."""
    return ToolSpec(name, description, schema_of(model))


@cache
def schema_of(model: type[BaseModel]) -> JsonObject:
    """The JSON Schema of `model` without titles, defaults, references and null alternatives."""
    raw = cast(JsonObject, model.model_json_schema())
    definitions = cast(JsonObject, raw.pop("$defs", {}))
    raw.pop("description", None)  # pydantic puts the docstring there
    return cast(JsonObject, _clean(raw, definitions))


def parse(model: type[_Model], input: JsonObject, tool: str) -> _Model:
    """Validate what the model sent; a list or object sent as its JSON text is read as such.

    Raises:
        ToolError: names each wrong field, what was expected, and a valid call.
    """
    fields: JsonObject = {name: value for name, value in input.items() if value is not None}
    properties = cast(JsonObject, schema_of(model).get("properties", {}))
    for name, value in fields.items():
        kind = cast(JsonObject, properties.get(name, {})).get("type")
        if isinstance(value, str) and kind in ("array", "object"):
            fields[name] = _unquoted(value)
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise ToolError(_mistakes(model, error, tool)) from None


def _clean(node: Json, definitions: JsonObject) -> Json:
    match node:
        case {"$ref": str(reference)}:
            target = cast(JsonObject, definitions[reference.rpartition("/")[2]])
            bare = {key: value for key, value in target.items() if key != "description"}
            return _clean(cast(Json, bare), definitions)
        case {"anyOf": [*options], **rest} if {"type": "null"} in options:
            kept = [option for option in options if option != {"type": "null"}]
            if len(kept) == 1:
                return _clean({**cast(JsonObject, kept[0]), **cast(JsonObject, rest)}, definitions)
            return _clean({**cast(JsonObject, rest), "anyOf": kept}, definitions)
        case {"properties": dict(properties), **rest}:
            named: JsonObject = {
                name: _clean(value, definitions) for name, value in properties.items()
            }
            outer = cast(JsonObject, _clean(cast(JsonObject, rest), definitions))
            return {**outer, "properties": named}
        case dict():
            return {
                key: _clean(value, definitions)
                for key, value in node.items()
                if key not in ("title", "default")
            }
        case list():
            return [_clean(item, definitions) for item in node]
        case _:
            return node


def _unquoted(text: str) -> Json:
    try:
        value = cast(Json, json.loads(text))
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, list | dict) else text


def _mistakes(model: type[Arguments], error: ValidationError, tool: str) -> str:
    details = error.errors(include_url=False, include_context=False)
    lines = [f"Wrong arguments for {tool}:"]
    for detail in details[:_MOST_MISTAKES]:
        field = _field_name(detail["loc"]) or "arguments"
        match detail["type"]:
            case "missing":
                lines.append(f"- {field} is missing")
            case "extra_forbidden":
                known = ", ".join(model.model_fields)
                lines.append(f"- {field} is no argument of this tool (it takes: {known})")
            case _:
                got = json.dumps(detail["input"], ensure_ascii=False, default=str)
                got = got.encode("utf-8", "backslashreplace").decode()
                lines.append(f"- {field}: {_plain(detail['msg'])}, got {_short(got)}")
    if len(details) > _MOST_MISTAKES:
        lines.append(f"- and {len(details) - _MOST_MISTAKES} more")
    lines.append(f"A valid call: {json.dumps(model.example, ensure_ascii=False)}")
    return "\n".join(lines)


def _field_name(location: tuple[int | str, ...]) -> str:
    name = ""
    for part in location:
        name += f"[{part}]" if isinstance(part, int) else f".{part}" if name else part
    return name


def _plain(message: str) -> str:
    return message.removeprefix("Value error, ").replace("Input should be", "expected")


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
