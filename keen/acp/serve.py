"""One connection from its first message to its end, over descriptors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from acp.agent import AgentSideConnection

from keen.acp.agent import KeenAgent
from keen.acp.stdio import Stdio
from keen.agent.stream import finished
from keen.headless.run import Interrupts
from keen.options import Options


async def serve(options: Options, environment: Mapping[str, str], source: int, sink: int) -> int:
    """Answer a client until it leaves or a signal comes, then save everything.

    Returns 128 and the number of the signal, or 0 for the end of the input.
    """
    transport = Stdio(source, sink)
    agent = KeenAgent(options, environment)
    with Interrupts(transport.end) as interrupts:
        connection = AgentSideConnection(
            agent, transport, listening=False, use_unstable_protocol=True
        )
        try:
            await connection.listen()
        finally:
            closing = asyncio.ensure_future(agent.aclose())
            try:
                await finished(closing)
            finally:
                with contextlib.suppress(ConnectionError):
                    await connection.close()
        closing.result()
    return interrupts.code
