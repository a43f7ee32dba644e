"""Contract tests of the local provisioner with real processes under a real supervisord."""

from __future__ import annotations

import pytest

from tests.console.provisioners.conftest import LocalRig
from tests.console.provisioners.contract import ProvisionerContract


class TestLocal(ProvisionerContract):
    @pytest.fixture
    def provisioner_rig(self, local: LocalRig) -> LocalRig:
        return local
