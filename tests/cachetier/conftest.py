from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import settings

from console.provisioners.fake import FakeProvisioner


@pytest.fixture
def paper() -> Iterator[FakeProvisioner]:
    """The shipped fake, with an empty state before and after."""
    files = [settings.EMBERLINE.var / f"fake{suffix}" for suffix in (".json", ".lock")]
    for file in files:
        file.unlink(missing_ok=True)
    yield FakeProvisioner(files[0])
    for file in files:
        file.unlink(missing_ok=True)
