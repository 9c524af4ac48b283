"""The question after the sandbox stopped a command: what a person may open, and what they said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from keen.core.events import Question
from keen.tools._launch import Appeal
from keen.tools.base import Context
from keen.tools.guard import printable
from keen.tools.permission.openings import OPEN_NETWORK, is_barred, place_to_open
from keen.tools.permission.policy import Policy
from keen.tools.sandbox.denial import Denied

Reach: TypeAlias = Literal["session", "project", "once", "no"]

_OUTSIDE: Final = "Run this one command outside the sandbox"
_NO: Final = "No"
_SHOWN_LINES: Final = 4
_SHOWN_CHARACTERS: Final = 300
_LEFT_SO: Final = "[sandbox] The person was asked and left it so. Go on without it."


@dataclass(frozen=True, slots=True)
class _Offer:
    """One row: what it opens, as rules, and for how long."""

    row: str
    reach: Reach
    opens: tuple[str, ...] = ()


async def ask_person(
    command: str, stopped: Sequence[Denied], policy: Policy, context: Context
) -> Appeal:
    """Ask what a stopped command may do, and open that.

    Nobody is asked in yolo, where nobody can be, of anything that is protected or hidden, and of
    what a person left so before.
    """
    if not stopped or not policy.is_interactive or policy.mode == "yolo":
        return Appeal()
    offers = _offers(stopped, policy, context)
    key = "; ".join(sorted(each.words for each in stopped))
    if not offers or policy.has_declined(key):
        return Appeal()
    rows = tuple(offer.row for offer in offers)
    answers = await context.ask((Question(_text(command, stopped), rows),))
    answer = answers[0] if answers else _NO
    chosen = next((offer for offer in offers if offer.row == answer), None)
    if chosen is None:
        return Appeal(said=f"[sandbox] The person did not allow it and said: {answer}")
    if chosen.reach == "no":
        policy.decline(key)
        return Appeal(said=_LEFT_SO)
    policy.open(chosen.opens, is_kept=chosen.reach == "project")
    needs = "outside" if chosen.reach == "once" else ""
    said = f"[sandbox] The person was asked and chose: {chosen.row}. This is the second run."
    return Appeal(is_again=True, needs=needs, said=said)


def _offers(stopped: Sequence[Denied], policy: Policy, context: Context) -> list[_Offer]:
    """The rows of the question, none where there is nothing to give."""
    kinds = {each.kind for each in stopped}
    if not kinds <= {"outside", "network"}:
        return []
    if "network" in kinds and not policy.openings.may_open_network:
        return []
    tried = [each.path for each in stopped if each.path is not None]
    if any(is_barred(path, policy.rules, policy.guard, context) for path in tried):
        return []
    offers: list[_Offer] = []
    if policy.mode != "plan" and (places := _places(stopped, policy, context)):
        named = ", ".join(printable(str(place)) for place in places)
        rules = (f"sandbox(write:{place})" for place in places)
        offers += _both(f"Allow writing to {named}", rules)
    if "network" in kinds:
        offers += _both("Allow the network", (OPEN_NETWORK,))
    if policy.mode != "plan":
        offers.append(_Offer(_OUTSIDE, "once"))
    # First, and so the row that a stray Enter takes.
    return [_Offer(_NO, "no"), *offers] if offers else []


def _both(what: str, rules: Iterable[str]) -> list[_Offer]:
    opens = tuple(rules)
    return [
        _Offer(f"{what}, in this session", "session", opens),
        _Offer(f"{what}, in this project (saved)", "project", opens),
    ]


def _places(stopped: Sequence[Denied], policy: Policy, context: Context) -> list[Path]:
    """What must be open for every write that was stopped; nothing where one may not be."""
    found: dict[Path, None] = {}
    for each in stopped:
        if each.kind != "outside":
            continue
        if each.path is None:
            return []
        place = place_to_open(each.path, policy.rules, policy.guard, context)
        if place is None or place in policy.openings.writable:
            return []
        found[place] = None
    return list(found)


def _text(command: str, stopped: Sequence[Denied]) -> str:
    lines = command[:_SHOWN_CHARACTERS].splitlines()
    shown = "\n".join(lines[:_SHOWN_LINES])
    if len(shown) < len(command.rstrip("\n")):
        shown += " …"
    what = "; ".join(each.words for each in stopped)
    return f"The sandbox stopped this command: {what}.\n{shown}\nMay it do so? It is run again."
