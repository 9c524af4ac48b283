"""The first start without a model: a local server, a provider and its key, or the guide."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from keen import sanitize
from keen.app.desk import Desk, ModelRow, ProviderRow
from keen.app.host import host_of
from keen.app.look import Look
from keen.app.screens.sheet import LineSheet, ListSheet, Row, Sheet
from keen.core.errors import KeenError

GUIDE = "demo/guide"


class SetupScreen(Sheet[str]):
    """Closes with the model to start with, or nothing."""

    def __init__(
        self, desk: Desk, look: Look, reason: str, provider: str = "", *, is_first: bool = True
    ) -> None:
        ends = "leaves keen" if is_first else "closes"
        super().__init__("Which model shall keen use?", f"↑ ↓ Enter · Esc {ends}", look)
        self._desk = desk
        self._reason = reason
        self._wanted = provider
        self._local: Sequence[ModelRow] = ()
        self._providers: Sequence[ProviderRow] = ()

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self.heading, id="title", markup=False)
            yield Static(sanitize.block(self._reason), id="reason", markup=False)
            yield OptionList(id="rows", markup=False)
            yield Static(self.hint, id="hint", markup=False)

    def on_mount(self) -> None:
        self._providers = self._desk.providers()
        self._fill()
        self.query_one("#rows", OptionList).focus()
        self.run_worker(self._look_for_servers(), exit_on_error=False)
        if self._wanted:
            self._provider(self._wanted)

    async def _look_for_servers(self) -> None:
        self._local = await self._desk.local_models()
        if self._local:
            self._fill()

    def _fill(self) -> None:
        options = self.query_one("#rows", OptionList)
        options.clear_options()
        for row in self._local:
            label = (
                f"{row.name}  (running on this machine{', ' + row.detail if row.detail else ''})"
            )
            options.add_option(Option(sanitize.line(label), id=f"local {row.name}"))
        for row in self._providers:
            label = f"{row.name}  ({row.detail})"
            options.add_option(Option(sanitize.line(label), id=f"provider {row.name}"))
        guide = "Look around without a model: the built-in guide, a program"
        options.add_option(Option(guide, id="guide"))
        options.highlighted = 0

    def on_option_list_option_selected(self, message: OptionList.OptionSelected) -> None:
        message.stop()
        kind, _, name = (message.option_id or "").partition(" ")
        match kind:
            case "local":
                self.dismiss(name)
            case "provider":
                self._provider(name)
            case _:
                self.dismiss(GUIDE)

    def _provider(self, name: str) -> None:
        row = next((row for row in self._providers if row.name == name), None)
        if row is not None and row.signs_in:
            self.run_worker(self._sign_in(name), exit_on_error=False)
            return

        def given(key: str | None) -> None:
            if key and key.strip():
                self.run_worker(self._keep(name, key.strip()), exit_on_error=False)

        sheet = LineSheet(
            f"Key for {name}",
            self.look,
            hint="Kept in a file only you can read, or in the system's keyring · Esc goes back",
            is_secret=True,
        )
        host_of(self).push_screen(sheet, given)

    async def _sign_in(self, name: str) -> None:
        hint = self.query_one("#hint", Static)

        def show(address: str) -> None:
            hint.update(sanitize.line(f"Sign in at {address}"))

        try:
            await self._desk.sign_in(name, show)
        except KeenError as error:
            hint.update(sanitize.block(str(error)))
            return
        await self._choose_model(name)

    async def _keep(self, name: str, key: str) -> None:
        hint = self.query_one("#hint", Static)
        try:
            await self._desk.keep_key(name, key)
        except KeenError as error:
            hint.update(sanitize.block(str(error)))
            return
        await self._choose_model(name)

    async def _choose_model(self, provider: str) -> None:
        try:
            rows = await self._desk.models(provider)
        except KeenError as error:
            self.query_one("#hint", Static).update(sanitize.block(str(error)))
            return
        if len(rows) <= 1:
            self.dismiss(rows[0].name if rows else None)
            return

        def chosen(name: str | None) -> None:
            if name:
                self.dismiss(name)

        sheet = ListSheet(
            f"A model of {provider}", [Row(r.name, r.name, r.detail) for r in rows], self.look
        )
        host_of(self).push_screen(sheet, chosen)
