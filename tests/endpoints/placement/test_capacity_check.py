"""Equal capacity verdicts in the form panel, over REST and on admission."""

from __future__ import annotations

from typing import Any

import pytest

from endpoints import selectors
from endpoints.models import Endpoint
from tests.endpoints.fit.test_requirements import BASE
from tests.support.people import cast, client_of

pytestmark = pytest.mark.django_db
URL = "/api/v1/fit/"


def ask(data: Any, role: str = "alice") -> Any:
    client = client_of(getattr(cast(), role))
    return client.post(URL, data, content_type="application/json")


def test_over_rest_with_numbers_and_formulas() -> None:
    answer = ask(BASE)
    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert found["params"] == 8_030_261_248
    (judged,) = found["judged"]
    assert judged["verdict"] == "does_not_fit"
    assert judged["findings"][0]["blocks"] is True
    kv = next(line for line in judged["lines"] if line["name"].startswith("KV per token"))
    assert (kv["value"], kv["formula"]) == (131_072, "2 x 32 layers x 8 KV heads x 128")


@pytest.mark.parametrize("model", ["assistant", BASE["model"]])
def test_weights_of_another_name_are_checked(model: str) -> None:
    source = {"type": "huggingface", "location": "meta-llama/Llama-3.1-70B-Instruct"}
    found = ask({**BASE, "model": model, "source": source}).json()
    assert found["params"] == 70_553_706_496


def test_routers_on_a_cluster_are_in_the_check_with_their_price() -> None:
    data = {
        **BASE,
        "placement": {"cluster": "east", "instance_types": ["ml.g5.8xlarge"]},
        "router": {"replicas": 4, "cpus": 2, "memory_gib": 1},
    }
    client = client_of(cast().alice)
    found = client.post(URL, data, content_type="application/json").json()
    price = found["judged"][0]["price_usd_hour"]
    assert found["routers"]["replicas"] == 4
    assert (found["routers"]["cpus"], found["routers"]["memory_bytes"]) == (8, 4 * 2**30)
    assert found["routers"]["usd_hour"] == pytest.approx(price * 8 / 32)
    local = {key: value for key, value in data.items() if key not in ("placement", "router")}
    answer = client.post(URL, local, content_type="application/json")
    assert answer.json()["routers"] is None


@pytest.mark.parametrize("data", [[1], {"model": 7}, {**BASE, "colour": "red"}])
def test_invalid_input_is_reported_at_its_field(data: Any) -> None:
    answer = ask(data)
    assert answer.status_code == 400
    assert answer.json()["detail"]


def test_name_may_be_omitted() -> None:
    data = {key: value for key, value in BASE.items() if key != "name"}
    assert ask(data).status_code == 200


def test_panel_responds_to_typed_values() -> None:
    people = cast()
    client = client_of(people.alice)
    typed = {"model": "Qwen/Qwen3-8B", "engine": "vllm", "resources.memory_gib": "4"}
    page = client.post("/endpoints/new/look/", typed).content.decode()
    assert "8.19B parameters" in page
    assert "Does not fit" in page
    assert "GiB or more" in page, "the remedy"
    half = client.post("/endpoints/new/look/", {**typed, "resources.memory_gib": "4x"})
    assert half.status_code == 200, "half a number is no crash"
    assert "need no model memory" in client.post("/endpoints/new/look/", {}).content.decode()
    assert client_of(people.charlie).post("/endpoints/new/look/", typed).status_code == 403
    assert "new/look/" in client.get("/endpoints/new/").content.decode()


def test_admission_uses_the_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    from endpoints.placement import capacity_check, spec_context
    from endpoints.spec.endpoint_spec import parse
    from endpoints.spec.rules import violations

    assert spec_context.context().misfits is capacity_check.refusals
    found = violations(parse(BASE), spec_context.context())
    assert "context_does_not_fit" in [error.code for error in found]


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"model": "meta-llama/Llama-3.1-8B-Instruct"}, 2 * 2**30 // 131_072),
        ({"model": "some/model-of-unknown-shape"}, 0),
        ({"engine": "simulated"}, 2 * 2**30 // 46_080),
        ({"cache": {"l1": {"enabled": False}}}, 0),
    ],
)
def test_size_of_l1_in_tokens_is_a_fact_for_routers(
    demo_endpoint: Endpoint, changes: dict[str, Any], tokens: int
) -> None:
    cache = {"l1": {"enabled": True, "size_gib": 2.0}}
    shown = {"cache": cache, "resources": BASE["resources"], "engine": "vllm"}
    demo_endpoint.spec |= {**shown, **changes}
    demo_endpoint.__dict__.pop("parsed", None)
    assert selectors.facts(demo_endpoint).l1_tokens == tokens
