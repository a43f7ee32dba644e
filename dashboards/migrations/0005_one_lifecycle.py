from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('dashboards', '0004_auto_calibration'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='calibration',
            options={'ordering': ('-created_at', '-id')},
        ),
        migrations.AlterModelOptions(
            name='proofrun',
            options={'ordering': ('-created_at', '-id')},
        ),
        migrations.AddField(
            model_name='calibration',
            name='finished_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='calibration',
            name='started_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='proofrun',
            name='started_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='calibration',
            name='state',
            field=models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('aborted', 'Aborted'), ('cancelled', 'Cancelled'), ('failed', 'Failed')], default='queued', max_length=10),
        ),
        migrations.AlterField(
            model_name='proofrun',
            name='state',
            field=models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('aborted', 'Aborted'), ('cancelled', 'Cancelled'), ('failed', 'Failed')], default='queued', max_length=10),
        ),
    ]
