"""Every form of a page has a REST operation or a stated reason.

A page that takes a form needs a line here: its operation, or a reason in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus

import pytest
from django.urls import resolve

from console.api.schema import build_document
from tests.support.console import browser, make_endpoint
from tests.support.urlwalk import places

pytestmark = pytest.mark.django_db

ONE = "/api/v1/endpoints/{name}/"
KEYS, GROUPS = f"{ONE}keys/", "/api/v1/key-groups/"
BOARDS = "/api/v1/custom-boards/"
SHOWN = "It shows, and changes nothing; the same rules answer at the operation that changes."
SESSION = "It is of a browser's session, which a program has none of."
TASTE = "It is one person's taste in how a page looks."

PARITY = {
    "accounts:token-create": "POST /api/v1/tokens/",
    "accounts:token-revoke": "DELETE /api/v1/tokens/{id}/",
    "accounts:token-end": "DELETE /api/v1/tokens/{id}/",
    "accounts:people": "POST /api/v1/users/",
    "accounts:person-role": "PATCH /api/v1/users/{username}/",
    "accounts:person-active": "PATCH /api/v1/users/{username}/",
    "accounts:person-password": "POST /api/v1/users/{username}/password/",
    "accounts:teams": "POST /api/v1/teams/",
    "accounts:team-change": "PATCH /api/v1/teams/{slug}/",
    "accounts:team-delete": "DELETE /api/v1/teams/{slug}/",
    "accounts:member-set": "PUT /api/v1/teams/{slug}/members/{username}/",
    "accounts:member-remove": "DELETE /api/v1/teams/{slug}/members/{username}/",
    "catalogue:new": "PUT /api/v1/instance-types/{name}/",
    "catalogue:edit": "PUT /api/v1/instance-types/{name}/",
    "catalogue:remove": "DELETE /api/v1/instance-types/{name}/",
    "clusters:add": "POST /api/v1/clusters/",
    "clusters:contexts": SHOWN,
    "clusters:edit": "PATCH /api/v1/clusters/{name}/",
    "clusters:check": "POST /api/v1/clusters/{name}/check/",
    "clusters:remove": "DELETE /api/v1/clusters/{name}/",
    "cachetier:new": "POST /api/v1/cache-tiers/",
    "cachetier:edit": "PATCH /api/v1/cache-tiers/{name}/",
    "cachetier:flush": "POST /api/v1/cache-tiers/{name}/flush/",
    "cachetier:delete": "DELETE /api/v1/cache-tiers/{name}/",
    "dashboards:start_proof": f"POST {ONE}proof/",
    "dashboards:calibrate": f"POST {ONE}calibration/",
    "dashboards:auto_calibration": f"PATCH {ONE}auto-calibration/",
    "dashboards:calibrations": "PATCH /api/v1/costs/auto-calibration/",
    "money:price": "PUT /api/v1/costs/prices/{name}/",
    "dashboards:guide": TASTE,
    "dashboards:canary": f"POST {ONE}canary/",
    "dashboards:canary_stop": f"DELETE {ONE}canary/",
    "dashboards:canary_promote": f"POST {ONE}canary/promote/",
    "custom_boards:new": f"POST {BOARDS}",
    "custom_boards:import": f"POST {BOARDS}",
    "custom_boards:pin": f"PUT {BOARDS}{{board_id}}/",
    "custom_boards:settings": f"PUT {BOARDS}{{board_id}}/",
    "custom_boards:arrange": f"PUT {BOARDS}{{board_id}}/",
    "custom_boards:new_query": f"PUT {BOARDS}{{board_id}}/",
    "custom_boards:panel": f"PUT {BOARDS}{{board_id}}/",
    "custom_boards:delete": f"DELETE {BOARDS}{{board_id}}/",
    "advisor:endpoint": f"POST {ONE}advice/",
    "advisor:cancel": f"POST {ONE}advice/cancel/",
    "whatif:new": f"POST {ONE}what-if/",
    "whatif:isolation": f"POST {ONE}what-if/",
    "whatif:cancel": f"POST {ONE}what-if/{{run}}/cancel/",
    "whatif:delete": f"DELETE {ONE}what-if/{{run}}/",
    "benchmarks:new": f"POST {ONE}benchmarks/",
    "benchmarks:outlook": f"POST {ONE}benchmarks/plan/",
    "benchmarks:abort": f"POST {ONE}benchmarks/{{run}}/abort/",
    "benchmarks:delete": f"DELETE {ONE}benchmarks/{{run}}/",
    "alerting:new": "POST /api/v1/alert-rules/",
    "alerting:rule": "PATCH /api/v1/alert-rules/{rule}/",
    "alerting:try": "POST /api/v1/alert-rules/{rule}/dry-run/",
    "alerting:try_new": "POST /api/v1/alert-rules/dry-run/",
    "alerting:try_of_endpoint": f"POST {ONE}alert-rules/{{rule}}/dry-run/",
    "alerting:reset": "DELETE /api/v1/alert-rules/{rule}/",
    "alerting:delete": "DELETE /api/v1/alert-rules/{rule}/",
    "alerting:of_endpoint": f"PATCH {ONE}alert-rules/{{rule}}/",
    "alerting:reset_of_endpoint": f"DELETE {ONE}alert-rules/{{rule}}/",
    "cachetier:look": SHOWN,
    "cachetier:look-new": SHOWN,
    "playground:chat": f"POST {ONE}chat/",
    "playground:code": SHOWN,
    "playground:endpoint": f"POST {ONE}chat/",
    "playground:prompts": SHOWN,
    "metrics_sources:add": "POST /api/v1/metrics-sources/",
    "metrics_sources:edit": "PATCH /api/v1/metrics-sources/{name}/",
    "metrics_sources:remove": "DELETE /api/v1/metrics-sources/{name}/",
    "metrics_sources:test": "POST /api/v1/metrics-sources/{name}/test/",
    "money:new_budget": "POST /api/v1/budgets/",
    "money:delete_budget": "DELETE /api/v1/budgets/{budget_id}/",
    "money:forget_tier": "DELETE /api/v1/tier-prices/{name}/",
    "notify:acknowledge": "POST /api/v1/acknowledgements/",
    "notify:silence_new": "POST /api/v1/silences/",
    "alert_objects:cluster": "PATCH /api/v1/alert-clusters/{name}/",
    "alert_objects:check": "POST /api/v1/alert-clusters/{name}/check/",
    "notify:receiver_new": "POST /api/v1/receivers/",
    "notify:receiver": "PATCH /api/v1/receivers/{name}/",
    "notify:receiver_test": "POST /api/v1/receivers/{name}/test/",
    "notify:receiver_delete": "DELETE /api/v1/receivers/{name}/",
    "notify:route_new": "POST /api/v1/alert-routes/",
    "notify:route": "PATCH /api/v1/alert-routes/{route}/",
    "notify:route_delete": "DELETE /api/v1/alert-routes/{route}/",
    "notify:silence": "PATCH /api/v1/silences/{silence}/",
    "notify:silence_expire": "DELETE /api/v1/silences/{silence}/",
    "routing:explain": f"POST {ONE}explain/",
    "routing:prefix-name": f"PUT {ONE}prefixes/{{digest}}/",
    "routing:strategy": f"PATCH {ONE}",
    "traces:switch": f"PATCH {ONE}",
    "traces:export": f"GET {ONE}traces/export/",
    "traces:import": f"POST {ONE}traces/imports/",
    "traces:delete": f"DELETE {ONE}traces/",
    "endpoints:columns": TASTE,
    "web:saved-filters": TASTE,
    "endpoints:bulk": SHOWN,
    "endpoints:bulk-run": f"POST {ONE}scale/",
    "endpoints:new": "POST /api/v1/endpoints/",
    "endpoints:move": f"POST {ONE}move/",
    "endpoints:clone": "POST /api/v1/endpoints/",
    "endpoints:edit": f"PUT {ONE}",
    "endpoints:import": "POST /api/v1/endpoints/apply/",
    "endpoints:follow": "POST /api/v1/follows/",
    "endpoints:unfollow": "DELETE /api/v1/follows/{follow_id}/",
    "endpoints:look-new": "POST /api/v1/fit/",
    "endpoints:look": "POST /api/v1/fit/",
    "endpoints:preview-typed": "POST /api/v1/preview/",
    "endpoints:preview-change": "POST /api/v1/preview/",
    "endpoints:scale": f"POST {ONE}scale/",
    "endpoints:pause": f"POST {ONE}pause/",
    "endpoints:resume": f"POST {ONE}resume/",
    "endpoints:delete": f"DELETE {ONE}",
    "endpoints:abandon": f"DELETE {ONE}",
    "endpoints:rollback": f"POST {ONE}rollback/",
    "endpoints:drift-heal": f"POST {ONE}drift/heal/",
    "endpoints:drift-adopt": f"POST {ONE}drift/adopt/",
    "endpoints:prompt": f"POST {ONE}chat/",
    "endpoints:key-create": f"POST {KEYS}",
    "endpoints:key-edit": f"PATCH {KEYS}{{key_id}}/",
    "endpoints:key-rotate": f"POST {KEYS}{{key_id}}/rotate/",
    "endpoints:key-revoke": f"DELETE {KEYS}{{key_id}}/",
    "keys:group-create": f"POST {GROUPS}",
    "keys:group": f"PUT {GROUPS}{{group_id}}/",
    "keys:group-delete": f"DELETE {GROUPS}{{group_id}}/",
    "keys:key-create": f"POST {GROUPS}{{group_id}}/keys/",
    "keys:key-edit": f"PATCH {GROUPS}{{group_id}}/keys/{{key_id}}/",
    "keys:key-rotate": f"POST {GROUPS}{{group_id}}/keys/{{key_id}}/rotate/",
    "keys:key-revoke": f"DELETE {GROUPS}{{group_id}}/keys/{{key_id}}/",
}
# All pages of these are about how a person comes in; a program comes in by its token.
OF_PEOPLE = ("signon:", "mfa_", "accounts:profile")


def verbs() -> Iterator[str]:
    """Names of the page routes which take a form: they refuse to be looked at, or show a form
    which is sent to themselves."""
    client = browser("admin")
    client.raise_request_exception = False
    for path in sorted({place.path for place in places()}):
        if path.startswith(("/api/", "/login/", "/logout/")):
            continue
        shown = client.get(path)
        refused = shown.status_code == HTTPStatus.METHOD_NOT_ALLOWED
        page = not shown.streaming and shown["Content-Type"].startswith("text/html")
        if refused or (page and _sends_itself(shown.content.decode(), path)):
            yield resolve(path).view_name


def _sends_itself(html: str, path: str) -> bool:
    forms = re.findall(r"<form\b[^>]*method=[\"']post[\"'][^>]*>", html, re.IGNORECASE)
    actions = [re.search(r"\baction=[\"']([^\"']*)", form) for form in forms]
    return any(found is None or found[1] in ("", path) for found in actions)


def operations() -> set[str]:
    return {
        f"{method.upper()} {path}"
        for path, item in build_document()["paths"].items()
        for method in item
        if method in ("get", "post", "put", "patch", "delete")
    }


def test_every_page_form_has_its_operation_or_a_reason() -> None:
    make_endpoint("demo")
    found = [name for name in verbs() if not name.startswith(OF_PEOPLE)]
    missing = sorted(set(found) - set(PARITY))
    assert " ".join(missing) == "", "say in PARITY which operation does the same, or why none can"


def test_every_named_operation_exists() -> None:
    named = {line for line in PARITY.values() if "/api/" in line}
    assert named - operations() == set()
