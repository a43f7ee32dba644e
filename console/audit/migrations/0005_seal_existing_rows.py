"""Begin the chain with the rows that are there."""

from __future__ import annotations

from typing import Any

from django.db import migrations
from django.utils import timezone

from console.audit import chain


def seal(apps: Any, _schema_editor: Any) -> None:
    events = apps.get_model("audit", "AuditEvent").objects
    stored = chain.new_key()
    key = chain.open_key(stored)
    ends = apps.get_model("audit", "AuditChain")(pk=1, key=stored, linked_at=timezone.now())
    batch = []
    for event in events.order_by("pk").iterator(chain.BATCH):
        event.sequence = ends.last_sequence + 1
        event.seal = chain.compute_link_seal(key, ends.last_seal, event.sequence, event)
        ends.last_sequence, ends.last_seal = event.sequence, event.seal
        batch.append(event)
        if len(batch) == chain.BATCH:
            events.bulk_update(batch, ["sequence", "seal"], batch_size=100)
            batch.clear()
    events.bulk_update(batch, ["sequence", "seal"], batch_size=100)
    ends.seal = chain.compute_ends_seal(key, ends)
    ends.save()


class Migration(migrations.Migration):
    dependencies = [("audit", "0004_chain")]

    operations = [migrations.RunPython(seal, migrations.RunPython.noop)]
