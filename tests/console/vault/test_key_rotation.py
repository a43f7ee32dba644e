"""After a key rotation no stored secret of any app needs the old key."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.apps import apps
from django.conf import settings as live
from pytest_django import Settings

from console.accounts.models import User
from console.audit.models import AuditEvent
from console.audit.record import record
from console.clusters import actions as clusters
from console.commandline.context import FAILED, CommandError
from console.launcher.layout import ROOT
from console.signon import factors, oidc
from console.signon.core.configuration import Provider
from console.system import preflight
from console.vault import encryption, key_rotation, store
from dashboards.alerts.alertmanager import receivers
from dashboards.alerts.alertmanager.models import Receiver
from dashboards.prometheus.sources import actions as sources
from dashboards.prometheus.sources import selectors
from dashboards.prometheus.sources.models import MetricsSource
from endpoints.commandline.local_machine import ThisMachine
from tests.console.clusters.conftest import api, kubeconfig  # noqa: F401
from tests.console.signon.test_factors import with_factor
from tests.support.console import person, program

pytestmark = pytest.mark.django_db
NEW, LATER = "n" * 32, "l" * 32
ACME = Provider("acme", "Acme", "https://acme.example", "id")
TOKEN = re.compile(r"gAAAAA[\w-]{60,}=*")  # prefix of Fernet texts, whatever the key

# Modules that encrypt, and their number of calls. A new module registers its columns with
# `key_rotation.register`, and the database below gets one of its rows.
SEALERS = {
    "console.api.idempotency": 1,
    "console.audit.chain": 1,
    "console.clusters.actions": 1,
    "console.vault.key_rotation": 1,
    "console.signon.factors": 1,
    "console.vault.store": 1,
    "dashboards.prometheus.sources.actions": 1,
}


def keys(settings: Settings, *given: str) -> None:
    settings.EMBERLINE = replace(live.EMBERLINE, encryption_keys=given)


@pytest.fixture
def encrypted_rows() -> dict[str, Any]:
    """Create one row of every kind with encrypted text."""
    ada = person("admin")
    cluster = clusters.add_cluster(
        ada, "work", {"kind": "kubeconfig", "kubeconfig": kubeconfig("https://k.example")}
    )
    login = {"url": "http://127.0.0.1:1", "auth": "bearer", "secret": "of-mimir"}
    source = sources.add(ada, "mimir", login)
    hook = {"name": "hook", "url": "https://h.example/T0KEN", "secret": "of-the-receiver-0"}
    receiver = receivers.create(ada, hook)
    oidc.store_secret("acme", "of-acme")
    recovery = with_factor(ada)
    bob = User.objects.create_user("bob")  # codes moved by the migration
    Authenticator.objects.create(
        user=bob,
        type=Authenticator.Type.RECOVERY_CODES,
        data={"migrated_codes": [factors.FactorAdapter().encrypt("abcdefghij")]},
    )
    body = {"name": "mail", "kind": "webhook", "url": "https://h.example/x"}
    program("admin").post("/api/v1/receivers/", body, headers={"Idempotency-Key": "k"})
    return {"cluster": cluster, "source": source, "receiver": receiver, "recovery": recovery}


def sealed_texts() -> dict[tuple[str, str], set[str]]:
    """Find all encrypted texts by their format, by model and column."""
    found: dict[tuple[str, str], set[str]] = {}
    for model in apps.get_models():
        for row in model._default_manager.values():
            for column, value in row.items():
                texts = set(TOKEN.findall(str(value)))
                if texts:
                    found.setdefault((model._meta.label, column), set()).update(texts)
    return found


def test_every_encrypted_value_is_reencrypted(
    encrypted_rows: dict[str, Any], settings: Settings
) -> None:
    old = live.EMBERLINE.encryption_keys
    before = sealed_texts()
    reported = {
        (one.model._meta.label, column)
        for one in key_rotation.registered()
        for column in one.columns
    }
    assert reported == set(before), "a column that no room registered, or none of its rows is here"
    keys(settings, NEW, *old)
    key_rotation.rekey(record)
    after = sealed_texts()
    assert set(after) == set(before)
    for where, texts in after.items():
        assert len(texts) == len(before[where]), where
        assert not texts & before[where], where
    keys(settings, NEW)  # without the old key
    encrypted_rows["cluster"].refresh_from_db()
    assert "s3cret" in encrypted_rows["cluster"].access().kubeconfig
    assert selectors.make_login(MetricsSource.objects.get()).secret == "of-mimir"
    receiver = encrypted_rows["receiver"]
    assert store.get(receiver.secret_name("url")) == "https://h.example/T0KEN"
    assert store.get(receiver.secret_name("secret")) == "of-the-receiver-0"
    assert oidc.secret_source(ACME) == "vault"
    assert factors.use_code(person("admin"), encrypted_rows["recovery"][0])
    assert factors.use_code(User.objects.get(username="bob"), "ABCDE-fghij")
    body = {"name": "mail", "kind": "webhook", "url": "https://h.example/x"}
    again = program("admin").post("/api/v1/receivers/", body, headers={"Idempotency-Key": "k"})
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (201, "true")


def test_rotation_reports_its_work_and_runs_once(
    encrypted_rows: dict[str, Any], settings: Settings
) -> None:
    keys(settings, NEW, *live.EMBERLINE.encryption_keys)
    reported = ThisMachine().rekey()
    receiver = encrypted_rows["receiver"].pk
    titles = {
        *(
            "cluster/work",
            "metrics-source/mimir",
            "user/one-admin",
            "user/bob",
            "answers/kept",
            "audit/log",
        ),
        *("vault/signon/acme/client_secret", f"vault/notify/{receiver}/url"),
        *("user/bob", f"vault/notify/{receiver}/secret"),
        f"vault/notify/{Receiver.objects.get(name='mail').pk}/url",
    }
    assert reported == f"Re-encrypted: {', '.join(rekeyed_order(reported))}."
    assert set(rekeyed_order(reported)) == titles
    trail = AuditEvent.objects.filter(verb="secret.rekey")
    assert sorted(trail.values_list("target", flat=True)) == sorted(titles)
    assert "T0KEN" not in str(list(trail.values()))
    assert ThisMachine().rekey() == "All secrets are encrypted with the first key."
    assert trail.count() == len(titles)


def rekeyed_order(text: str) -> list[str]:
    return text.removeprefix("Re-encrypted: ").removesuffix(".").split(", ")


def test_undecryptable_value_is_named_and_blocks_nothing(
    encrypted_rows: dict[str, Any], settings: Settings
) -> None:
    old = live.EMBERLINE.encryption_keys
    keys(settings, LATER)
    oidc.store_secret("lost", "x")
    source = encrypted_rows["source"]
    MetricsSource.objects.update(sealed={**source.sealed, "key": encryption.seal("y", "elsewhere")})
    keys(settings, NEW, *old)
    with pytest.raises(CommandError) as wrong:
        ThisMachine().rekey()
    assert wrong.value.exit_code == FAILED
    done, lost = str(wrong.value).split(" No configured key decrypts ")
    assert "cluster/work" in done
    assert "metrics-source/mimir" in done, "what can be read of it"
    assert "metrics-source/mimir" in lost
    assert "vault/signon/lost/client_secret" in lost
    assert "earlier key" in lost
    keys(settings, NEW)
    row = MetricsSource.objects.get()
    assert encryption.unseal(row.sealed["secret"], row.purpose("secret")) == "of-mimir"


def test_doctor_states_whether_an_earlier_key_can_be_removed(
    encrypted_rows: dict[str, Any], settings: Settings
) -> None:
    def report() -> str:
        (line,) = (str(one) for one in preflight.ask() if one.subject == "stored secrets")
        return line

    old = live.EMBERLINE.encryption_keys
    assert report() == "ok    stored secrets: all encrypted with the current key"
    keys(settings, NEW, *old)
    before = sealed_texts()
    assert report().startswith("note  stored secrets: those of ")
    assert " and 5 more still require a previous key. Run `emberline rekey`" in report()
    assert sealed_texts() == before, "it only looks"
    key_rotation.rekey(record)
    assert report().startswith("ok")
    keys(settings, LATER)
    assert "no configured key decrypts those of " in report()
    assert "Append the previous key" in report()


def test_every_encrypting_module_is_registered() -> None:
    """Fails for new encryption code until it is registered here."""
    rooms = ("console", "endpoints", "cachetier", "routing", "dashboards")
    files = (file for room in rooms for file in (ROOT / room).rglob("[!0]*.py"))  # no migration
    found = {_module(file): _seals(file.read_text(encoding="utf-8")) for file in files}
    assert {module: count for module, count in found.items() if count} == SEALERS


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def _seals(text: str) -> int:
    if "encryption" not in text:
        return 0
    called = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return sum(getattr(one, "attr", getattr(one, "id", "")) == "seal" for one in called)
