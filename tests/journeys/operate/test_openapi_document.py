"""The API held to its own OpenAPI document by schemathesis, operation by operation.

Every operation is called with valid and invalid data, over an endpoint, a cache tier and a cluster
that are there. `EMBERLINE_SCHEMATHESIS=200` looks longer.
"""

from __future__ import annotations

import os
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from django.db import transaction
from django.test.client import ClientHandler
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from console.api.access import CallerThrottle
from console.api.schema import build_document
from console.people import token_actions as accounts
from tests.support.console import make_endpoint, person, program

EXAMPLES = int(os.environ.get("EMBERLINE_SCHEMATHESIS", "3"))
SHARES = 8
"""Preparing the database takes as long as an operation; several processes can share them."""
pytestmark = [pytest.mark.django_db, pytest.mark.timeout(600)]

_handler = ClientHandler(enforce_csrf_checks=False)


def in_process(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Django through its test client: in the test's transaction."""
    response = _handler(environ)
    start_response(f"{response.status_code} {response.reason_phrase}", list(response.items()))
    body = response.getvalue()
    return [body]


# Not at import, nor schemathesis: every process collects this module, few run its tests.
@cache
def operations() -> dict[str, Any]:
    """Return the operations of the document by label."""
    import schemathesis

    schema = schemathesis.openapi.from_dict(deepcopy(build_document()))
    schema.app = in_process
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    """Of an admin, in a console with something of each kind."""
    monkeypatch.setattr(CallerThrottle, "get_rate", lambda self: None)
    admin = program("admin")
    make_endpoint("demo")
    for url, data in (
        ("cache-tiers", {"name": "demo"}),
        ("clusters", {"name": "demo", "kind": "in-cluster", "reach": "pods"}),
    ):
        assert admin.post(f"/api/v1/{url}/", data).status_code == 201
    return accounts.create_token(person("admin"), "contract", "admin")[1]


@pytest.mark.parametrize("share", range(SHARES))
def test_api_matches_its_document(share: int, token: str) -> None:
    """Each operation starts from the same rows: its transaction is rolled back."""
    wrong = []
    for label in list(operations())[share::SHARES]:
        try:
            with transaction.atomic():
                check(operations()[label], token)
                transaction.set_rollback(True)
        except Exception as error:
            error.add_note(label)
            wrong.append(error)
    if wrong:
        raise ExceptionGroup("Responses differ from the document", wrong)


def check(operation: Any, token: str) -> None:
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.core.parameters import ParameterLocation
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    good = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    bad = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @given(st.one_of(good, bad))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        path = case.meta.components.get(ParameterLocation.PATH)
        if path and path.mode is GenerationMode.POSITIVE and "name" in case.path_parameters:
            case.path_parameters["name"] = "demo"
        # A cursor is not made by hand; a stream ends by its reader, who is none here.
        for name in ("cursor", "watch"):
            (case.query or {}).pop(name, None)
        left_out = [not_a_server_error]
        left_out += [positive_data_acceptance] if has_rules(operation) else []
        case.call_and_validate(
            headers={"Authorization": f"Bearer {token}"},
            excluded_checks=left_out,
            additional_checks=[no_crash],
        )

    ask()


def no_crash(_context: Any, response: Any, _case: Any) -> None:
    """503 of a router that is away, and the like, is an answer when it is documented."""
    assert response.status_code not in (500, 501, 504), response.text


def has_rules(operation: Any) -> bool:
    """What a schema cannot tell decides, too: what the machine holds, which clusters there are,
    which fields go together, whether a log is there. Lists have none: what fits their schema is
    answered. (The examples of the document are held to be accepted by a test of their own.)"""
    listed = any(one.name == "page_size" for one in operation.query)
    # A schema's moment may be a leap second, or of a year that is no moment here.
    moments = any(one.definition["schema"].get("format") for one in operation.query)
    return moments or not listed
