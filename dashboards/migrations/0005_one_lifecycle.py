from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('dashboards', '0004_auto_calibration'),
    ]

    operations = [
        migrations.AlterModelOptions('calibration', {'ordering': ('-created_at', '-id')}),
        migrations.AlterModelOptions('proofrun', {'ordering': ('-created_at', '-id')}),
        migrations.AddField('calibration', 'finished_at', models.DateTimeField(blank=True, null=True)),
        migrations.AddField('calibration', 'started_at', models.DateTimeField(blank=True, null=True)),
        migrations.AddField('proofrun', 'started_at', models.DateTimeField(blank=True, null=True)),
        migrations.AlterField('calibration', 'state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('aborted', 'Aborted'), ('cancelled', 'Cancelled'), ('failed', 'Failed')], default='queued', max_length=10)),
        migrations.AlterField('proofrun', 'state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('aborted', 'Aborted'), ('cancelled', 'Cancelled'), ('failed', 'Failed')], default='queued', max_length=10)),
    ]
