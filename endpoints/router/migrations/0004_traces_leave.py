"""Traces become rows of the app traces; their tables stay as they are."""

from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [("routing", "0003_recorded_traffic")]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.DeleteModel(name=name)
                for name in ("ImportedTrace", "TracePiece", "TraceSource")
            ]
        )
    ]
