from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("whatif", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="whatif",
            name="kind",
            field=models.CharField(
                choices=[("analysis", "Analysis"), ("survey", "Survey")],
                default="analysis",
                max_length=10,
            ),
        ),
        migrations.AddField(
            model_name="whatif",
            name="candidates",
            field=models.JSONField(blank=True, default=list),
        ),
    ]
