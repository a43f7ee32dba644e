"""Provisioner of an unknown cluster: every call raises its error, so that the status shows it."""

from __future__ import annotations

from typing import Any, NoReturn

from console.provisioners.base import ProvisionError


class UnavailableProvisioner:
    name = "nowhere"
    rolls = True

    def __init__(self, error: ProvisionError) -> None:
        self.error = error

    def _refuse(self, *_args: Any, **_named: Any) -> NoReturn:
        raise self.error

    apply = observe = delete = logs = _refuse
