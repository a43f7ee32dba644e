"""Fake control plane with the interface of the real one, and fault injection.

Same users, kubeconfigs and pod behavior as `tests.support.kube.plane`; runs in this process and
starts within 0.1 s.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.certificates import authority
from tests.support.kube import kubeconfig
from tests.support.kube.client import Kube
from tests.support.kube.fake.api import Api
from tests.support.kube.fake.controllers import Controllers
from tests.support.kube.fake.rbac import User
from tests.support.kube.fake.serve import ApiServer, Fault
from tests.support.kube.fake.store import Store
from tests.support.kube.fake.verbs import Options, Verbs
from tests.support.kube.plane import USERS

SPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class FakePlane:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = authority().write_ca(folder / "ca.pem")
        authority().write(folder, "127.0.0.1", stem="kubelet")
        self.tokens = {user: secrets.token_hex(16) for user in USERS}
        self.store = Store()
        self.verbs = Verbs(self.store)
        self.api = Api(self.store, self.verbs)
        self.server = ApiServer(self.api, self._users)
        self.controllers = Controllers(self.store, self.verbs)

    def _users(self) -> dict[str, User]:
        return {
            token: User(user, (*filter(None, [USERS[user]]), "system:authenticated"))
            for user, token in self.tokens.items()
        }

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def kubelet_certificate(self) -> tuple[Path, Path]:
        return self.folder / "kubelet.crt", self.folder / "kubelet.key"

    def kubeconfig_of(self, user: str, namespace: str = "default") -> Path:
        data = kubeconfig.kubeconfig(self.url, self.ca, self.tokens[user], namespace, user)
        name = "kubeconfig" if user == "admin" else f"kubeconfig.{user.replace(':', '-')}"
        return kubeconfig.write(self.folder / name, data)

    def client(self, user: str = "admin") -> Kube:
        return Kube(self.url, self.tokens[user], self.ca)

    def start(self) -> None:
        for name in SPACES:
            space: dict[str, Any] = {"metadata": {"name": name}}
            self.verbs.create(self.verbs.kinds["Namespace"], "", space, Options())
        self.controllers.start()
        self.start_api()
        self.kubeconfig_of("admin")

    def start_api(self) -> None:
        self.server.start()

    def stop_api(self) -> None:
        """Stop the server and its connections; controllers continue."""
        self.server.stop()

    def stop(self) -> None:
        self.server.stop()
        self.controllers.stop()

    @contextmanager
    def failing(self, pattern: str = "", status: int = 0, **more: Any) -> Iterator[Fault]:
        """Inject a serve.Fault: `failing("PATCH .*/deployments/", 429, times=2)`."""
        fault = Fault(pattern, status, **more)
        self.server.faults.append(fault)
        try:
            yield fault
        finally:
            if fault in self.server.faults:
                self.server.faults.remove(fault)

    def expire(self) -> None:
        """Expire every watch (410)."""
        self.store.expire()

    def mend(self) -> None:
        """Start the server and remove all faults."""
        self.server.faults.clear()
        if self.server.down.is_set():
            self.start_api()
