"""Where keen keeps its files on this system."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HOME_VARIABLE: Final = "KEEN_HOME"


@dataclass(frozen=True, slots=True)
class Paths:
    """The directories of one user. None of them need exist; who writes creates them, 0700."""

    config: Path
    """config.toml, permissions.toml, themes/, skills/: what the user writes."""
    data: Path
    """auth.json, trust.json, state.json, sessions/: what keen writes and must keep."""
    cache: Path
    """What can be made again."""
    logs: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Paths:
        """Everything in KEEN_HOME when it is set, else the system's usual directories."""
        variables = os.environ if environment is None else environment
        if home := variables.get(HOME_VARIABLE, "").strip():
            return cls.in_one_directory(Path(os.path.abspath(os.path.expanduser(home))))
        return _usual_paths()

    @classmethod
    def in_one_directory(cls, home: Path) -> Paths:
        return cls(config=home, data=home, cache=home / "cache", logs=home / "logs")

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def permissions_file(self) -> Path:
        return self.config / "permissions.toml"

    @property
    def themes(self) -> Path:
        return self.config / "themes"

    @property
    def skills(self) -> Path:
        return self.config / "skills"

    @property
    def auth_file(self) -> Path:
        return self.data / "auth.json"

    @property
    def trust_file(self) -> Path:
        return self.data / "trust.json"

    @property
    def state_file(self) -> Path:
        return self.data / "state.json"

    @property
    def sessions(self) -> Path:
        return self.data / "sessions"


def _usual_paths() -> Paths:
    import platformdirs

    directories = platformdirs.PlatformDirs("keen", appauthor=False)
    try:
        paths = Paths(
            config=Path(directories.user_config_dir),
            data=Path(directories.user_data_dir),
            cache=Path(directories.user_cache_dir),
            logs=Path(directories.user_log_dir),
        )
    except RuntimeError:  # no home: a container's numeric user
        return Paths.in_one_directory(_directory_without_home())
    # A relative directory would lie in the working directory, inside somebody's project.
    if all(place.is_absolute() for place in (paths.config, paths.data, paths.cache, paths.logs)):
        return paths
    return Paths.in_one_directory(_directory_without_home())


def _directory_without_home() -> Path:
    """A private directory among the temporary files: the same one each time, if it is ours."""
    owner = os.getuid() if hasattr(os, "getuid") else 0
    usual = Path(tempfile.gettempdir()) / f"keen-{owner}"
    try:
        usual.mkdir(mode=0o700)
    except FileExistsError:
        found = usual.lstat()
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == owner
        if is_ours and not found.st_mode & 0o077:
            return usual
    except OSError:
        return usual
    else:
        return usual
    return Path(tempfile.mkdtemp(prefix="keen-"))
