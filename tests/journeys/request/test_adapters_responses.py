"""Real vLLM: adapters loaded through the router, and responses that workers store."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.vllm.lora import make_adapter
from tests.support.vllm.router_process import Router, Seat, text
from tests.support.vllm.worker import Worker

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]
_ENV = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "VLLM_ENABLE_RESPONSES_API_STORE": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("adapters")


@pytest.fixture(scope="module")
def router(folder: Path) -> Iterator[Router]:
    """`roundrobin`, so that each worker is asked in turn."""
    flags = ("--enable-lora", "--max-lora-rank=8")
    seats = [Seat(name, Worker(folder, name, None, _ENV, *flags)) for name in "ab"]
    found = Router(folder, seats, strategy="roundrobin")
    try:
        for seat in seats:
            seat.worker.wait_ready()
        found.start()
        yield found
        found.stop()
    finally:
        found.kill()
        for seat in seats:
            seat.worker.kill()


def send(router: Router, path: str, body: Any = None, method: str = "POST") -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{router.port}{path}",
        data,
        {"content-type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def complete(router: Router, prompt: str) -> tuple[str, int]:
    """Text and cached tokens of the adapter's answer."""
    body = {"model": "ad", "prompt": prompt, "max_tokens": 8, "temperature": 0}
    status, answer = send(router, "/v1/completions", body)
    assert status == 200, answer
    data = json.loads(answer)
    return data["choices"][0]["text"], data["usage"]["prompt_tokens_details"]["cached_tokens"] or 0


def test_adapter_replaced_under_its_path_reads_no_earlier_block(
    router: Router, folder: Path
) -> None:
    adapter, prompt = folder / "adapter", text(200)
    order = {"lora_name": "ad", "lora_path": str(make_adapter(adapter))}
    status, answer = send(router, "/v1/load_lora_adapter", order)
    assert (status, b"added successfully" in answer) == (200, True)
    before = [complete(router, prompt) for _ in range(4)]  # both workers have it
    assert [cached > 0 for _, cached in before] == [False, False, True, True]

    make_adapter(adapter, seed=2)
    assert send(router, "/v1/unload_lora_adapter", {"lora_name": "ad"})[0] == 200
    assert send(router, "/v1/completions", {"model": "ad", "prompt": "x"})[0] == 404
    assert send(router, "/v1/load_lora_adapter", order)[0] == 200
    after = [complete(router, prompt) for _ in range(4)]
    assert [cached > 0 for _, cached in after] == [False, False, True, True]
    assert len({shown for shown, _ in after}) == 1
    assert after[0][0] != before[0][0], "these weights give another text"
    _, listed = send(router, "/v1/models", method="GET")
    assert str(adapter) in [model.get("root") for model in json.loads(listed)["data"]]


def test_stored_responses_are_found_after_a_restart_of_the_router(router: Router) -> None:
    made = []
    for number in range(4):
        body = {"model": "m", "input": f"hello {number}", "max_output_tokens": 4}
        status, answer = send(router, "/v1/responses", body)
        assert status == 200, answer
        made.append(json.loads(answer)["id"])
    router.stop()
    router.start()
    for name in made:
        assert send(router, f"/v1/responses/{name}", method="GET")[0] == 200
        more = {"model": "m", "input": "more", "max_output_tokens": 4, "previous_response_id": name}
        assert send(router, "/v1/responses", more)[0] == 200
    assert send(router, "/v1/responses/resp_unknown", method="GET")[0] == 404
