"""What keen remembers of servers between sessions: approvals, hashes of tool texts, the texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from keen import _files
from keen.core.errors import ConfigError
from keen.core.messages import JsonObject
from keen.extend._mcp_text import ToolText
from keen.extend.mcp_config import ServerConfig
from keen.paths import Paths

_LISTED: Final = 400
"""Tools of one server that a catalogue can name."""
_TEXT_BYTES: Final = 8_000_000


@dataclass(frozen=True, slots=True)
class Store:
    """All methods block; writing raises ConfigError where it is said."""

    file: Path
    """Approvals and hashes: what must not be lost or changed."""
    cache: Path
    """The texts themselves, believed only where their hash is the one in `file`."""

    @classmethod
    def of(cls, paths: Paths) -> Store:
        return cls(paths.data / "mcp-approvals.json", paths.cache / "mcp")

    def is_approved(self, config: ServerConfig) -> bool:
        """True for the user's own servers, and for what the user agreed to word for word."""
        if config.scope != "project":
            return True
        return config.key in _table(self._read(), "approved")

    def approve(self, config: ServerConfig) -> None:
        """Remember the user's yes. Raises: ConfigError when it cannot be stored."""
        entry: JsonObject = {
            "name": config.name,
            "origin": config.origin,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }

        def change(value: JsonObject) -> None:
            value["approved"] = {**_table(value, "approved"), config.key: entry}

        _files.update_json(self.file, change)

    def revoke(self, config: ServerConfig) -> None:
        """Forget approval and hashes. Raises: ConfigError."""

        def change(value: JsonObject) -> None:
            for name in ("approved", "tools"):
                kept = _table(value, name)
                kept.pop(config.key, None)
                value[name] = kept

        _files.update_json(self.file, change)

    def hashes(self, key: str) -> dict[str, str] | None:
        """The agreed hash of each tool by the server's name for it; None before the first list."""
        found = _table(self._read(), "tools").get(key)
        if not isinstance(found, dict):
            return None
        return {name: text for name, text in found.items() if isinstance(text, str)}

    def pin(self, key: str, hashes: Mapping[str, str]) -> None:
        """Agree to these texts, beside those agreed to before. Raises: ConfigError."""

        def change(value: JsonObject) -> None:
            tools = _table(value, "tools")
            tools[key] = {**_table(tools, key), **hashes}
            value["tools"] = tools

        _files.update_json(self.file, change)

    def keep_texts(self, key: str, tools: Iterable[ToolText]) -> None:
        """Keep agreed texts for the next session; a place that cannot be written keeps none."""
        agreed = [*tools]
        listed = [
            ToolText(tool.name, tool.description[:200], hash=tool.hash).as_json()
            for tool in agreed[:_LISTED]
        ]
        names = {tool.name for tool in agreed}
        # A text that was agreed to before stays: the next question shows what changed.
        before = [tool for tool in self._texts(self._whole(key), key) if tool.name not in names]
        texts = json.dumps({"tools": [tool.as_json() for tool in (*agreed, *before)]})
        with suppress(ConfigError):
            _files.write_private(self._listed(key), json.dumps({"tools": [*listed]}))
            if len(texts) <= _TEXT_BYTES:
                _files.write_private(self._whole(key), texts)

    def listed(self, key: str) -> tuple[ToolText, ...]:
        """Names and beginnings of descriptions as last agreed to."""
        return self._texts(self._listed(key), key)

    def text(self, key: str, name: str) -> ToolText | None:
        """The agreed text of a tool, where it was kept."""
        return next(
            (tool for tool in self._texts(self._whole(key), key) if tool.name == name), None
        )

    def _texts(self, path: Path, key: str) -> tuple[ToolText, ...]:
        agreed = self.hashes(key) or {}
        try:
            entries = _files.read_json(path).get("tools")
        except ConfigError:
            return ()
        found = [ToolText.kept(entry) for entry in entries] if isinstance(entries, list) else []
        return tuple(tool for tool in found if tool and agreed.get(tool.name) == tool.hash)

    def _read(self) -> JsonObject:
        """An unreadable file approves nothing."""
        try:
            return _files.read_json(self.file)
        except ConfigError:
            return {}

    def _listed(self, key: str) -> Path:
        return self.cache / f"{key}.json"

    def _whole(self, key: str) -> Path:
        return self.cache / f"{key}.texts.json"


def _table(value: JsonObject, name: str) -> JsonObject:
    found = value.get(name)
    return {**found} if isinstance(found, dict) else {}
