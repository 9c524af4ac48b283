"""What a person may choose in the editor: the mode, the model, how hard it thinks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from acp.schema import (
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

from keen.core.models import EFFORTS, Effort
from keen.engine import Engine
from keen.tools.permission import Mode

ConfigOptions: TypeAlias = list[SessionConfigOptionSelect | SessionConfigOptionBoolean]

MODE: Final = "mode"
MODEL: Final = "model"
THINKING: Final = "thinking"
_BY_ITSELF: Final = "auto"
_MODES: Final[tuple[tuple[Mode, str, str], ...]] = (
    ("plan", "Plan", "Reads and plans; changes nothing."),
    ("build", "Build", "Works in this folder; asks for everything else."),
    ("yolo", "Yolo", "Asks for nothing but what is protected."),
)


def modes(engine: Engine) -> SessionModeState:
    return SessionModeState(
        current_mode_id=engine.conversation.toolbox.policy.mode,
        available_modes=[
            SessionMode(id=mode, name=name, description=words)
            for mode, name, words in _MODES
            if mode in allowed_modes(engine)
        ],
    )


def allowed_modes(engine: Engine) -> tuple[Mode, ...]:
    """yolo only where a flag or the person's own settings started with it."""
    is_wild = engine.settings.permissions.mode == "yolo"
    return ("plan", "build", "yolo") if is_wild else ("plan", "build")


def mode_named(engine: Engine, name: str) -> Mode | None:
    return next((mode for mode in allowed_modes(engine) if mode == name), None)


def config_options(engine: Engine, models: Sequence[str]) -> ConfigOptions:
    """Mode, model and thinking as selections. `models`: names that may be chosen."""
    sampler = engine.conversation.sampler
    names = dict.fromkeys((engine.model, *models))
    state = modes(engine)
    found: ConfigOptions = [
        _select(
            MODE,
            "Mode",
            state.current_mode_id,
            [(one.id, one.name, one.description) for one in state.available_modes],
        ),
        _select(MODEL, "Model", engine.model, [(name, name, None) for name in names]),
    ]
    if sampler.model.reasoning:
        efforts = [(word, word.capitalize(), None) for word in EFFORTS]
        rows = [(_BY_ITSELF, "The model decides", None), *efforts]
        found.append(_select(THINKING, "Thinking", sampler.effort or _BY_ITSELF, rows))
    return found


def is_effort(value: str) -> bool:
    return value == _BY_ITSELF or value in EFFORTS


def effort_named(value: str) -> Effort | None:
    """The effort of a value, None for letting the model decide."""
    return next((word for word in EFFORTS if word == value), None)


def _select(
    name: str, label: str, value: str, rows: Sequence[tuple[str, str, str | None]]
) -> SessionConfigOptionSelect:
    return SessionConfigOptionSelect(
        type="select",
        id=name,
        name=label,
        category="thought_level" if name == THINKING else "mode" if name == MODE else "model",
        current_value=value,
        options=[
            SessionConfigSelectOption(value=one, name=shown, description=words)
            for one, shown, words in rows
        ],
    )
