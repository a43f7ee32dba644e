"""Receivers of every kind over real sockets: accepted, retried, failed, sent once."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.core.environment import Mail
from console.core.errors import Refused
from console.vault.models import SealedText
from dashboards.alerts.notify import deliveries, receivers
from dashboards.alerts.notify.models import Delivery, DeliveryState, Receiver
from dashboards.alerts.notify.protocol import message
from dashboards.alerts.notify.protocol.alert import Alert
from tests.support.console import person
from tests.support.http_stub import Stub, http_stub
from tests.support.smtp_stub import Post, smtp_stub

pytestmark = pytest.mark.django_db
SECRET = "a-shared-secret-of-two"


@pytest.fixture
def hook() -> Iterator[Stub]:
    with http_stub({"/hook": (200, "ok")}) as stub:
        yield stub


@pytest.fixture
def post(settings: Any) -> Iterator[Post]:
    with smtp_stub() as found:
        settings.MAIL = Mail("127.0.0.1", found.port, "none", sender="emberline@example.org")
        yield found


def receiver(**facts: Any) -> Receiver:
    return receivers.create(person("admin"), {"name": "on-call", **facts})


def body(*alerts: Alert) -> dict[str, Any]:
    reported = alerts or (Alert({"alertname": "A", "endpoint": "demo"}, {"summary": "s"}),)
    return message.build_document("on-call", "k", {"alertname": "A"}, reported, "https://c.example")


def owed(to: Receiver, **facts: Any) -> Delivery:
    return Delivery.objects.create(
        receiver=to, receiver_name=to.name, kind=to.kind, title="t", body=body(), **facts
    )


def tried(one: Delivery, *, later: bool = False) -> Delivery:
    if later:
        Delivery.objects.filter(pk=one.pk).update(next_at=timezone.now())
    deliveries.attempt_delivery(one.pk)
    one.refresh_from_db()
    return one


def test_webhook_gets_the_signed_alertmanager_document(hook: Stub) -> None:
    url = f"{hook.url}/hook?token=T0KEN"
    one = owed(receiver(kind="webhook", url=url, secret=SECRET))
    assert tried(one).state == DeliveryState.SENT
    (_, path, sent), headers = hook.seen[0], hook.headers[0]
    assert path == "/hook?token=T0KEN"
    assert json.loads(sent) == one.body
    assert headers["X-Emberline-Delivery"] == str(one.pk)
    stamp, _, mark = headers["X-Emberline-Signature"].partition(",v1=")
    signed = f"{stamp.removeprefix('t=')}.".encode() + sent
    assert mark == hmac.digest(SECRET.encode(), signed, "sha256").hex()
    tried(one, later=True)
    assert len(hook.seen) == 1  # not sent again


def test_document_version_is_4_for_all_alerts() -> None:
    now = timezone.now()
    ended = Alert({"alertname": "A", "endpoint": "demo"}, {}, now, now)
    found = body(Alert({"alertname": "B", "endpoint": "demo"}, {"summary": "x"}, now), ended)
    assert found["version"] == "4"
    assert found["status"] == "firing"
    assert [one["status"] for one in found["alerts"]] == ["firing", "resolved"]
    assert found["alerts"][0]["endsAt"] == "0001-01-01T00:00:00Z"
    assert found["commonLabels"] == {"endpoint": "demo"}
    assert body(ended)["status"] == "resolved"
    many = body(*(Alert({"alertname": f"A{n}"}) for n in range(150)))
    assert (len(many["alerts"]), many["truncatedAlerts"]) == (100, 50)
    assert "and 130 more" in message.format_text(many)


def test_slack_text_mentions_no_user(hook: Stub) -> None:
    to = receiver(kind="slack", url=f"{hook.url}/hook")
    one = owed(to)
    one.body = body(Alert({"alertname": "A", "pod": "<!channel>"}, {"summary": "a & b"}))
    one.save()
    assert tried(one).state == DeliveryState.SENT
    (attachment,) = json.loads(hook.seen[0][2])["attachments"]
    assert "&lt;!channel&gt;" in attachment["text"]
    assert "<" not in attachment["text"]
    assert attachment["title_link"] == "https://c.example/alerts/"


def test_one_mail_goes_to_all_addresses(post: Post) -> None:
    one = owed(receiver(kind="email", to="a@example.org, b@example.org"))
    one.body = body(Alert({"alertname": "A\r\nBcc: x@example.org"}))
    one.save()
    assert tried(one).state == DeliveryState.SENT
    (letter,) = post.letters
    assert post.recipients == ["a@example.org", "b@example.org"]
    assert letter["Subject"] == "[FIRING:1] A  Bcc: x@example.org"
    assert str(one.pk) in letter["Message-ID"]
    assert "https://c.example/alerts/silences/new/?alertname=A" in letter.get_content()


def test_permanently_rejected_mail_is_not_retried(post: Post, settings: Any) -> None:
    to = receiver(kind="email", to=["a@example.org"])
    post.refuse = {"RCPT": "550 no such box"}
    one = tried(owed(to))
    assert (one.state, "550" in one.error) == (DeliveryState.FAILED, True)
    post.refuse = {"RCPT": "451 later"}
    assert tried(owed(to)).state == DeliveryState.WAITING
    post.refuse = {"MAIL": "552 too much"}
    assert tried(owed(to)).state == DeliveryState.FAILED
    settings.MAIL = Mail()
    assert "EMBERLINE_SMTP_HOST" in tried(owed(to)).error
    settings.MAIL = Mail("127.0.0.1", 1, "none", sender="e@example.org")
    assert tried(owed(to)).state == DeliveryState.WAITING


def test_temporary_failures_are_retried_with_growing_delays(hook: Stub) -> None:
    hook.answers["/hook"] = (503, f"go away {SECRET}")
    one = owed(receiver(kind="webhook", url=f"{hook.url}/hook"))
    for pause_s in (10, 20, 40, 80):
        began = timezone.now()
        tried(one, later=True)
        assert one.state == DeliveryState.WAITING
        assert began <= one.next_at - timedelta(seconds=pause_s) <= timezone.now()
    assert (one.attempts, one.error) == (4, "The receiver returned HTTP 503.")
    hook.answers["/hook"] = (200, "")
    assert tried(one, later=True).state == DeliveryState.SENT
    assert one.error == ""


def test_retry_after_of_a_receiver_is_respected() -> None:
    with http_stub({"/hook": (429, "")}, {"Retry-After": "120"}) as busy:
        one = tried(owed(receiver(kind="webhook", url=f"{busy.url}/hook")))
    assert 100 < (one.next_at - timezone.now()).total_seconds() <= 120


@pytest.mark.parametrize("status", [400, 401, 404, 301])
def test_permanent_failures_are_not_retried(hook: Stub, status: int) -> None:
    hook.answers["/hook"] = (status, "")
    one = tried(owed(receiver(kind="webhook", url=f"{hook.url}/hook")))
    assert (one.state, str(status) in one.error) == (DeliveryState.FAILED, True)
    assert one.ended_at is not None


def test_outdated_messages_are_dropped(hook: Stub) -> None:
    hook.answers["/hook"] = (503, "")
    to = receiver(kind="webhook", url=f"{hook.url}/hook")
    old = timezone.now() - deliveries.GIVE_UP
    assert tried(owed(to, created_at=old)).state == DeliveryState.FAILED


def test_one_of_two_processes_sends_and_a_dead_one_delays_by_a_minute(hook: Stub) -> None:
    one = owed(receiver(kind="webhook", url=f"{hook.url}/hook"))
    stale = Delivery.objects.get(pk=one.pk)
    deliveries.attempt_delivery(stale.pk)
    deliveries.attempt_delivery(stale.pk)
    assert len(hook.seen) == 1
    dying = owed(Receiver.objects.get())
    Delivery.objects.filter(pk=dying.pk).update(
        attempts=1, next_at=timezone.now() + deliveries.LEASE
    )
    assert deliveries.due_deliveries(timezone.now()) == []
    assert deliveries.due_deliveries(timezone.now() + deliveries.LEASE) == [dying.pk]


def test_slow_receiver_delays_no_other(hook: Stub) -> None:
    slow = receiver(kind="webhook", url=f"{hook.url}/hook")
    other = receivers.create(
        person("admin"), {"name": "chat", "kind": "slack", "url": f"{hook.url}/hook"}
    )
    for _ in range(5):
        owed(slow)
    wanted = owed(other)
    found = deliveries.due_deliveries(timezone.now() + timedelta(seconds=1))
    assert len(found) == 3
    assert wanted.pk in found


def test_secrets_are_only_in_the_vault(hook: Stub) -> None:
    url = f"{hook.url}/hook/T0KEN"
    made = receiver(kind="webhook", url=url, secret=SECRET)
    assert made.shown == f"{hook.url}/…"
    assert SealedText.objects.count() == 2
    rows = str(list(Receiver.objects.values())) + str(list(SealedText.objects.values()))
    assert "T0KEN" not in rows
    assert SECRET not in rows
    target = deliveries.delivery_target(made)
    assert (target.url, target.secret) == (url, SECRET)
    assert "T0KEN" not in repr(target)
    SealedText.objects.filter(name__endswith="/secret").delete()
    assert "Enter it again" in tried(owed(made)).error  # instead of unsigned
    receivers.delete(person("admin"), "on-call")
    assert not SealedText.objects.exists()


def test_disabled_or_deleted_receiver_gets_nothing(hook: Stub) -> None:
    to = receiver(kind="webhook", url=f"{hook.url}/hook")
    one, two = owed(to), owed(to)
    receivers.change(person("admin"), "on-call", {"enabled": False})
    assert "disabled" in tried(one).error
    receivers.delete(person("admin"), "on-call")
    assert "removed" in tried(two).error
    assert hook.seen == []


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"kind": "pigeon"}, "kind"),
        ({"kind": "webhook"}, "url"),
        ({"kind": "webhook", "url": "http://169.254.169.254/x"}, "url"),
        ({"kind": "webhook", "url": "http://h.example/", "secret": "short"}, "secret"),
        ({"kind": "webhook", "url": "http://h.example/", "to": ["a@b.example"]}, "to"),
        ({"kind": "slack", "url": "http://h.example/", "secret": SECRET}, "secret"),
        ({"kind": "email", "to": ["nobody"]}, "to"),
        ({"kind": "email", "to": []}, "to"),
        ({"kind": "email"}, "to"),
        ({"kind": "email", "to": ["a@b.example"], "url": "http://h.example/"}, "url"),
        ({"kind": "email", "to": ["a@b.example"], "name": "On Call"}, "name"),
        ({"kind": "email", "to": ["a@b.example"], "enabled": "yes"}, "enabled"),
        ({"kind": "email", "to": ["a@b.example"], "colour": "red"}, "colour"),
    ],
)
def test_invalid_receiver_is_rejected(facts: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused) as refused:
        receiver(**facts)
    (problem,) = refused.value.errors
    assert problem.field == field
    assert problem.remedy
    assert not Receiver.objects.exists()
    assert not SealedText.objects.exists()


def test_old_deliveries_are_pruned_and_pending_ones_are_not(hook: Stub) -> None:
    to = receiver(kind="webhook", url=f"{hook.url}/hook")
    past = timezone.now() - timedelta(days=31)
    owed(to, state=DeliveryState.SENT, created_at=past)
    kept = {owed(to, created_at=past).pk, owed(to, state=DeliveryState.SENT).pk}
    deliveries.prune()
    assert set(Delivery.objects.values_list("pk", flat=True)) == kept
