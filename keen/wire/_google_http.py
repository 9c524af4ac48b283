"""The HTTP client under Google's SDK, which builds the request; keen reads the answer itself.

The SDK's own reader knows one spelling of an event stream, has no limits, and makes an object of
its own of every chunk. Imports httpx2: only to be imported where that is loaded.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import httpx2

from keen.core.messages import JsonObject
from keen.wire._transport import CONNECT_SECONDS, stop_refusal
from keen.wire.base import Endpoint

if TYPE_CHECKING:
    from google.genai import Client

_answers: Final[ContextVar[list[httpx2.Response]]] = ContextVar("_answers")
"""Where the task that is sending finds its answer, whose head has come and whose body has not."""


class HttpClient(httpx2.AsyncClient):
    """Keeps the answer for `opened` and gives the SDK an empty one in its place.

    Under an SDK client without it aiohttp would be preferred, with retries of its own.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        idle = endpoint.idle_seconds
        super().__init__(
            timeout=httpx2.Timeout(idle, connect=min(CONNECT_SECONDS, idle)),
            event_hooks={"response": [stop_refusal]},
        )

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        # Set here: the SDK's own timeout would also tell the server to end each answer by then.
        request.extensions["timeout"] = self.timeout.as_dict()
        response = await super().send(request, **options)
        _answers.get().append(response)
        return httpx2.Response(200, request=request)


@asynccontextmanager
async def opened(client: Client, body: JsonObject) -> AsyncGenerator[httpx2.Response]:
    """The answer to `body`, which goes out as encoded: the SDK's forms would respell base64."""
    from google.genai.types import (
        AutomaticFunctionCallingConfig,
        GenerateContentConfig,
        HttpOptions,
    )

    models: Any = client.aio.models  # typed in part only
    sent = {name: value for name, value in body.items() if name != "model"}
    stream = await models.generate_content_stream(
        model=str(body["model"]),
        contents="-",
        config=GenerateContentConfig(
            automatic_function_calling=AutomaticFunctionCallingConfig(disable=True),
            automatic_continuation=False,
            http_options=HttpOptions(extra_body=sent),
        ),
    )
    answers: list[httpx2.Response] = []
    try:
        token = _answers.set(answers)
        try:
            async for _ in stream:  # sends the request; the empty answer has no chunks
                pass
        finally:
            _answers.reset(token)
        yield answers[0]
    finally:
        for answer in answers:
            await answer.aclose()
