"""Third-party clients, unchanged: redis-cli, redis-benchmark, valkey-glide, LMCache.

redis-py is in test_values_redis_contract.py. Missing programs are reported:
`python -m console.launcher test-tools` fetches all of them except torch (`make vllm`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cachetier.engine.conftest import Start
from tests.support.cachenode import ROOT, CacheNode
from tests.support.certificates import authority

MIB = 1024 * 1024
PUTS = "emberline_l2_operations_total"
CLIENTS = ROOT / ".venv-clients"
FETCH = "`python -m console.launcher test-tools` fetches it"


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"NO {name} HERE: {FETCH}")
    return found


def run(argv: list[str], **env: str) -> str:
    done = subprocess.run(
        argv, env={**os.environ, **env}, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, (argv, done.stdout[-2000:], done.stderr[-2000:])
    return (done.stdout + done.stderr).strip()


def cli(node: CacheNode, *words: str) -> str:
    argv = [tool("redis-cli"), "-p", str(node.port), *words]
    return run(argv, **({"REDISCLI_AUTH": node.password} if node.password else {}))


def test_redis_cli(start: Start) -> None:
    node = start(password="open sesame")
    assert cli(node, "PING") == "PONG"
    assert cli(node, "SET", "k", "v", "EX", "100") == "OK"
    assert cli(node, "-3", "GET", "k") == "v"
    assert cli(node, "--scan") == "k"
    assert "used_memory:" in cli(node, "INFO", "memory")
    assert cli(node, "CONFIG", "GET", "maxmemory").split() == ["maxmemory", str(64 * MIB)]
    assert cli(node, "COMMAND", "DOCS", "get").startswith("get")
    assert "unknown command" in cli(node, "LPUSH", "k", "v")
    assert "Biggest string found" in cli(node, "--bigkeys")
    assert "Biggest string found" in cli(node, "--memkeys")


def test_redis_cli_over_tls(start: Start, tmp_path: Path) -> None:
    cert, key = authority().write(tmp_path, "localhost", "127.0.0.1")
    ca = authority().write_ca(tmp_path / "ca.pem")
    node = start("--tls-cert", str(cert), "--tls-key", str(key), "--tls-client-ca", str(ca))
    shown = ("--tls", "--cacert", str(ca), "--cert", str(cert), "--key", str(key))
    assert cli(node, *shown, "SET", "k", "v") == "OK"


@pytest.mark.parametrize("more", [(), ("-P", "16"), ("--threads", "2"), ("-3",), ("-r", "50")])
def test_redis_benchmark(start: Start, more: tuple[str, ...]) -> None:
    node = start()
    argv = [tool("redis-benchmark"), "-p", str(node.port), "-n", "200", "-c", "4", "-q", *more]
    content = run([*argv, "-t", "ping,set,get", "-d", "20000"])
    assert "GET: " in content
    assert "WARNING" not in content
    assert node.metric(PUTS, op="put", result="ok") >= 200
    assert sum(node.metric(PUTS, op="get", result=one) for one in ("hit", "miss")) >= 200


@pytest.mark.parametrize("tls", [False, True])
def test_valkey_glide(start: Start, tmp_path: Path, tls: bool) -> None:
    python = CLIENTS / "bin" / "python"
    if not python.is_file():
        pytest.skip(f"NO valkey-glide HERE: {FETCH}")
    cert, key = authority().write(tmp_path, "localhost")
    ca = authority().write_ca(tmp_path / "ca.pem")
    flags = ("--tls-cert", str(cert), "--tls-key", str(key)) if tls else ()
    node = start(*flags, "--admin-plain") if tls else start(password="open sesame")
    driver = str(ROOT / "tests" / "support" / "glide_driver.py")
    more = [node.password, str(ca)] if tls else [node.password]
    text = run([str(python), driver, str(node.port), *more])
    assert text.splitlines()[-2:] == ["ok RESP2", "ok RESP3"]


@pytest.mark.vllm
def test_lmcache(start: Start) -> None:
    """The published package's own connectors, redis:// (redis-py) and resp:// (its C++ client)."""
    named = os.environ.get("EMBERLINE_VLLM_PYTHON", "")
    python = Path(named) if named else ROOT / ".venv-vllm" / "bin" / "python"
    packages = list(CLIENTS.glob("lib/python*/site-packages"))
    if not python.is_file() or not packages:
        pytest.skip(f"NO torch OR NO lmcache HERE: `make vllm`, and {FETCH}")
    nodes = [start(memory="128MiB", password="open-sesame") for _ in range(2)]
    urls = [f"redis://:open-sesame@127.0.0.1:{nodes[0].port}", f"resp://127.0.0.1:{nodes[1].port}"]
    driver = str(ROOT / "tests" / "support" / "lmcache_driver.py")
    text = run(
        # -P: tests/support, the folder of the script, has a package named vllm.
        [str(python), "-P", driver, str(packages[0]), *urls],
        LMCACHE_RESP_PASSWORD="open-sesame",
        CUDA_VISIBLE_DEVICES="",
    )
    values = 11 * 4 * 2 * 256 * 3 * 64 * 4
    assert f"ok redis {values}" in text
    assert f"ok resp {values}" in text
    for node in nodes:
        assert node.metric("emberline_l2_read_bytes_total") >= values
