"""Every page that takes a form, sent what no form would send: an answer, never a crash.

`HYPOTHESIS_PROFILE=explore EMBERLINE_FUZZ=200 pytest test_form_robustness.py` looks
longer.
"""

from __future__ import annotations

import os
import re
from http import HTTPStatus
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.console import browser, make_endpoint, person, program
from tests.support.urlwalk import places

EXAMPLES = int(os.environ.get("EMBERLINE_FUZZ", "2"))
# A wrong password four times over would be a wait, and a logout the end of the test.
NOT_HERE = ("/api/", "/login/", "/logout/")
PATHS = sorted(
    {one.path for one in places() if "post" in one.methods and not one.path.startswith(NOT_HERE)}
)

# What has broken forms before: nothing, zero bytes, digits of other scripts, numbers no column
# holds, halves of JSON and YAML, and dates that are none.
NASTY = st.sampled_from(
    ["", " ", "\0", "٣", "-1", "1e400", "NaN", "9" * 400, "[", "{", "{}", "null", "a: [", "- - -",
     "&a [*a]", "0x10", "2026-13-40", "'; --", "<script>", "../../etc/passwd", "%00", "true",
     "demo", "admin", "é" * 3000, "\u202e", "00000000-0000-0000-0000-000000000000"]
)  # fmt: skip
VALUES = NASTY | st.text(st.characters(codec="utf-8"), max_size=40) | st.integers().map(str)
COMMON = ["name", "role", "yaml", "spec", "next", "generation", "replicas", "confirm", "ids", "q"]


def fields(client: Client, path: str) -> list[str]:
    """Names of the fields of the page at this address."""
    html = client.get(path).content.decode(errors="replace")
    return sorted(set(re.findall(r'<(?:input|select|textarea)[^>]*\sname="([^"]+)"', html)))


@pytest.fixture
def client(db: None, monkeypatch: pytest.MonkeyPatch) -> Client:
    # What a view closes between two requests is here the one connection of the whole test.
    monkeypatch.setattr(BaseDatabaseWrapper, "close_if_unusable_or_obsolete", lambda self: None)
    admin = program("admin")
    make_endpoint("demo")
    admin.post("/api/v1/cache-tiers/", {"name": "demo"})
    admin.post("/api/v1/clusters/", {"name": "demo", "kind": "in-cluster", "reach": "pods"})
    found = browser("admin")
    found.raise_request_exception = False
    return found


def takes_forms(client: Client, path: str) -> bool:
    return client.post(path, {}).status_code != HTTPStatus.METHOD_NOT_ALLOWED


def test_no_form_breaks_a_page(client: Client) -> None:
    requested = [path for path in PATHS if takes_forms(come_back(client), path)]
    assert len(requested) > 20
    for path in requested:
        hammer(come_back(client), path)


def come_back(client: Client) -> Client:
    """As an admin, whatever the last form has done to them."""
    me = person("admin")
    me.is_active, me.role = True, "admin"
    me.save()
    client.force_login(me)
    return client


def hammer(client: Client, path: str) -> None:
    names = st.sampled_from(sorted({*fields(client, path), *COMMON}))

    @given(st.dictionaries(names, VALUES, max_size=8), st.booleans())
    @settings(
        max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    def send(form: dict[str, Any], part: bool) -> None:
        headers = {"HX-Request": "true"} if part else {}
        answers = [
            client.post(path, form, headers=headers),
            client.get(path, form, headers=headers),
        ]
        for answer in answers:
            assert answer.status_code < 500 or answer.status_code in (502, 503), path
            answer.close()

    send()
