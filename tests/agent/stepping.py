"""Counts the steps of every task below a run, and does something at one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Action: TypeAlias = Callable[[], None]
Running: TypeAlias = asyncio.Task[Any]

_counting: ContextVar[Steps | None] = ContextVar("counting", default=None)


@dataclass
class Steps:
    """The steps of one run: each time a task of it is resumed, whatever the task.

    From `begin` on they are counted; before step `at` is taken, `act` is called. Tasks inherit
    their run by context, so that a server in the same loop is not counted.
    """

    at: int
    act: Action
    taken: int = -1
    tasks: list[Running] = field(default_factory=list[Running])

    def begin(self) -> None:
        self.taken = max(0, self.taken)

    @property
    def has_acted(self) -> bool:
        return self.taken > self.at

    def step(self) -> None:
        if self.taken < 0:
            return
        self.taken += 1
        if self.taken == self.at + 1:
            self.act()

    def start(self, run: Coroutine[Any, Any, None]) -> Running:
        """A task that is counted, with all that it starts."""
        token = _counting.set(self)
        try:
            return asyncio.get_running_loop().create_task(run)
        finally:
            _counting.reset(token)

    @property
    def left_over(self) -> list[Running]:
        return [task for task in self.tasks if not task.done()]


@dataclass(frozen=True)
class _Stepped(Awaitable[Any]):
    inner: Coroutine[Any, Any, Any]
    steps: Steps

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        while True:
            self.steps.step()
            try:
                waited = self.inner.send(None) if error is None else self.inner.throw(error)
            except StopIteration as stop:
                return stop.value
            error = None
            try:
                yield waited
            except GeneratorExit:
                self.inner.close()
                raise
            except BaseException as thrown:
                error = thrown


def count_tasks() -> None:
    """Count the runs of the running loop from now on."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(_counted)  # pyright: ignore[reportArgumentType]


def _counted(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
) -> Running:
    steps = _counting.get()
    if steps is None:
        return asyncio.Task(coroutine, loop=loop, **options)

    async def stepped() -> Any:
        return await _Stepped(coroutine, steps)

    task = asyncio.Task(stepped(), loop=loop, **options)
    steps.tasks.append(task)
    return task
