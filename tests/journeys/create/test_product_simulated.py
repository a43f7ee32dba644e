"""The main job with simulated workers: create, use, edit, scale, delete, and kill each part."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Any

import psutil
import pytest

from tests.support.product.product import Product, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def spec(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "model": "smollm2-135m-instruct",
        "engine": "simulated",
        "replicas": 2,
        "cache": {"l1": {"enabled": True, "size_gib": 0.25}, "l2": {"enabled": True}},
        "routing": {"enabled": True, "strategy": "prefixaware"},
    } | changes


def create(product: Product, name: str, **changes: Any) -> dict[str, Any]:
    answer = product.api("POST", "/endpoints/", spec(name, **changes))
    assert answer.status_code == 201, answer.text
    return product.wait_phase(name, "Ready")


def delete(product: Product, name: str) -> None:
    assert product.api("DELETE", f"/endpoints/{name}/").status_code in (202, 204)
    eventually(
        f"{name} is gone", lambda: product.api("GET", f"/endpoints/{name}/").status_code == 404
    )


def test_up_prints_the_address_and_the_login(simulated: Product) -> None:
    assert simulated.password, simulated.output
    assert simulated.url in simulated.output
    assert "simulated" in simulated.output.lower()
    assert simulated.output.count(simulated.password) == 1


def test_the_printed_curl_line_works(simulated: Product) -> None:
    lines = [x for x in simulated.output.splitlines() if "curl " in x or "export " in x]
    done = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=simulated.folder,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert '"choices"' in done.stdout, done.stdout + done.stderr


def test_routers_are_compiled(simulated: Product) -> None:
    (log,) = (simulated.folder / "var/log").glob("demo-router*.log")
    assert '"compiled":true' in log.read_text()


def test_a_command_in_another_shell_uses_the_same_services(simulated: Product) -> None:
    """With a stranger's environment: neither the broker nor Prometheus is where defaults say."""
    done = subprocess.run(
        [simulated.folder / ".venv/bin/python", "manage.py", "emberline", "doctor"],
        cwd=simulated.folder,
        env=simulated.env,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert "ok    broker: responds" in done.stdout, done.stdout + done.stderr
    assert "ok    metrics source console: " in done.stdout


def test_create_use_edit_scale_delete(simulated: Product) -> None:
    create(simulated, "life")
    answer = simulated.ask("life", "Tell me a story. " * 40)
    assert answer.status_code == 200
    assert answer.headers["x-emberline-worker"].startswith("life-worker-")

    edited = simulated.api(
        "PATCH", "/endpoints/life/", {"routing": {"enabled": True, "strategy": "roundrobin"}}
    )
    assert edited.status_code == 200, edited.text
    simulated.wait_phase("life", "Ready")
    chosen = {simulated.ask("life", "Same prompt").headers["x-emberline-worker"] for _ in range(4)}
    assert len(chosen) == 2

    scaled = simulated.api("POST", "/endpoints/life/scale/", {"replicas": 3})
    assert scaled.status_code in (200, 202), scaled.text
    found = simulated.wait_phase("life", "Ready")
    assert found["ready_replicas"] == 3
    delete(simulated, "life")


def test_kvaware_on_simulated_workers(simulated: Product) -> None:
    """They also publish events and tokenize prompts for the router."""
    create(simulated, "knows", routing={"enabled": True, "strategy": "kvaware"})
    prompt = "Tell me a story of a lighthouse. " * 60

    def hit() -> bool:
        number = simulated.ask("knows", prompt).headers["x-emberline-decision"]
        decision = simulated.api("GET", f"/endpoints/knows/decisions/{number}/").json()
        return bool(decision["reason"] == "kv_hit" and decision["cached_tokens"])

    assert eventually("the cache is followed", hit)
    page = simulated.sign_in().get("/routing/endpoints/knows/")
    assert "KV cache match" in page.text
    delete(simulated, "knows")


def test_delete_leaves_nothing(simulated: Product) -> None:
    create(simulated, "brief")
    key = simulated.var / "secrets" / "endpoints" / "brief.key"
    assert key.is_file()
    delete(simulated, "brief")
    lines = simulated.command_lines().values()
    assert not [line for line in lines if any("brief" in word for word in line)]
    assert not list(simulated.var.glob("supervisor/conf.d/brief-*"))
    assert not list(simulated.var.glob("workloads/brief-*"))
    assert not key.exists()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"routing": {"enabled": True, "strategy": "magic"}}, "routing.strategy"),
        ({"cache": {"l2": {"enabled": True, "backend": "redis"}}}, "cache.l2.url"),
        ({"replicas": -1}, "replicas"),
        ({"resources": {"memory_gib": 100000}}, "resources.memory_gib"),
        ({"name": "demo"}, "name"),
    ],
)
def test_a_bad_value_is_named_and_nothing_is_created(
    simulated: Product, changes: dict[str, Any], field: str
) -> None:
    before = names(simulated)
    answer = simulated.api("POST", "/endpoints/", spec("bad") | changes)
    assert answer.status_code in (400, 409), answer.text
    body = answer.json()
    assert body["field"] == field
    assert body["remedy"]
    assert body["detail"]
    assert names(simulated) == before
    assert not list(simulated.var.glob("workloads/bad-*"))


def test_celery_killed_while_provisioning(simulated: Product) -> None:
    """One set of processes, and Ready, although the worker is killed in the middle."""
    answer = simulated.api("POST", "/endpoints/", spec("midway", replicas=2))
    assert answer.status_code == 201
    eventually(
        "a process of midway runs",
        lambda: list(simulated.var.glob("supervisor/conf.d/midway-*")),
        every_s=0.02,
    )
    dead = simulated.kill("celery-worker")
    simulated.reborn("celery-worker", dead)
    simulated.wait_phase("midway", "Ready")
    running = [
        p.info["cmdline"]
        for p in psutil.process_iter(["cmdline"])
        if any("midway" in word for word in p.info["cmdline"] or ())
        and "endpoints.simulated_worker" in (p.info["cmdline"] or ())
        and "console.processkit.launch" not in (p.info["cmdline"] or ())
    ]
    assert len(running) == 2, running
    delete(simulated, "midway")


@pytest.mark.parametrize("program", ["web", "celery-worker", "valkey", "prometheus"])
def test_a_killed_program_comes_back(simulated: Product, program: str) -> None:
    dead = simulated.kill(program)
    # The data plane does not notice: it needs none of them.
    router = eventually("the demo's url", lambda: simulated.var / "workloads" / "demo-router")
    assert router.is_dir()
    simulated.reborn(program, dead)
    simulated.wait_phase("demo", "Ready")
    assert simulated.ask("demo", "Are you there?").status_code == 200


@pytest.mark.parametrize("program", ["demo-router-0", "demo-worker-0", "cache-default-0"])
def test_a_killed_part_is_seen_and_heals(simulated: Product, program: str) -> None:
    before = reported_targets(simulated)
    dead = simulated.kill(program)
    simulated.reborn(program, dead)
    # The console looks every few seconds: its Ready may be older than the kill.
    eventually("demo answers", lambda: simulated.ask("demo", "Are you there?").status_code == 200)
    simulated.wait_phase("demo", "Ready")
    if program.startswith("demo-"):
        eventually("an event tells of it", lambda: reported_targets(simulated) - before)


def test_requests_to_other_workers_continue_while_one_is_killed(simulated: Product) -> None:
    """Killing one worker loses no request that another can serve."""
    simulated.wait_phase("demo", "Ready")
    os.kill(simulated.pid_of("demo-worker-1"), signal.SIGKILL)
    codes = [simulated.ask("demo", f"Question {n}").status_code for n in range(12)]
    assert codes == [200] * 12
    simulated.wait_phase("demo", "Ready")


def test_no_secret_in_argv_log_or_page(simulated: Product) -> None:
    secrets = {
        path.name: text
        for path in (simulated.var / "secrets").rglob("*")
        if path.is_file() and path.suffix != ".conf" and path.name != "install_id"
        for text in [path.read_text().strip()]
        if len(text) >= 12
    }
    assert {"django_secret_key", "l2_password", "valkey_password", "demo.key"} <= set(secrets)
    secrets["admin password"] = simulated.password
    lines = simulated.command_lines()
    texts = {f"argv of {pid}": " ".join(line) for pid, line in lines.items()}
    texts |= {
        path.name: path.read_text(errors="replace") for path in (simulated.var / "log").iterdir()
    }
    conf = simulated.var / "supervisor"
    texts |= {path.name: path.read_text() for path in conf.rglob("*.conf")}
    texts["endpoint as JSON"] = simulated.api("GET", "/endpoints/demo/").text
    leaks = [
        f"{name} in {where}"
        for name, secret in secrets.items()
        for where, text in texts.items()
        if secret in text
    ]
    assert not leaks


def test_nothing_listens_beyond_this_machine(simulated: Product) -> None:
    open_ports = []
    for process in simulated.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile
            open_ports += [
                f"{process.name()} {connection.laddr}"
                for connection in process.net_connections(kind="inet")
                if connection.status == psutil.CONN_LISTEN
                and connection.laddr.ip not in ("127.0.0.1", "::1")
            ]
    assert not open_ports


def test_down_and_up_again_finds_everything(simulated: Product) -> None:
    before = simulated.wait_phase("demo", "Ready")
    simulated.down()
    assert not simulated.processes()
    second = simulated.up()
    assert "assword" not in second, "the password is shown once only"
    after = simulated.wait_phase("demo", "Ready")
    assert (after["url"], after["generation"]) == (before["url"], before["generation"])
    assert simulated.ask("demo", "Back again?").status_code == 200


def names(product: Product) -> set[str]:
    listed = product.api("GET", "/endpoints/?page_size=500").json()
    return {endpoint["name"] for endpoint in listed["results"]}


def reported_targets(product: Product) -> set[tuple[str, int]]:
    """The latest events; one that is repeated is counted up."""
    listed = product.api("GET", "/endpoints/demo/events/?page_size=500").json()
    return {(event["message"], event["count"]) for event in listed["results"]}
