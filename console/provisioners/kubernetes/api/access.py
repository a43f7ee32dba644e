"""Cluster access: in-cluster service account, stored kubeconfig, or a context of this machine's
kubeconfig.

Every call has a deadline and is never retried or redirected. Stored keys are never written to
disk, and no repr shows a credential. The Kubernetes client is imported on first use.
"""

from __future__ import annotations

import base64
import functools
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.core.outbound import pool_classes
from console.provisioners.base import PermanentError
from console.provisioners.kubernetes.api.kubeconfig import KubeconfigError, Login, parse_kubeconfig

IN_CLUSTER, KUBECONFIG, CONTEXT = "in-cluster", "kubeconfig", "context"
KINDS = (IN_CLUSTER, KUBECONFIG, CONTEXT)
DEADLINE_S = 10.0  # per call; a reconcile pass makes several within its minute
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Access to a Kubernetes API server. `kubeconfig` is the text of a kubeconfig (kind kubeconfig
    only). `context` is one of its contexts, or of this machine's kubeconfig (kind context); "" is
    the current one.
    """

    kind: str
    kubeconfig: str = field(default="", repr=False)
    context: str = ""
    deadline_s: float = DEADLINE_S

    def api_client(self) -> Any:
        """Return the `kubernetes.client.ApiClient`, shared for equal access; thread-safe."""
        return _client(self)

    def ends_at(self) -> float | None:
        """Return the expiry of stored credentials in epoch seconds; None if renewed or unknown."""
        if self.kind != KUBECONFIG:
            return None
        try:
            return parse_kubeconfig(self.kubeconfig).login(self.context).ends_at
        except KubeconfigError:
            return None


def own_namespace() -> str:
    """Return the namespace for workloads without one: EMBERLINE_NAMESPACE, else the namespace of
    this pod, else "default".
    """
    chosen = os.environ.get("EMBERLINE_NAMESPACE", "").strip()
    if chosen:
        return chosen
    try:
        return _NAMESPACE_FILE.read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def machine_contexts() -> tuple[str, ...]:
    """Return the contexts of this machine's kubeconfig, the current one first."""
    from kubernetes import config

    try:
        listed, current = config.list_kube_config_contexts()
    except (config.ConfigException, OSError, ValueError):
        return ()
    names = {str(context["name"]) for context in listed}
    first = str((current or {}).get("name", ""))
    return tuple(sorted(names, key=lambda name: (name != first, name)))


@functools.lru_cache(maxsize=64)  # keeps connections and TLS sessions
def _client(access: ClusterAccess) -> Any:
    """Return a client; raise `PermanentError` with the fix if the credentials are unusable."""
    from kubernetes import client

    configuration = client.Configuration()
    # Repeating a write is the caller's decision, and a token must not follow a redirect.
    configuration.retries = False
    try:
        tls = _MAKERS[access.kind](access, configuration)
    except KubeconfigError as error:
        raise PermanentError("KubeconfigRefused", str(error)) from None
    made = client.ApiClient(configuration)
    made.user_agent = "emberline"
    # A kubeconfig comes from a user; the other kinds belong to this machine or pod.
    pools = pool_classes(own=access.kind != KUBECONFIG)
    made.rest_client.pool_manager.pool_classes_by_scheme = pools
    made.rest_client.pool_manager.connection_pool_kw["ssl_context"] = tls
    send = made.rest_client.request

    def request(*args: Any, _request_timeout: Any = None, **kwargs: Any) -> Any:
        return send(*args, _request_timeout=_request_timeout or access.deadline_s, **kwargs)

    made.rest_client.request = request
    return made


def _in_cluster(_access: ClusterAccess, configuration: Any) -> ssl.SSLContext:
    from kubernetes import config

    try:
        # Re-read the token every minute: it is renewed in place.
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException as error:
        text = f"The console does not run in a pod with a service account ({error})."
        remedy = "Run it in the cluster, or add the cluster with a kubeconfig."
        raise PermanentError("NotInCluster", f"{text} {remedy}") from None
    return _tls(configuration)


def _of_this_machine(access: ClusterAccess, configuration: Any) -> ssl.SSLContext:
    from kubernetes import config

    try:
        config.load_kube_config(
            context=access.context or None, client_configuration=configuration, persist_config=False
        )
    except (config.ConfigException, OSError, ValueError) as error:
        text = f"The kubeconfig of the console's machine is not usable: {error}."
        remedy = "Correct it there (KUBECONFIG or ~/.kube/config), or choose another context."
        raise PermanentError("KubeconfigRefused", f"{text} {remedy}") from None
    return _tls(configuration)


def _stored_tls(access: ClusterAccess, configuration: Any) -> ssl.SSLContext:
    login = parse_kubeconfig(access.kubeconfig).login(access.context)
    configuration.host = login.server
    configuration.verify_ssl = not login.insecure
    configuration.tls_server_name = login.tls_server_name or None
    if login.proxy:
        configuration.proxy = login.proxy
    if login.token:
        configuration.api_key["BearerToken"] = f"Bearer {login.token}"
    elif login.username:
        pair = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
        configuration.api_key["BearerToken"] = f"Basic {pair}"
    tls = _tls(configuration, login.ca_pem)
    if login.cert_pem:
        _show_certificate(tls, login)
    return tls


def _tls(configuration: Any, ca_pem: str = "") -> ssl.SSLContext:
    try:
        tls = ssl.create_default_context(
            cafile=configuration.ssl_ca_cert or None, cadata=ca_pem or None
        )
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, configuration.key_file, _no_password)
    except (ssl.SSLError, OSError) as error:
        text = f"The certificates of the cluster cannot be read ({type(error).__name__})."
        raise PermanentError("KubeconfigRefused", f"{text} Paste the file again.") from None
    # Newer Pythons reject CAs without a key identifier, which many clusters have; kubectl accepts
    # them.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _show_certificate(tls: ssl.SSLContext, login: Login) -> None:
    try:
        with _in_memory(login.cert_pem) as cert, _in_memory(login.key_pem) as key:
            tls.load_cert_chain(cert, key, _no_password)
    except (ssl.SSLError, OSError):
        text = "The client certificate and key do not match, or the key has a password."
        remedy = "Paste a kubeconfig whose key has no password."
        raise PermanentError("KubeconfigRefused", f"{text} {remedy}") from None


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Provide the text as a path for OpenSSL's binding; in memory on Linux."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("emberline", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{descriptor}"
        return
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:  # mode 0600
        file.write(text)
        file.flush()
        yield file.name


def _no_password() -> str:
    """Return no password; otherwise OpenSSL prompts on the terminal."""
    return ""


_MAKERS: dict[str, Callable[[ClusterAccess, Any], ssl.SSLContext]] = {
    IN_CLUSTER: _in_cluster,
    KUBECONFIG: _stored_tls,
    CONTEXT: _of_this_machine,
}
