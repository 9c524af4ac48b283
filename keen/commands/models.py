"""keen models: what can be used, how large it is, what it costs, and who says so."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence

from keen import providers, sanitize
from keen.commands._place import Subparsers, add_place, place_of
from keen.commands.saying import err, out
from keen.core.models import Price
from keen.providers import Described, local_servers

_HEADINGS = ("MODEL", "WINDOW", "FROM", "OUTPUT", "$ IN / OUT PER MILLION")


def add_parser(subparsers: Subparsers) -> None:
    """`keen models [PROVIDER]`."""
    parser = subparsers.add_parser("models", help="models known and, for local servers, found")
    parser.add_argument("provider", nargs="?", default="", metavar="PROVIDER", help="only its own")
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table. Raises: ConfigError for an unknown provider or wrong settings."""
    place = place_of(arguments)
    settings = place.load().settings
    only: str = arguments.provider
    if only:
        providers.client_of(settings, only)
    servers = asyncio.run(local_servers(settings, only=only))
    models = providers.known_models(
        settings, place.environment, place.paths, provider=only, local=servers
    )
    for line in table([row(model) for model in models]):
        out(line)
    if not models and only:
        err(f"keen: {only} lists no models; any id it serves can be used.")
    elif not only:
        err("keen: a provider without a key shows one model; `keen models PROVIDER` lists all.")
    return 0


def row(model: Described) -> tuple[str, ...]:
    """One line of the table as its cells."""
    spec = model.spec
    window = f"{spec.window:,}" if spec.is_window_known else "unknown, counts as 200,000"
    return (
        sanitize.line(spec.name),
        window,
        model.window_source if spec.is_window_known else "-",
        f"{spec.max_output:,}" if spec.max_output else "-",
        _price(spec.price, is_local=spec.is_local),
    )


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned lines under their headings; nothing for no rows."""
    if not rows:
        return []
    lines = [_HEADINGS, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _price(price: Price | None, *, is_local: bool) -> str:
    if price is None:
        return "local" if is_local else "-"
    return f"{price.input:.2f} / {price.output:.2f}"
