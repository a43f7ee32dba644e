from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('whatif', '0002_survey'),
    ]

    operations = [
        migrations.AlterField('whatif', 'stage', models.CharField(blank=True, default='', max_length=120)),
        migrations.AlterField('whatif', 'state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('aborted', 'Aborted'), ('cancelled', 'Cancelled'), ('failed', 'Failed')], default='queued', max_length=10)),
    ]
