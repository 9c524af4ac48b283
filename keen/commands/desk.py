"""What the app asks of the rest of keen, answered: engines, sessions, models, keys, files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from keen import themes
from keen.app.desk import (
    Attention,
    Early,
    ModelRow,
    Opened,
    ProviderRow,
    SessionRow,
    Wanted,
)
from keen.commands._programs import Programs
from keen.commands._surroundings import append_prompt, branch_of, files_below, read_prompts
from keen.core.messages import JsonObject
from keen.options import Options
from keen.paths import Paths
from keen.state import remember
from keen.themes import Palette

if TYPE_CHECKING:
    from keen._settings import Settings
    from keen.agent.sampling import Sampler
    from keen.commands._place import Place
    from keen.core.models import Effort, ModelSpec
    from keen.session.records import Record
    from keen.wire.base import Endpoint


class AppDesk:
    """Implements keen.app.desk.Desk. Imports what is heavy in threads."""

    def __init__(self, wanted: Options, environment: Mapping[str, str], first: Early) -> None:
        self.early = first
        self._options = wanted
        self._environment = dict(environment)
        self._paths = Paths.from_environment(environment)
        self._settings: Settings | None = None
        self._programs: Programs | None = None

    def settings(self) -> Settings | None:
        return self._settings

    # Engines.

    async def open(self, wanted: Wanted) -> Opened:
        sessions = await asyncio.to_thread(_import_sessions)
        asked = await asyncio.to_thread(self._asked, wanted)
        opened = await sessions.open_session(asked, self._environment, is_interactive=True)
        engine = opened.engine
        self._settings = engine.settings
        self._programs = Programs(engine)
        is_trusted, is_asking = await asyncio.to_thread(self._trusts)
        return Opened(
            engine,
            opened.records,
            is_trusted=is_trusted,
            asks_trust=is_asking,
            sandbox=engine.conversation.toolbox.policy.sandbox,
        )

    def _asked(self, wanted: Wanted) -> Options:
        """The command line with what the person wants now."""
        options = self._options
        if wanted.model:
            options = replace(options, model=wanted.model)
        match wanted.kind:
            case "start":
                return options
            case "new":
                return replace(options, resume=None, is_continued=False, is_fork=False)
            case "resume":
                return replace(options, resume=wanted.session_id, is_continued=False, is_fork=False)
            case "fork" if not wanted.session_id:
                return replace(options, is_fork=True)
            case "fork":
                session_id = wanted.session_id
                if wanted.upto is not None:
                    store = self._store()
                    path = store.find(session_id, None)
                    session_id = store.fork(path, options.cwd, upto=wanted.upto).stem
                return replace(
                    options,
                    resume=session_id,
                    is_continued=False,
                    is_fork=wanted.upto is None,
                )

    def _trusts(self) -> tuple[bool, bool]:
        """Whether nothing of the folder is held back, and whether to ask about it."""
        from keen import trust

        cwd, paths = self._options.cwd, self._paths
        if trust.is_trusted(cwd, paths) or not trust.what_would_take_effect(cwd):
            return True, False
        return False, not trust.is_refused(cwd, paths)

    async def trust(self) -> tuple[str, ...]:
        from keen import trust

        return await asyncio.to_thread(trust.what_would_take_effect, self._options.cwd)

    async def set_trust(self, is_trusted: bool) -> None:
        from keen import trust

        act = trust.trust if is_trusted else trust.refuse
        await asyncio.to_thread(act, self._options.cwd, self._paths)

    # Sessions.

    def _store(self) -> Any:
        from keen.session.store import Store

        return Store(self._paths.sessions)

    async def sessions(self, *, everywhere: bool) -> Sequence[SessionRow]:
        return await asyncio.to_thread(self._sessions, everywhere)

    def _sessions(self, everywhere: bool) -> list[SessionRow]:
        store = self._store()
        here = os.path.realpath(self._options.cwd)
        return [
            SessionRow(
                id=found.session_id,
                title=found.name or found.title,
                when=_ago(found.time),
                turns=found.turns,
                model=found.model,
                place=found.cwd,
                is_locked=store.is_locked(found.path),
                is_here=found.cwd == here,
            )
            for found in store.sessions(None if everywhere else self._options.cwd)
        ]

    async def preview(self, session_id: str) -> Sequence[Record]:
        def read() -> list[Record]:
            store = self._store()
            return list(store.read(store.find(session_id, None)).records)

        return await asyncio.to_thread(read)

    async def rename(self, session_id: str, name: str) -> None:
        store = self._store()
        await asyncio.to_thread(lambda: store.rename(store.find(session_id, None), name))

    async def delete(self, session_id: str) -> None:
        store = self._store()
        await asyncio.to_thread(lambda: store.delete(store.find(session_id, None)))

    async def export(self, records: Sequence[Record], form: str) -> Path:
        from keen.session.export import FORMS, Form, export

        wanted: Form = next(known for known in FORMS if known == form)

        def write() -> Path:
            text = export(records, wanted)
            stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
            path = self._options.cwd / f"keen-session-{stamp}.{wanted}"
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
            path.chmod(0o600)
            return path

        return await asyncio.to_thread(write)

    # Models and keys.

    async def models(self, provider: str = "") -> Sequence[ModelRow]:
        from keen.commands.models import local_servers

        place = await asyncio.to_thread(self._place)
        settings = self._settings or (await asyncio.to_thread(place.load)).settings
        servers = await local_servers(settings, only=provider)
        return await asyncio.to_thread(self._described, settings, provider, servers)

    def _described(self, settings: Settings, provider: str, servers: Any) -> list[ModelRow]:
        from keen import providers
        from keen.commands.models import row

        found = providers.known_models(
            settings, self._environment, self._paths, provider=provider, local=servers
        )
        rows: list[ModelRow] = []
        for model in found:
            _, window, _, _, price = row(model)
            costs = f"$ {price}" if model.spec.price else price.replace("-", "no price known")
            rows.append(ModelRow(model.spec.name, f"{window} tokens, {costs}"))
        return rows

    async def model(self, name: str) -> ModelSpec:
        return (await self._known(name))[0]

    async def sampler(self, name: str) -> Sampler:
        spec, address, effort = await self._known(name)
        return await asyncio.to_thread(_sampler, spec, address, effort)

    async def _known(self, name: str) -> tuple[ModelSpec, Endpoint, Effort | None]:
        """A model, where it is and how hard it thinks. Raises: ConfigError."""
        from keen import providers
        from keen.wire import catalogue

        place = await asyncio.to_thread(self._place)
        settings = self._settings or (await asyncio.to_thread(place.load)).settings
        provider, model, effort = catalogue.parse_model(name)
        address = providers.endpoint(settings, provider, self._environment, self._paths)
        spec = await asyncio.to_thread(
            providers.model_spec, settings, provider, model, paths=self._paths
        )
        return await providers.asked(settings, spec, address), address, effort

    async def local_models(self) -> Sequence[ModelRow]:
        from keen.commands.models import local_servers

        settings_of = await asyncio.to_thread(_import_settings)
        servers = await local_servers(self._settings or settings_of())
        return [
            ModelRow(f"{server.provider}/{model.id}", f"{model.window:,}" if model.window else "")
            for server in servers
            for model in server.models
        ]

    def providers(self) -> Sequence[ProviderRow]:
        from keen.wire import catalogue

        rows: list[ProviderRow] = []
        for name, row in catalogue.providers().items():
            if row.local or row.client in ("demo", "bedrock"):
                continue
            signs_in = row.client == "codex"
            detail = (
                "sign in through the browser" if signs_in else row.keys[0] if row.keys else "key"
            )
            rows.append(ProviderRow(name, detail, signs_in))
        return rows

    async def keep_key(self, provider: str, key: str) -> None:
        from keen import credentials

        await asyncio.to_thread(credentials.store_key, self._paths.auth_file, provider, key)

    async def forget_key(self, provider: str) -> bool:
        from keen import credentials

        return await asyncio.to_thread(credentials.forget, self._paths.auth_file, provider)

    async def sign_in(self, provider: str, show: Callable[[str], None]) -> None:
        from keen import auth, browser

        async def open_page(address: str) -> None:
            show(address)
            cwd, environment = self._options.cwd, self._environment
            await asyncio.to_thread(browser.open_page, address, cwd, environment)

        await auth.sign_in(self._paths.auth_file, open_page, provider=provider)

    # Looks and memory.

    def themes(self) -> Sequence[str]:
        return themes.names(self._paths.themes)

    def theme_changed(self, name: str) -> tuple[int, int]:
        try:
            found = (self._paths.themes / f"{name}.toml").stat()
        except OSError:
            return 0, 0
        # A file that was emptied and written within one tick of the clock differs in its size.
        return found.st_mtime_ns, found.st_size

    def palette(self, name: str) -> Palette:
        return themes.load(name, self._paths.themes)

    async def remember(self, *, model: str = "", theme: str = "", thinking: str = "") -> None:
        await asyncio.to_thread(
            remember,
            self._paths,
            model=model or None,
            theme=theme or None,
            thinking=thinking or None,
        )

    # Files.

    async def files(self) -> Sequence[str]:
        return await asyncio.to_thread(files_below, str(self._options.cwd))

    async def branch(self) -> str:
        return await asyncio.to_thread(branch_of, str(self._options.cwd))

    async def prompts(self) -> Sequence[str]:
        return await asyncio.to_thread(read_prompts, self._prompt_file, str(self._options.cwd))

    async def keep_prompt(self, text: str) -> None:
        if self._options.is_saved:
            cwd = str(self._options.cwd)
            await asyncio.to_thread(append_prompt, self._prompt_file, cwd, text)

    @property
    def _prompt_file(self) -> Path:
        return self._paths.data / "prompts.jsonl"

    # The person's own programs.

    async def told_status(self, facts: JsonObject) -> str:
        return await self._programs.told_status(facts) if self._programs is not None else ""

    async def call(self, kind: Attention, words: str) -> None:
        if self._programs is not None:
            await self._programs.call(kind, words)

    # Reports.

    def _place(self) -> Place:
        from keen import trust
        from keen.commands._place import Place

        return Place(
            self._options.cwd,
            self._paths,
            self._environment,
            self._options.config,
            trust.is_trusted(self._options.cwd, self._paths),
        )

    async def report(self, what: Literal["doctor", "config", "memory"]) -> str:
        return await asyncio.to_thread(self._report, what)

    def _report(self, what: Literal["doctor", "config", "memory"]) -> str:
        place = self._place()
        match what:
            case "doctor":
                from keen.commands.doctor import findings

                lines: list[str] = []
                for finding in findings(place):
                    lines.append(f"{finding.kind:<5}  {finding.subject}: {finding.words}")
                    if finding.advice:
                        lines.append(f"       → {finding.advice}")
                return "\n".join(lines)
            case "config":
                from keen import config
                from keen.commands.config import toml_lines

                loaded = place.load()
                own, *projects = config.files(place.cwd, place.paths, place.file)
                where = "\n".join(str(path) for path in (own, *projects) if path.exists())
                shown = "\n".join(toml_lines(config.masked(loaded.settings), loaded.origins))
                return f"{where or f'{own} (not there)'}\n\n{shown}"
            case "memory":
                from keen import trust
                from keen.extend.instructions import instructions

                root = trust.project_root(place.cwd) if place.is_trusted else None
                found = instructions(place.cwd, root, place.paths.config / "AGENTS.md")
                return found.text or "There are none: AGENTS.md of a trusted folder, or your own."


def _sampler(spec: ModelSpec, address: Endpoint, effort: Effort | None) -> Sampler:
    from keen.agent.sampling import Sampler
    from keen.wire.registry import wire_for

    return Sampler(wire_for(spec.client, address), spec, effort=effort)


def _import_sessions() -> Any:
    from keen import sessions

    return sessions


def _import_settings() -> Any:
    from keen._settings import Settings

    return Settings


def _ago(time: datetime) -> str:
    seconds = max((datetime.now(UTC) - time).total_seconds(), 0)
    for size, name in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"
