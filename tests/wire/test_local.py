from __future__ import annotations

import asyncio
import socket

import pytest

from keen.wire.local import LocalModel, ask, find, usual_addresses
from tests.loopback_json import HANG, Asked, JsonServer, Route

OLLAMA: dict[str, Route] = {
    "/api/tags": {
        "models": [
            {"name": "qwen3:8b", "model": "qwen3:8b"},
            {"name": "tuned:latest", "model": "tuned:latest"},
            {"name": "embed:1", "model": "embed:1"},
        ]
    },
    "/api/ps": {"models": [{"model": "qwen3:8b", "context_length": 16_384}]},
}


def show(asked: Asked) -> object:
    match asked.json["model"]:
        case "tuned:latest":
            return {
                "parameters": "stop <x>\nnum_ctx                        8192",
                "model_info": {"general.architecture": "llama", "llama.context_length": 131_072},
                "capabilities": ["completion", "tools"],
            }
        case "embed:1":
            return {"capabilities": ["embedding"]}
        case _:
            return {
                "model_info": {"qwen3.context_length": 40_960},
                "capabilities": ["completion", "vision", "thinking"],
            }


LLAMA_CPP: dict[str, Route] = {
    "/v1/models": {"data": [{"id": "model.gguf", "meta": {"n_ctx_train": 131_072}}]},
    "/props": {"default_generation_settings": {"n_ctx": 24_576}, "modalities": {"vision": True}},
}

LM_STUDIO: dict[str, Route] = {
    "/api/v0/models": {
        "data": [
            {"id": "idle", "type": "llm", "state": "not-loaded", "max_context_length": 131_072},
            {"id": "text-embed", "type": "embeddings", "max_context_length": 2_048},
            {
                "id": "loaded",
                "type": "vlm",
                "max_context_length": 131_072,
                "loaded_context_length": 12_288,
            },
        ]
    }
}

VLLM: dict[str, Route] = {
    "/v1/models": {"data": [{"id": "org/model", "owned_by": "vllm", "max_model_len": 32_768}]}
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def test_all_four_servers_are_found_with_their_true_windows() -> None:
    async with (
        JsonServer({**OLLAMA, "/api/show": show}) as ollama,
        JsonServer(LLAMA_CPP) as llama_cpp,
        JsonServer(LM_STUDIO) as lm_studio,
        JsonServer(VLLM) as vllm,
    ):
        addresses = {
            "ollama": f"{ollama.url}/v1",
            "llamacpp": f"{llama_cpp.url}/v1",
            "lmstudio": f"{lm_studio.url}/v1",
            "vllm": f"{vllm.url}/v1",
        }
        servers = await find(addresses, seconds=5)

    assert {server.provider: server.models for server in servers} == {
        "ollama": (
            LocalModel("qwen3:8b", 16_384, is_live=True, images=True, reasoning=True),
            LocalModel("tuned:latest", 8_192, is_live=True, images=False, reasoning=False),
        ),
        "llamacpp": (LocalModel("model.gguf", 24_576, is_live=True, images=True),),
        "lmstudio": (
            LocalModel("loaded", 12_288, is_live=True, images=True),
            LocalModel("idle", 131_072, is_live=False, images=False),
        ),
        "vllm": (LocalModel("org/model", 32_768, is_live=True),),
    }
    assert [server.base_url for server in servers] == list(addresses.values())


async def test_nothing_is_found_where_nothing_listens() -> None:
    assert await find({"ollama": f"http://127.0.0.1:{free_port()}/v1"}) == ()


async def test_a_server_that_hangs_does_not_hold_up_the_others() -> None:
    async with (
        JsonServer({"/api/tags": HANG, "/api/ps": HANG}) as stuck,
        JsonServer(VLLM) as vllm,
    ):
        servers = await find({"ollama": f"{stuck.url}/v1", "vllm": f"{vllm.url}/v1"}, seconds=0.5)

    assert [server.provider for server in servers] == ["vllm"]


STRANGERS: list[dict[str, Route]] = [
    {"/v1/models": "<html>hello</html>", "/props": "nothing"},
    {"/v1/models": {"data": [{"id": "gpt"}]}},
    {"/v1/models": {"data": "no list"}},
    {"/v1/models": 500},
    {},
]


@pytest.mark.parametrize("routes", STRANGERS)
async def test_another_program_on_the_port_is_no_model_server(routes: dict[str, Route]) -> None:
    async with JsonServer(routes) as server:
        for provider in ("ollama", "llamacpp", "lmstudio", "vllm"):
            assert await find({provider: f"{server.url}/v1"}, seconds=5) == ()


async def test_bytes_without_end_are_not_read_to_the_end() -> None:
    async with JsonServer({"/v1/models": "[" + "1," * 6_000_000 + "1]"}) as server:
        assert await find({"vllm": f"{server.url}/v1"}, seconds=5) == ()


async def test_a_name_with_control_characters_is_left_out() -> None:
    rows = [{"id": "a\x1b[2J", "max_model_len": 1}, {"id": "fine", "max_model_len": 4_096}]
    async with JsonServer({"/v1/models": {"data": rows}}) as server:
        (found,) = await find({"vllm": f"{server.url}/v1"}, seconds=5)

    assert [model.id for model in found.models] == ["fine"]


async def test_a_search_sends_no_key() -> None:
    async with JsonServer(VLLM) as server:
        await find({"vllm": f"{server.url}/v1"}, seconds=5)

    assert server.asked
    assert all("authorization" not in one.headers for one in server.asked)


async def test_a_proxy_is_not_asked_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    async with JsonServer(VLLM) as server, JsonServer({}) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        found = await find({"vllm": f"{server.url}/v1"}, seconds=5)

    assert found
    assert proxy.asked == []


async def test_ollama_loads_the_model_to_learn_its_window() -> None:
    running: list[object] = []

    def load(asked: Asked) -> object:
        running.append({"model": asked.json["model"], "context_length": 4_096})
        return {"done": True}

    def ps(asked: Asked) -> object:
        return {"models": running}

    routes = {**OLLAMA, "/api/show": show, "/api/ps": ps, "/api/generate": load}
    async with JsonServer(routes) as server:
        before = await ask("ollama", f"{server.url}/v1")
        after = await ask("ollama", f"{server.url}/v1", model="qwen3:8b")

    assert before is not None
    assert after is not None
    assert before.models[0] == LocalModel(
        "qwen3:8b", 40_960, is_live=False, images=True, reasoning=True
    )
    assert (after.models[0].window, after.models[0].is_live) == (4_096, True)


async def test_a_server_of_the_users_own_is_recognised_by_its_answers() -> None:
    for routes, window in ((LLAMA_CPP, 24_576), (VLLM, 32_768), (LM_STUDIO, 12_288)):
        async with JsonServer(routes) as server:
            found = await ask("mine", f"{server.url}/v1", key="secret")

        assert found is not None
        assert found.models[0].window == window
        assert server.asked[0].headers["authorization"] == "Bearer secret"

    async with JsonServer({"/v1/models": {"data": [{"id": "plain"}]}}) as server:
        found = await ask("mine", f"{server.url}/v1")

    assert found is not None
    assert found.models == (LocalModel("plain"),)


async def test_a_server_that_is_gone_is_none() -> None:
    assert await ask("vllm", f"http://127.0.0.1:{free_port()}/v1") is None


async def test_a_search_can_be_cancelled() -> None:
    async with JsonServer({"/v1/models": HANG}) as server:
        search = asyncio.create_task(find({"vllm": f"{server.url}/v1"}, seconds=60))
        await server.arrived.wait()
        search.cancel()
        done, _ = await asyncio.wait([search], timeout=5)

    assert done
    assert search.cancelled()


def test_the_usual_places_are_on_loopback() -> None:
    assert usual_addresses() == {
        "ollama": "http://127.0.0.1:11434/v1",
        "llamacpp": "http://127.0.0.1:8080/v1",
        "lmstudio": "http://127.0.0.1:1234/v1",
        "vllm": "http://127.0.0.1:8000/v1",
    }
