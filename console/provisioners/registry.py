"""Provisioners by name.

Only the named provisioner's code is loaded (a console on Kubernetes needs no supervisord).
Instances are not cached: they have no state except under `var`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from console.provisioners.base import PermanentError, Provisioner


def get_provisioner(name: str, var: Path) -> Provisioner:
    """Return the provisioner called `name`, which stores its files under `var`."""
    try:
        make = _MAKERS[name]
    except KeyError:
        names = ", ".join(sorted(_MAKERS))
        raise PermanentError(
            "UnknownProvisioner", f"Provisioner {name!r} does not exist. Available: {names}."
        ) from None
    return make(var)


def _local(var: Path) -> Provisioner:
    from console.provisioners.local.provisioner import LocalProvisioner

    return LocalProvisioner(var)


def _fake(var: Path) -> Provisioner:
    from console.provisioners.fake import FakeProvisioner

    return FakeProvisioner(var / "fake.json")


def _kubernetes(_var: Path) -> Provisioner:
    """Use the console's own cluster and namespace."""
    from console.provisioners.kubernetes.api.access import IN_CLUSTER, ClusterAccess, own_namespace
    from console.provisioners.kubernetes.provisioner import KubernetesProvisioner

    return KubernetesProvisioner(ClusterAccess(IN_CLUSTER), own_namespace())


_MAKERS: dict[str, Callable[[Path], Provisioner]] = {
    "fake": _fake,
    "kubernetes": _kubernetes,
    "local": _local,
}
