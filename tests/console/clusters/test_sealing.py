"""What a stolen database tells: nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.conf import settings as live
from pytest_django import Settings

from console.clusters import sealing

OLD, NEW = "o" * 32, "n" * 32


def use(settings: Settings, *keys: str) -> None:
    settings.EMBERLINE = replace(live.EMBERLINE, encryption_keys=keys)


def test_it_opens_for_its_purpose_only(settings: Settings) -> None:
    use(settings, OLD)
    sealed = sealing.seal("kubeconfig of ö", "cluster/1")
    assert "kubeconfig" not in sealed
    assert sealing.unseal(sealed, "cluster/1") == "kubeconfig of ö"
    with pytest.raises(sealing.Unreadable):
        sealing.unseal(sealed, "cluster/2")


def test_keys_are_changed_one_after_the_other(settings: Settings) -> None:
    use(settings, OLD)
    sealed = sealing.seal("text", "p")
    use(settings, NEW, OLD)
    assert sealing.unseal(sealed, "p") == "text"
    assert sealing.outdated(sealed, "p")
    again = sealing.seal("text", "p")
    assert not sealing.outdated(again, "p")
    use(settings, NEW)
    assert sealing.unseal(again, "p") == "text"
    with pytest.raises(sealing.Unreadable, match="EMBERLINE_ENCRYPTION_KEY"):
        sealing.unseal(sealed, "p")
