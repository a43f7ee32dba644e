"""The whole product, started by `make up` in a clean checkout."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from tests.support.ports import free_port

ROOT = Path(__file__).resolve().parents[3]
Found = TypeVar("Found")
MARK = "EMBERLINE_SUPERVISED"


def eventually(
    what: str, probe: Callable[[], Found | None], deadline_s: float = 90.0, every_s: float = 0.5
) -> Found:
    """Return the probe's first truthy result; fail with its last result or error at the
    deadline."""
    end = time.monotonic() + deadline_s
    last: object = None
    while time.monotonic() < end:
        try:
            last = probe()
        except (httpx.HTTPError, AssertionError, LookupError, StopIteration, OSError) as error:
            last = repr(error)
        else:
            if last:
                return last  # type: ignore[return-value]
        time.sleep(every_s)
    raise AssertionError(f"{what}: not within {deadline_s:.0f} s; last seen: {last!r:.800}")


def checkout(target: Path) -> Path:
    """Copy the tracked files of this working tree, as a clone would have them, and the product's
    bytecode: several processes that start at once would each compile the same modules."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    for name in filter(None, names):
        source = ROOT / name
        if source.is_file():
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)  # with its time, by which Python finds bytecode valid
            cached = Path(importlib.util.cache_from_source(str(source)))
            if name.endswith(".py") and cached.is_file():
                (copy.parent / "__pycache__").mkdir(exist_ok=True)
                shutil.copy2(cached, copy.parent / "__pycache__" / cached.name)
    return target


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


class Product:
    """Checkout and its running processes."""

    def __init__(self, folder: Path, workers: str) -> None:
        self.folder = folder
        self.workers = workers
        self.port = free_port()
        self.password = ""
        self.output = ""
        self.token = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def var(self) -> Path:
        return self.folder / "var"

    @property
    def env(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EMBERLINE_", "DJANGO_", "PYTEST_", "MAKE", "MFLAGS"))
            and name not in ("VIRTUAL_ENV", "REDIS_URL", "PROMETHEUS_URL", "DATABASE_URL")
        }
        # Tests count the requests at workers.
        own = {"EMBERLINE_PORT": str(self.port), "EMBERLINE_AUTO_CALIBRATION": "0"}
        return kept | {"WORKERS": self.workers, **own}

    def make(self, *words: str, timeout_s: float = 900) -> str:
        done = subprocess.run(
            ["make", *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
        assert done.returncode == 0, f"make {' '.join(words)}:\n{done.stdout[-6000:]}"
        return done.stdout

    def lend_vllm(self) -> None:
        """Reuse this tree's vLLM environment, which takes a minute to build."""
        for made in (".venv-vllm", "var/models"):
            if (ROOT / made).is_dir():
                place = self.folder / made
                place.parent.mkdir(exist_ok=True)
                place.symlink_to(ROOT / made)

    def up(self) -> str:
        self.output = self.make("up", "DETACH=1")
        shown = re.search(r"[Pp]assword:?\s+(\S+)", self.output)
        if shown:
            self.password = shown.group(1)
        return self.output

    def down(self) -> str:
        return self.make("down", timeout_s=180)

    def manage(self, *words: str, code: int = 0) -> str:
        """Run `manage.py` with the environment of the product's processes; check the exit code."""
        facts = self.environment_of("web")
        done = subprocess.run(
            [self.folder / ".venv/bin/python", "manage.py", *words],
            cwd=self.folder,
            env=self.env | {k: v for k, v in facts.items() if k.startswith("EMBERLINE_")},
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def processes(self) -> list[psutil.Process]:
        """Return every live process of the product: marked, running in its folders, or a
        descendant.

        The mark alone is not enough: vLLM's engine and Valkey overwrite their environment with a
        title.
        """
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            try:
                marked = process.environ().get(MARK) == str(self.var)
                if marked or Path(process.cwd()).is_relative_to(self.var):
                    family = [process, *process.children(recursive=True)]
                    found.update((member.pid, member) for member in family)
            except psutil.Error:
                continue
        return [process for process in found.values() if _lives(process)]

    def command_lines(self) -> dict[int, list[str]]:
        """Return the command line of each process that has not ended meanwhile."""
        found = {}
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                found[process.pid] = process.cmdline()
        return found

    def pid_of(self, program: str) -> int:
        """Return supervisord's pid of a program (0: none)."""
        text = subprocess.run(
            [
                self.folder / ".venv/bin/python",
                "-m",
                "supervisor.supervisorctl",
                "-s",
                f"unix://{self.var}/run/supervisor.sock",
                "pid",
                program,
            ],
            capture_output=True,
            text=True,
        ).stdout.strip()
        return int(text) if text.isdigit() else 0

    def environment_of(self, program: str) -> dict[str, str]:
        return dict(psutil.Process(self.pid_of(program)).environ())

    def kill(self, program: str) -> int:
        """SIGKILL a program; return its pid."""
        pid = self.pid_of(program)
        assert pid, f"{program} does not run"
        os.kill(pid, signal.SIGKILL)
        return pid

    def reborn(self, program: str, dead: int) -> int:
        return eventually(
            f"{program} is started again",
            lambda: (pid := self.pid_of(program)) and pid != dead and pid,
            deadline_s=120,
        )

    def sign_in(self) -> httpx.Client:
        """Return a session of the first admin."""
        client = httpx.Client(base_url=self.url, follow_redirects=True, timeout=120)
        form = {"username": "admin", "password": self.password}
        answer = self.submit(client, "/login/", "/login/", form)
        assert "/login/" not in str(answer.url), "the printed password does not log in"
        return client

    def submit(
        self, client: httpx.Client, page: str, action: str, form: dict[str, Any]
    ) -> httpx.Response:
        """Post a page's form with its CSRF token."""
        found = re.search(
            r'name="csrfmiddlewaretoken" value="([^"]+)"', client.get(page).raise_for_status().text
        )
        assert found, f"{page} holds no form"
        answer = client.post(
            action,
            data=form | {"csrfmiddlewaretoken": found.group(1)},
            headers={"Referer": f"{self.url}{page}"},
        )
        return answer.raise_for_status()

    def make_token(self) -> str:
        """Create an API token on the profile page, which shows it once."""
        client = self.sign_in()
        form = {"name": "tests", "role": "admin", "days": "30"}
        page = self.submit(client, "/profile/", "/profile/tokens/", form).text
        shown = re.search(r"emb_[A-Za-z0-9_-]{20,}", page)
        assert shown, page[:2000]
        return shown.group(0)

    def prometheus(self, query: str) -> float:
        """Return the first value from the product's Prometheus, 0 for none."""
        port = json.loads((self.var / "launcher.json").read_text())["prometheus_port"]
        answer = httpx.get(
            f"http://127.0.0.1:{port}/api/v1/query", params={"query": query}, timeout=60
        )
        found = answer.raise_for_status().json()["data"]["result"]
        return float(found[0]["value"][1]) if found else 0.0

    # --- the REST API -------------------------------------------------------------------------

    def api(self, method: str, path: str, body: Any = None, **kwargs: Any) -> httpx.Response:
        return httpx.request(
            method,
            f"{self.url}/api/v1{path}",
            json=body,
            headers={"Authorization": f"Bearer {self.token}"} | kwargs.pop("headers", {}),
            timeout=kwargs.pop("timeout", 120),
            **kwargs,
        )

    def endpoint(self, name: str) -> dict[str, Any]:
        answer = self.api("GET", f"/endpoints/{name}/")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def wait_phase(self, name: str, phase: str, deadline_s: float = 180) -> dict[str, Any]:
        def probe() -> dict[str, Any] | None:
            found = self.endpoint(name)
            settled = found["observed_generation"] == found["generation"]
            assert found["phase"] == phase and settled, json.dumps(found)[:600]
            return found

        return eventually(f"{name} is {phase}", probe, deadline_s)

    def key(self, name: str, *, callers: bool = False) -> str:
        """Return the console's key, which may pin workers, or the demo's of `callers`."""
        folder = self.var / "secrets" / ("quickstart" if callers else "endpoints")
        return (folder / f"{name}.key").read_text().strip()

    def ask(self, name: str, prompt: str, pin: str = "", **extra: Any) -> httpx.Response:
        """Request a completion through the endpoint's router; `pin`: from that worker, with the
        console's key, which no figure of callers contains.
        """
        url = self.endpoint(name)["url"]
        body = {"model": name, "prompt": prompt, "max_tokens": 8, "temperature": 0} | extra
        key = self.key(name, callers=name == "demo" and not pin)
        headers = {"Authorization": f"Bearer {key}"}
        headers |= {"x-emberline-pin": pin} if pin else {}
        return httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=90)
