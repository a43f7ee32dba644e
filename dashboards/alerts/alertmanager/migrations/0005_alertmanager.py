"""Alertmanager delivers: receivers get the fields of their kinds, deliveries and groups go.

Stored silences are handed to Alertmanager by the first pass that reaches it, except those that an
Alertmanager has already. Alerts seen in the last days become records.
"""

import hashlib

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


def convert_receivers(apps, _schema):
    for row in apps.get_model("notify", "Receiver").objects.all():
        routes = row.routes.all()
        row.send_resolved = any(one.send_resolved for one in routes) or not routes
        if row.kind == "email":
            row.config = {"to": ", ".join(row.to)}
        else:
            row.secrets = ["secret", "url"] if row.signed else ["url"]
        row.save()


def convert_alerts(apps, _schema):
    records = apps.get_model("notify", "AlertRecord")
    for row in apps.get_model("notify", "SeenAlert").objects.all():
        labels = dict(row.labels)
        labels.pop("team", None)
        mark = hashlib.blake2b(repr(sorted(labels.items())).encode(), digest_size=8).hexdigest()
        records.objects.get_or_create(
            fingerprint=mark,
            started_at=row.started_at,
            defaults={
                "rule": str(labels.get("alertname", ""))[:80],
                "endpoint": str(labels.get("endpoint", ""))[:63],
                "severity": str(labels.get("severity", ""))[:20],
                "labels": labels,
                "seen_at": row.seen_at,
                "ended_at": row.ended_at,
            },
        )


def keep_silences(apps, _schema):
    rows = apps.get_model("notify", "StoredSilence").objects
    rows.filter(ends_at__lte=django.utils.timezone.now()).delete()
    rows.exclude(remote={}).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("notify", "0004_sent"),
        ("accounts", "0004_team_grants"),
    ]

    operations = [
        migrations.AddField("receiver", "config", models.JSONField(blank=True, default=dict)),
        migrations.AddField("receiver", "secrets", models.JSONField(blank=True, default=list)),
        migrations.AddField("receiver", "send_resolved", models.BooleanField(default=True)),
        migrations.AlterField("receiver", "kind", models.CharField(max_length=20)),
        migrations.RunPython(convert_receivers, migrations.RunPython.noop),
        migrations.RemoveField("receiver", "to"),
        migrations.RemoveField("receiver", "signed"),
        migrations.RemoveField("route", "send_resolved"),
        migrations.DeleteModel("Delivery"),
        migrations.DeleteModel("Group"),
        migrations.CreateModel(
            "AlertRecord",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("fingerprint", models.CharField(max_length=16)),
                ("rule", models.CharField(max_length=80)),
                ("endpoint", models.CharField(blank=True, default="", max_length=63)),
                ("severity", models.CharField(blank=True, default="", max_length=20)),
                ("labels", models.JSONField()),
                ("started_at", models.DateTimeField()),
                ("seen_at", models.DateTimeField()),
                ("ended_at", models.DateTimeField(blank=True, db_index=True, null=True)),
                (
                    "team",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="accounts.team",
                    ),
                ),
            ],
        ),
        migrations.AddConstraint(
            "alertrecord",
            models.UniqueConstraint(
                fields=("fingerprint", "started_at"), name="one_record_a_firing"
            ),
        ),
        migrations.RunPython(convert_alerts, migrations.RunPython.noop),
        migrations.DeleteModel("SeenAlert"),
        migrations.RenameModel("Silence", "StoredSilence"),
        migrations.RunPython(keep_silences, migrations.RunPython.noop),
        migrations.RemoveField("storedsilence", "endpoint"),
        migrations.RemoveField("storedsilence", "matched_at"),
        migrations.RemoveField("storedsilence", "remote"),
        migrations.RemoveField("storedsilence", "created_by"),
        migrations.AlterModelOptions("storedsilence", {}),
        migrations.RemoveField("storedsilence", "created_at"),
        migrations.AlterField("storedsilence", "kind", models.CharField(max_length=20)),
        migrations.AlterField("storedsilence", "starts_at", models.DateTimeField()),
        migrations.AlterField("storedsilence", "ends_at", models.DateTimeField()),
        migrations.RenameModel("Dispatch", "AlertWatch"),
        migrations.CreateModel(
            "ConfigFile",
            [
                (
                    "id",
                    models.PositiveSmallIntegerField(
                        default=1, primary_key=True, serialize=False
                    ),
                ),
                ("digest", models.CharField(blank=True, default="", max_length=64)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("loaded", "Loaded"),
                            ("refused", "Refused"),
                            ("waiting", "Not yet read"),
                        ],
                        default="waiting",
                        max_length=8,
                    ),
                ),
                ("message", models.TextField(blank=True, default="")),
                ("at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
        ),
    ]
