"""TTFT targets at bucket bounds of the routers' histogram instead of the workers'."""

from django.db import migrations

_NEXT_BOUND = {0.25: 0.3, 2.5: 3.0, 40.0: 60.0}


def move_targets(apps, schema_editor):
    settings = apps.get_model("alerting", "RuleSetting")
    for setting in settings.objects.filter(rule="TTFTBudgetBurnFast"):
        target = setting.values.get("target")
        if target in _NEXT_BOUND:
            setting.values["target"] = _NEXT_BOUND[target]
            setting.save(update_fields=["values"])


class Migration(migrations.Migration):
    dependencies = [("alerting", "0001_alert_rules")]
    operations = [migrations.RunPython(move_targets, migrations.RunPython.noop)]
