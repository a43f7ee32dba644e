"""Running pods: the main container's program as a process with its own address.

As a kubelet does: volumes and environment, probes, restarts, preStop then SIGTERM then SIGKILL,
logs. Not supported: images (programs are this machine's; `python3` is the tests' with this
repository on its path), users, CPU and memory limits, init and additional containers. Needs root,
for mounts and addresses.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.support.cachenode import ROOT
from tests.support.kube import podroot
from tests.support.kube.behaviours import Containers, Rule, stamp
from tests.support.kube.client import Kube, Refused
from tests.support.kube.podlogs import Logs
from tests.support.kube.volumes import Volumes, contents, field, local

NETWORK = "10.77.0.0/16"
PYTHON = "/.venv/bin/python"  # the tests' Python, placed by `podroot`
PROBE_S = 0.2  # replaces a kubelet's second
AGAIN_S = 0.5  # restart delay


def can_run() -> str:
    """Return why pods cannot run here, or ""."""
    if os.geteuid() != 0:
        return "pods run as processes only for root (mounts, addresses)"
    route = ["ip", "route", "replace", "local", NETWORK, "dev", "lo"]
    for argv in (["unshare", "--mount", "true"], route):
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return f"{argv[0]} is not installed"
        if done.returncode:
            return f"{' '.join(argv)}: {done.stderr.strip()}"
    return ""


class Running:
    """One pod's process and its environment, in its own thread."""

    def __init__(
        self,
        api: Kube,
        pod: Mapping[str, Any],
        rule: Rule,
        address: str,
        folder: Path,
        logs: Logs,
        changed: Callable[[], None],
        names: str,
    ) -> None:
        self._names = names
        self._api, self._pod, self._rule, self._address = api, pod, rule, address
        self._folder, self._logs, self._changed = folder, logs, changed
        self._container: Mapping[str, Any] = pod["spec"]["containers"][0]
        self._volumes = Volumes(api, pod, folder, address)
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._sync = threading.Event()
        self._grace_s = 30.0
        self.how = Containers("Pending", started=False, state={"waiting": {"reason": "Creating"}})
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._live, name=f"pod-{address}", daemon=True)
        self._thread.start()

    def update(self, pod: Mapping[str, Any]) -> None:
        """Apply a changed pod object, including its volumes."""
        self._pod = pod
        self._sync.set()

    def stop(self, grace_s: float) -> None:
        """Begin termination; `done` is set at its end."""
        self._grace_s = grace_s
        self._stop.set()

    def kill(self) -> None:
        """Kill immediately."""
        self._grace_s = 0.0
        self._stop.set()
        if self._process is not None:
            self._process.kill()
        self.done.wait(10)

    # --- the thread

    def _live(self) -> None:
        restarts, last = 0, {}
        try:
            while not self._stop.is_set():
                try:
                    self._start()
                except (Refused, httpx.HTTPError, OSError) as error:
                    state = {"waiting": {"reason": "CreateContainerConfigError"}}
                    state["waiting"]["message"] = str(error)
                    self._report(Containers("Pending", started=False, state=state))
                    self._stop.wait(AGAIN_S)
                    continue
                code, began = self._watch(restarts, last)
                if self._stop.is_set():
                    return
                restarts += 1
                last = {"terminated": {"exitCode": code, "reason": "Error", "startedAt": began,
                                       "finishedAt": stamp(time.time())}}  # fmt: skip
                waits = {"waiting": {"reason": "CrashLoopBackOff", "message": f"exit {code}"}}
                self._report(Containers(restarts=restarts, state=waits, last=last, started=False))
                self._stop.wait(AGAIN_S)
        finally:
            self._end()
            shutil.rmtree(self._folder, ignore_errors=True)  # including secrets
            self.done.set()
            self._changed()

    def _report(self, how: Containers) -> None:
        if how != self.how:
            self.how = how
            self._changed()

    def _start(self) -> None:
        self._volumes.sync(self._pod)
        env = self._env()
        argv = list(self._rule.argv) or [
            *self._container.get("command", ()),
            *self._container.get("args", ()),
        ]
        argv = [local(_expand(item, env), self._address) for item in argv]
        if Path(argv[0]).name in ("python", "python3"):
            argv[0] = PYTHON
        (self._folder / "root").mkdir(parents=True, exist_ok=True)
        (self._folder / "resolv.conf").write_text(f"nameserver {self._names}\n")
        spec = {
            "resolv": f"{self._folder.name}/resolv.conf",
            "root": str(self._folder / "root"),
            "folder": str(self._folder.parent),
            "source": str(ROOT),
            "venv": str(Path(sys.prefix).resolve()),
            "mounts": list(self._mounts()),
            "cwd": self._container.get("workingDir", "/"),
            "argv": argv,
            "env": {**env, "PYTHONPATH": "/.source", "PYTHONDONTWRITEBYTECODE": "1"},
        }
        path = self._folder / "spec.json"
        path.write_text(json.dumps(spec))
        path.chmod(0o600)
        where = self._pod["metadata"]["namespace"], self._pod["metadata"]["name"]
        self._logs.rotate(*where, self._container["name"])
        self._process = subprocess.Popen(
            ["unshare", "--mount", sys.executable, podroot.__file__, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd="/",
        )
        threading.Thread(target=self._read, args=(self._process, where), daemon=True).start()

    def _mounts(self) -> Any:
        base = self._folder.parent
        for item in self._container.get("volumeMounts", ()):
            source = self._volumes.folder(item["name"])
            if item.get("subPath"):
                source = source / item["subPath"]
            yield str(source.relative_to(base)), item["mountPath"], item.get("readOnly", False)

    def _read(self, process: subprocess.Popen[bytes], where: tuple[str, str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            self._logs.write(*where, self._container["name"], text)

    def _env(self) -> dict[str, str]:
        server = httpx.URL(str(self._api.http.base_url))
        env = {
            "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}",
            "HOSTNAME": self._pod["metadata"]["name"],
            "KUBERNETES_SERVICE_HOST": server.host,
            "KUBERNETES_SERVICE_PORT": str(server.port),
        }
        for source in self._container.get("envFrom", ()):
            for kind, name in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
                if name in source:
                    for key, value in self._keys(kind, source[name]).items():
                        env[source.get("prefix", "") + key] = value.decode()
        for item in self._container.get("env", ()):
            value = self._value(item)
            if value is not None:
                env[item["name"]] = local(_expand(value, env), self._address)
        return env | dict(self._rule.env)

    def _keys(self, kind: str, content: Mapping[str, Any]) -> dict[str, bytes]:
        namespace = self._pod["metadata"]["namespace"]
        if content.get("optional"):
            return contents(self._api.find(kind, namespace, content["name"]) or {})
        return contents(self._api.get(kind, namespace, content["name"]))

    def _value(self, item: Mapping[str, Any]) -> str | None:
        value = item.get("valueFrom")
        if not value:
            return str(item.get("value", ""))
        if "fieldRef" in value:
            return field(self._pod, value["fieldRef"]["fieldPath"], self._address)
        for kind, name in (("ConfigMap", "configMapKeyRef"), ("Secret", "secretKeyRef")):
            if name in value:
                found = self._keys(kind, value[name])
                if value[name]["key"] not in found and value[name].get("optional"):
                    return None
                return found[value[name]["key"]].decode()
        return ""

    # --- while it runs

    def _watch(self, restarts: int, last: Mapping[str, Any]) -> tuple[int, str]:
        """Wait until it ends or must stop; return exit code and start time."""
        assert self._process is not None
        began = time.time()
        state = {"running": {"startedAt": stamp(began)}}
        started, failures, synced = False, 0, time.time()
        probes = {n: self._container.get(f"{n}Probe") for n in ("startup", "readiness", "liveness")}
        while self._process.poll() is None and not self._stop.is_set():
            if self._sync.is_set() or time.time() > synced + 5:
                self._sync.clear()
                with contextlib.suppress(Refused, httpx.HTTPError):
                    self._volumes.sync(self._pod)
                synced = time.time()
            if not started:
                started = self._probe(probes["startup"])
                late = _budget_s(probes["startup"]) < time.time() - began
                failures = 0
            else:
                late = False
                failures = 0 if self._probe(probes["liveness"]) else failures + 1
            ready = started and self._probe(probes["readiness"])
            how = {"restarts": restarts, "state": state, "last": last}
            self._report(Containers(ready=ready, started=started, **how))
            if (late and not started) or failures >= 5:
                self._process.kill()
            self._stop.wait(PROBE_S)
        if not self._stop.is_set():
            self._process.wait()
        return self._process.returncode or 0, stamp(began)

    def _probe(self, probe: Mapping[str, Any] | None) -> bool:
        if not probe:
            return True
        if "httpGet" in probe:
            content = probe["httpGet"]
            scheme, port = content.get("scheme", "HTTP").lower(), self._port(content["port"])
            url = (
                f"{scheme}://{content.get('host', self._address)}:{port}{content.get('path', '/')}"
            )
            try:
                answer = httpx.get(
                    url, timeout=max(1, probe.get("timeoutSeconds", 1)), verify=False
                )
            except httpx.HTTPError:
                return False
            return 200 <= answer.status_code < 400
        if "tcpSocket" in probe:
            return _connects(self._address, self._port(probe["tcpSocket"]["port"]))
        return True

    def _port(self, content: int | str) -> int:
        if isinstance(content, int):
            return content
        ports = self._container.get("ports", ())
        return int(next(item["containerPort"] for item in ports if item.get("name") == content))

    def _end(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        until = time.monotonic() + self._grace_s
        hook = self._container.get("lifecycle", {}).get("preStop", {})
        waits = min(float(hook.get("sleep", {}).get("seconds", 0)), self._grace_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(waits)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
        process.kill()
        process.wait(60)


def _budget_s(probe: Mapping[str, Any] | None) -> float:
    """Return the time allowed for startup."""
    if not probe:
        return 1e9
    tries = probe.get("failureThreshold", 3) * probe.get("periodSeconds", 10)
    return float(probe.get("initialDelaySeconds", 0) + tries)


def _connects(host: str, port: int) -> bool:
    import socket

    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False


def _expand(text: str, env: Mapping[str, str]) -> str:
    """Expand `$(NAME)` like Kubernetes: unknown names stay."""
    return re.sub(r"\$\((\w+)\)", lambda found: env.get(found[1], found[0]), text)
