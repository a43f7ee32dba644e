from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('benchmarks', '0001_benchmarks'),
    ]

    operations = [
        migrations.RenameField(
            model_name='benchmark',
            old_name='abort_at',
            new_name='cancel_at',
        ),
        migrations.AlterField('benchmark', 'state', models.CharField(choices=[('queued', 'Queued'), ('running', 'Running'), ('done', 'Done'), ('aborted', 'Aborted'), ('cancelled', 'Cancelled'), ('failed', 'Failed')], default='queued', max_length=10)),
    ]
