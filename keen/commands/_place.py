"""Where a management command works: directory, settings, paths and what is trusted there."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from keen import config, credentials, trust
from keen.commands.arguments import directory
from keen.commands.parsing import filled_path
from keen.config import Loaded
from keen.paths import Paths


class Subparsers(Protocol):
    """Where a command adds its own parser; argparse gives its class a private name."""

    def add_parser(self, name: str, *, help: str) -> argparse.ArgumentParser: ...


@dataclass(frozen=True, slots=True)
class Place:
    """A start that runs no turn. `file` is `--config`."""

    cwd: Path
    paths: Paths
    environment: Mapping[str, str]
    file: Path | None
    is_trusted: bool

    def load(self) -> Loaded:
        """The settings that hold here; the keys in them are never shown. Raises: ConfigError."""
        loaded = config.load(
            self.cwd,
            flags={},
            environment=self.environment,
            trusted=self.is_trusted,
            paths=self.paths,
            file=self.file,
        )
        credentials.learn_secrets(loaded.settings, self.environment, self.paths.auth_file)
        return loaded


def add_place(parser: argparse.ArgumentParser) -> None:
    """The flags that say where: `-C` and `--config`."""
    add = parser.add_argument
    add("-C", "--cwd", type=filled_path, default=Path(), metavar="DIR", help="look in DIR")
    add("--config", type=filled_path, metavar="FILE", help="in place of your config.toml")


def place_of(arguments: argparse.Namespace) -> Place:
    """The place that the parsed flags name. Raises: UsageError for one that is not there."""
    cwd = directory(arguments.cwd)
    file: Path | None = arguments.config
    if file is not None:
        file = Path(os.path.abspath(os.path.expanduser(file)))
    environment = dict(os.environ)
    paths = Paths.from_environment(environment)
    return Place(cwd, paths, environment, file, trust.is_trusted(cwd, paths))
