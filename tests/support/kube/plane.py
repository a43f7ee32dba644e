"""Real control plane on loopback: etcd, API server, controllers and scheduler, no kubelet.

RBAC, pod security, service accounts, quotas and garbage collection are enabled. Controllers and
scheduler are left out if their programs are missing (KUBEBUILDER_ASSETS). All files are in one
folder, so that another process can use the plane:

    python -m tests.support.kube.plane --dir DIR      until SIGTERM; DIR/kubeconfig is written last
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import threading
from pathlib import Path

import yaml

from tests.support.certificates import authority
from tests.support.kube import kubeconfig
from tests.support.kube.client import Kube
from tests.support.ports import free_ports
from tests.support.waiting import until

MASTERS = "system:masters"
# User -> groups. `person-N` has no permissions until a test binds a Role.
USERS = {
    "admin": MASTERS,
    "kubelet-player": MASTERS,
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    **{f"person-{number}": "" for number in range(1, 10)},
}
NEEDED = ("etcd", "kube-apiserver")
BESIDE = ("kube-controller-manager", "kube-scheduler")


def assets() -> Path | None:
    """Return the folder with the programs, None if it has no API server."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS", "") or "/nowhere")
    return folder if all((folder / name).is_file() for name in NEEDED) else None


class Plane:
    """Control plane; `stop_api` and `start_api` simulate an outage."""

    def __init__(self, folder: Path, programs: Path, controllers: bool = True) -> None:
        self.folder = folder
        self._beside = BESIDE if controllers else ()
        folder.mkdir(parents=True, exist_ok=True)
        self._bin = programs
        self._etcd_port, self._peer_port, self.port = free_ports(3)
        self.url = f"https://127.0.0.1:{self.port}"
        self.ca = authority().write_ca(folder / "ca.pem")
        authority().write(folder, "127.0.0.1", "localhost", "kubernetes.default.svc", stem="api")
        authority().write(folder, "127.0.0.1", stem="kubelet")
        self.tokens = {user: secrets.token_hex(16) for user in USERS}
        lines = [f'{self.tokens[user]},{user},{user},"{USERS[user]}"\n' for user in USERS]
        (folder / "tokens.csv").write_text("".join(lines))
        (folder / "tokens.csv").chmod(0o600)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def kubelet_certificate(self) -> tuple[Path, Path]:
        """Return certificate and key of kubelets, trusted by the API server for logs."""
        return self.folder / "kubelet.crt", self.folder / "kubelet.key"

    @property
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig, written when the plane is up."""
        return self.folder / "kubeconfig"

    def kubeconfig_of(self, user: str, namespace: str = "default") -> Path:
        data = kubeconfig.kubeconfig(self.url, self.ca, self.tokens[user], namespace, user)
        name = "kubeconfig" if user == "admin" else f"kubeconfig.{user.replace(':', '-')}"
        return kubeconfig.write(self.folder / name, data)

    def client(self, user: str = "admin") -> Kube:
        return Kube(self.url, self.tokens[user], self.ca)

    def start(self) -> None:
        here = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._spawn(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
        )
        self.start_api()
        for user in USERS:
            if user != "admin":
                self.kubeconfig_of(user)
        self.start_beside()
        self.kubeconfig_of("admin")

    def start_api(self) -> None:
        key, folder = self.folder / "api.key", self.folder
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--tls-cert-file={folder / 'api.crt'}",
            f"--tls-private-key-file={key}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.76.0.0/16",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={self.ca}",
            # Short eviction from lost nodes: the default is five minutes.
            "--default-not-ready-toleration-seconds=5",
            "--default-unreachable-toleration-seconds=5",
        )
        with self.client() as api:
            until(lambda: self._alive("kube-apiserver") and api.ready(), 180, "API server")

    def start_beside(self) -> None:
        """Start the available controllers and scheduler that are not running."""
        for name in self._beside:
            running = self._running.get(name)
            if (self._bin / name).is_file() and (running is None or running.poll() is not None):
                {BESIDE[0]: self._start_controllers, BESIDE[1]: self._start_scheduler}[name]()

    def _start_controllers(self) -> None:
        access = self.kubeconfig_of("system:kube-controller-manager")
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={access}",
            "--secure-port=0",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={self.folder / 'api.key'}",
            f"--root-ca-file={self.ca}",
            "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
            "--horizontal-pod-autoscaler-sync-period=2s",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        )

    def _start_scheduler(self) -> None:
        access = self.kubeconfig_of("system:kube-scheduler")
        self._spawn(
            "kube-scheduler",
            f"--kubeconfig={access}",
            "--secure-port=0",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        )

    def stop_api(self) -> None:
        self._end("kube-apiserver")

    def stop(self) -> None:
        for name in reversed(list(self._running)):
            self._end(name)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _spawn(self, name: str, *flags: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [str(self._bin / name), *flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def _alive(self, name: str) -> bool:
        assert self._running[name].poll() is None, self.log(name)[-3000:]
        return True

    def _end(self, name: str) -> None:
        # Killed: no state is kept, and a graceful stop is slow.
        program = self._running.pop(name, None)
        if program is not None:
            program.kill()
            program.wait(60)


class Reached:
    """Plane run by another process, known by its folder (EMBERLINE_TEST_PLANE)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = folder / "ca.pem"
        self.tokens: dict[str, str] = {}
        for line in (folder / "tokens.csv").read_text().splitlines():
            token, user, *_ = line.split(",")
            self.tokens[user] = token
        config = yaml.safe_load(self.kubeconfig.read_text())
        self.url = str(config["clusters"][0]["cluster"]["server"])

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def kubeconfig_of(self, user: str, namespace: str = "default") -> Path:
        data = kubeconfig.kubeconfig(self.url, self.ca, self.tokens[user], namespace, user)
        return kubeconfig.write(self.folder / f"kubeconfig.{user}.{os.getpid()}", data)

    def client(self, user: str = "admin") -> Kube:
        return Kube(self.url, self.tokens[user], self.ca)


def main() -> None:
    parser = argparse.ArgumentParser(description="A control plane, until SIGTERM.")
    parser.add_argument("--dir", type=Path, required=True)
    folder: Path = parser.parse_args().dir
    programs = assets()
    if programs is None:
        parser.exit(2, f"KUBEBUILDER_ASSETS names no folder with {' and '.join(NEEDED)}\n")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    plane = Plane(folder, programs)
    try:
        plane.start()
        while not stop.wait(2.0):
            plane.start_beside()
    finally:
        plane.kubeconfig.unlink(missing_ok=True)
        plane.stop()


if __name__ == "__main__":
    main()
