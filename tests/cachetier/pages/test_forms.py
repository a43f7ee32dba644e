"""Form of a cache tier: live validation, exact sizes, and concurrent edits."""

from __future__ import annotations

import pytest

from cachetier import actions
from cachetier.models import CacheTier
from tests.cachetier.pages.test_views import browser, user

pytestmark = pytest.mark.django_db
GIB = 1024**3
EDIT = "/cache/chat/edit/"
ODD = 5 * GIB // 7
TYPED = {
    "memory_bytes": "0.5",
    "node_count": "1",
    "disk_bytes": "0",
    "policy": "arc",
    "copies": "1",
}


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task is nudged, and the machine has a known size."""
    from cachetier.tier.spec import SpareCapacity

    monkeypatch.setattr(
        "cachetier.selectors.spare_capacity", lambda: SpareCapacity(8 * GIB, 100 * GIB)
    )


@pytest.fixture
def tier() -> CacheTier:
    return actions.create(user("operator"), "chat", {"memory_bytes": ODD})


def test_untouched_form_changes_nothing(tier: CacheTier) -> None:
    page = browser("operator")
    html = page.get(EDIT).content.decode()
    shown = f"{ODD / GIB:.15g}"
    assert f'value="{shown}"' in html
    answer = page.post(EDIT, {**TYPED, "memory_bytes": shown, "generation": "1"})
    assert answer.status_code == 302
    tier.refresh_from_db()
    assert (tier.memory_bytes, tier.generation) == (ODD, 1)


def test_form_and_api_validate_alike() -> None:
    page = browser("operator")
    typed = {**TYPED, "name": "Bad Name", "copies": "2", "touched": "copies"}
    text = page.post("/cache/new/look/", typed).content.decode()
    assert "2 errors" in text
    slot = text.split('id="live-copies" hx-swap-oob="innerHTML">')[1].split("</div>")[0]
    assert "Replication factor 2 requires 2 nodes" in slot
    assert 'id="live-name" hx-swap-oob="innerHTML"></div>' in text, "nobody was there yet"
    fine = page.post("/cache/new/look/", {**TYPED, "name": "chat"}).content.decode()
    assert "Ready to create" in fine
    actions.create(user("operator"), "chat", {})
    taken = page.post("/cache/new/look/", {**TYPED, "name": "chat"}).content.decode()
    assert "Cache tier chat already exists" in taken
    assert not CacheTier.objects.exclude(name="chat").exists()
    assert page.post("/cache/new/look/", {}).status_code == 200


def test_change_states_its_consequences(tier: CacheTier) -> None:
    page = browser("operator")
    text = page.post(f"{EDIT}look/", {**TYPED, "memory_bytes": "0.25"}).content.decode()
    assert "Applied without a restart" in text
    text = page.post(f"{EDIT}look/", {**TYPED, "policy": "lru", "node_count": "2", "copies": "2"})
    assert "Rolling restart of the workers" in text.content.decode()
    assert "Rolling restart of the nodes" in text.content.decode()
    tier.refresh_from_db()
    assert tier.generation == 1
    assert browser("viewer").post(f"{EDIT}look/", TYPED).status_code == 403
    assert page.post("/cache/nobody/edit/look/", TYPED).status_code == 404


def test_concurrent_change_is_shown_before_it_is_overwritten(tier: CacheTier) -> None:
    page = browser("operator")
    actions.change(user("admin"), "chat", {"node_count": 2})
    typed = {**TYPED, "memory_bytes": "0.25", "generation": "1"}
    assert "chat was changed since" in page.post(f"{EDIT}look/", typed).content.decode()
    answer = page.post(EDIT, typed)
    html = answer.content.decode()
    assert answer.status_code == 409
    assert "current 2, your input 1" in html
    assert 'value="0.25"' in html
    assert 'name="generation" value="2"' in html
    tier.refresh_from_db()
    assert tier.node_count == 2
    assert page.post(EDIT, {**typed, "generation": "2"}).status_code == 302
    tier.refresh_from_db()
    assert tier.node_count == 1
