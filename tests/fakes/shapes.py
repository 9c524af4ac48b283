"""Reading JSON of unknown shape: what is not of the wanted kind reads as empty."""

from __future__ import annotations

from keen.core.messages import Json, JsonObject


def fields(value: Json) -> JsonObject:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def entries(value: Json) -> list[Json]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def objects(value: Json) -> list[JsonObject]:
    """The objects of a list."""
    return [item for item in entries(value) if isinstance(item, dict)]


def words(value: Json) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def at(value: Json, *path: str) -> Json:
    """What stands at the end of a path of keys; None where it breaks off."""
    for key in path:
        value = fields(value).get(key)
    return value
