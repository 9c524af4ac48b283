"""The baselines: the same request with nothing of keen around it.

bare.py sdk DIALECT URL, the vendor's SDK reading one stream; bare.py socket DIALECT URL, a socket
and json reading it; bare.py rounds DIALECT URL, tool rounds over a socket. Files of this program
are not keen's modules: what it imports is what it measures.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
}
MODELS = {
    "chat": "fake-chat-1",
    "responses": "gpt-5-fake",
    "anthropic": "claude-sonnet-4-fake",
    "google": "gemini-3-fake",
    "bedrock": "anthropic.claude-sonnet-4-fake-v1:0",
}
QUESTION = [{"role": "user", "content": "Say something."}]


async def sdk_chat(url: str) -> None:
    import openai

    client = openai.AsyncOpenAI(api_key="x", base_url=f"{url}/v1", max_retries=0)
    stream = await client.chat.completions.create(
        model=MODELS["chat"], messages=QUESTION, stream=True
    )
    text = ""
    async for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
    print(len(text))


async def sdk_responses(url: str) -> None:
    import openai

    client = openai.AsyncOpenAI(api_key="x", base_url=f"{url}/v1", max_retries=0)
    stream = await client.responses.create(
        model=MODELS["responses"], input="Say something.", stream=True
    )
    text = ""
    async for event in stream:
        if event.type == "response.output_text.delta":
            text += event.delta
    print(len(text))


async def sdk_anthropic(url: str) -> None:
    import anthropic

    client = anthropic.AsyncAnthropic(api_key="x", base_url=url, max_retries=0)
    stream = await client.messages.create(
        model=MODELS["anthropic"], max_tokens=8_192, messages=QUESTION, stream=True
    )
    text = ""
    async for event in stream:
        if event.type == "content_block_delta" and event.delta.type == "text_delta":
            text += event.delta.text
    print(len(text))


async def sdk_google(url: str) -> None:
    from google import genai
    from google.genai import types

    options = types.HttpOptions(base_url=url, api_version="v1beta")
    client = genai.Client(api_key="x", http_options=options)
    stream = await client.aio.models.generate_content_stream(
        model=MODELS["google"], contents="Say something."
    )
    text = ""
    async for chunk in stream:
        text += chunk.text or ""
    print(len(text))


async def sdk_bedrock(url: str) -> None:
    import boto3
    from botocore.config import Config

    client = boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(retries={"total_max_attempts": 1, "mode": "standard"}),
    )
    reply = client.converse_stream(
        modelId=MODELS["bedrock"],
        messages=[{"role": "user", "content": [{"text": "Say something."}]}],
    )
    text = ""
    for event in reply["stream"]:
        text += event.get("contentBlockDelta", {}).get("delta", {}).get("text", "")
    print(len(text))


SDKS = {
    "chat": sdk_chat,
    "responses": sdk_responses,
    "anthropic": sdk_anthropic,
    "google": sdk_google,
    "bedrock": sdk_bedrock,
}


class Connection:
    """One kept connection to the server; a request's events come as JSON."""

    def __init__(self, url: str, path: str) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.file = self.socket.makefile("rb")
        self.path = path

    def ask(self, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        data = json.dumps(body).encode()
        head = f"POST {self.path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n"
        self.socket.sendall(head.encode() + data)
        while self.file.readline() not in (b"\r\n", b""):
            pass
        rest = b""
        while size := int(self.file.readline(), 16):
            *lines, rest = (rest + self.file.read(size)).split(b"\n")
            self.file.readline()
            for line in lines:
                if line.startswith(b"data: ") and line != b"data: [DONE]":
                    yield json.loads(line[6:])
        self.file.readline()


def text_of(dialect: str, event: dict[str, Any]) -> str:
    if dialect == "chat":
        choices = event.get("choices")
        return choices[0]["delta"].get("content") or "" if choices else ""
    if dialect == "responses":
        return event["delta"] if event["type"] == "response.output_text.delta" else ""
    return event["delta"].get("text", "") if event["type"] == "content_block_delta" else ""


def read_stream(dialect: str, url: str) -> None:
    body = {"model": MODELS[dialect], "messages": QUESTION, "stream": True}
    connection = Connection(url, PATHS[dialect])
    print(len("".join(text_of(dialect, event) for event in connection.ask(body))))


def chat_call(events: Iterator[dict[str, Any]]) -> tuple[str, str]:
    call_id, arguments = "", ""
    for event in events:
        for choice in event.get("choices", ()):
            for call in choice["delta"].get("tool_calls") or ():
                call_id = call.get("id") or call_id
                arguments += call["function"].get("arguments", "")
    return call_id, arguments


def anthropic_call(events: Iterator[dict[str, Any]]) -> tuple[str, str]:
    call_id, arguments = "", ""
    for event in events:
        if event["type"] == "content_block_start":
            call_id = event["content_block"].get("id", call_id)
        elif event["type"] == "content_block_delta":
            arguments += event["delta"].get("partial_json", "")
    return call_id, arguments


def chat_round(call_id: str, arguments: str, output: str) -> list[dict[str, Any]]:
    function = {"name": "read_file", "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


def anthropic_round(call_id: str, arguments: str, output: str) -> list[dict[str, Any]]:
    call = {"type": "tool_use", "id": call_id, "name": "read_file", "input": json.loads(arguments)}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": output}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def tool_rounds(dialect: str, url: str) -> None:
    call_of = chat_call if dialect == "chat" else anthropic_call
    round_of = chat_round if dialect == "chat" else anthropic_round
    connection = Connection(url, PATHS[dialect])
    messages: list[dict[str, Any]] = [*QUESTION]
    body = {"model": MODELS[dialect], "stream": True, "tools": [{"name": "read_file"}]}
    done = 0
    while True:
        call_id, arguments = call_of(connection.ask(body | {"messages": messages}))
        if not arguments:
            break
        output = Path(json.loads(arguments)["path"]).read_text()
        messages += round_of(call_id, arguments, output)
        done += 1
    print(done)


def main() -> None:
    what, dialect, url = sys.argv[1:]
    if what == "sdk":
        asyncio.run(SDKS[dialect](url))
    elif what == "socket":
        read_stream(dialect, url)
    else:
        tool_rounds(dialect, url)


if __name__ == "__main__":
    main()
