"""Arguments held against a schema that a stranger wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import count, islice
from typing import Any, Final, cast

from keen.core.errors import ToolError
from keen.core.messages import Json, JsonObject
from keen.extend._mcp_text import ToolText, visible

_MOST_MISTAKES: Final = 8
_MOST_REFERENCES: Final = 1_000
"""References followed for one call: a schema can be made to need for ever."""
_SCHEMA_BYTES: Final = 3_000
_MISTAKE: Final = 200
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")


class _TooMuch(Exception):
    """The schema asks for more work than a check is worth; the server checks anyway."""


def checked(full_name: str, tool: ToolText, arguments: JsonObject) -> JsonObject:
    """The arguments; a list or object that was sent as its JSON text is read as such.

    A schema that is none, or that needs another document, checks nothing. Patterns are left to the
    server: one can be written that takes for ever. Blocking, the first time by an import.

    Raises:
        ToolError: names each mistake and shows the schema.
    """
    wanted = tool.schema
    given = _unquoted(wanted, arguments)
    mistakes = _mistakes(wanted, given)
    if not mistakes:
        return given
    schema = visible(tool.schema_text)[0]
    if len(schema) > _SCHEMA_BYTES:
        schema = f"{schema[:_SCHEMA_BYTES]}… (mcp_describe shows all of it)"
    lines = [f"Wrong arguments for {full_name}:", *mistakes, f"Its schema: {schema}"]
    raise ToolError("\n".join(lines))


def _mistakes(schema: JsonObject, arguments: JsonObject) -> list[str]:
    exceptions: Any = import_module("jsonschema.exceptions")
    unresolvable: Any = import_module("referencing.exceptions").Unresolvable
    found: list[str] = []
    try:
        for error in islice(_validator(schema).iter_errors(arguments), _MOST_MISTAKES):
            where = "".join(f"[{step!r}]" for step in error.absolute_path) or "arguments"
            found.append(f"- {where}: {visible(str(error.message))[0][:_MISTAKE]}")
    except (exceptions.SchemaError, exceptions.UnknownType, unresolvable, _TooMuch):
        return []
    except (RecursionError, TypeError, ValueError, KeyError, AttributeError):
        return []  # a schema that is none in a way its own schema does not know
    return found


def _validator(schema: JsonObject) -> Any:
    """A validator that resolves nothing beyond the schema and matches no pattern of it."""
    validators: Any = import_module("jsonschema.validators")
    registry: Any = import_module("referencing").Registry()
    kind: Any = validators.validator_for(schema, default=validators.Draft202012Validator)
    kind.check_schema(schema)
    rules: dict[str, Any] = kind.VALIDATORS
    steps = count()

    def counted(rule: Any) -> Any:
        def follow(*found: Any) -> Iterator[Any]:
            if next(steps) >= _MOST_REFERENCES:
                raise _TooMuch
            yield from rule(*found) or ()

        return follow

    def additional(validator: Any, value: Any, instance: Any, within: dict[str, Any]) -> Any:
        if "patternProperties" in within:
            return ()
        return rules["additionalProperties"](validator, value, instance, within)

    changed = {name: counted(rules[name]) for name in _REFERENCES if name in rules}
    if "additionalProperties" in rules:
        changed["additionalProperties"] = additional
    changed |= {"pattern": _nothing, "patternProperties": _nothing}
    return validators.extend(kind, changed)(schema, registry=registry)


def _nothing(*_found: Any) -> tuple[Any, ...]:
    return ()


def _unquoted(schema: JsonObject, arguments: JsonObject) -> JsonObject:
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return arguments
    given = {**arguments}
    for name, value in arguments.items():
        about = properties.get(name)
        wanted = about.get("type") if isinstance(about, dict) else None
        if isinstance(value, str) and wanted in ("array", "object"):
            with suppress(ValueError, RecursionError):
                read = cast("Json", json.loads(value))
                if isinstance(read, list if wanted == "array" else dict):
                    given[name] = read
    return given
