import django.core.validators

import console.validators
from django.db import migrations, models
from django.db.models import F

GIB = 1024.0**3


def convert(apps, _editor):
    rows = apps.get_model("catalogue", "InstanceType").objects
    rows.update(memory_gib=F("memory_bytes") / GIB, gpu_memory_gib=F("gpu_bytes") / GIB)
    for row in rows.all():  # as REST and forms have always shown them
        sizes = {name: round(getattr(row, name), 3) for name in ("memory_gib", "gpu_memory_gib")}
        rows.filter(pk=row.pk).update(**sizes)


class Migration(migrations.Migration):
    dependencies = [("catalogue", "0002_prices_over_time")]

    operations = [
        migrations.AddField("InstanceType", "memory_gib", models.FloatField(default=0)),
        migrations.AddField("InstanceType", "gpu_memory_gib", models.FloatField(default=0)),
        migrations.RunPython(convert, migrations.RunPython.noop),
        migrations.RemoveField("InstanceType", "memory_bytes"),
        migrations.RemoveField("InstanceType", "gpu_bytes"),
        migrations.AlterField('instancetype', 'gpu', models.CharField(blank=True, default='', help_text='GPU model, such as H100; empty for none.', max_length=40, validators=[console.validators.plain_text], verbose_name='GPU')),
        migrations.AlterField('instancetype', 'gpu_memory_gib', models.FloatField(default=0, help_text='As reported by the driver.', validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(4096)], verbose_name='Memory per GPU (GiB)')),
        migrations.AlterField('instancetype', 'gpus', models.PositiveIntegerField(default=0, help_text='Per instance; 0 for none.', validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(16)], verbose_name='GPUs')),
        migrations.AlterField('instancetype', 'memory_gib', models.FloatField(help_text='Per instance.', validators=[django.core.validators.MinValueValidator(0.5), django.core.validators.MaxValueValidator(65536)], verbose_name='Memory (GiB)')),
        migrations.AlterField('instancetype', 'name', models.CharField(help_text='Value of the node label node.kubernetes.io/instance-type.', max_length=63, primary_key=True, serialize=False, validators=[django.core.validators.RegexValidator('\\A[A-Za-z0-9]([-A-Za-z0-9._]{0,61}[A-Za-z0-9])?\\Z', 'Invalid instance type name.', 'invalid_name')], verbose_name='Name')),
        migrations.AlterField('instancetype', 'price_date', models.DateField(blank=True, help_text='First day of this price, such as 2026-11-21; earlier days keep their price.', null=True, verbose_name='Valid from')),
        migrations.AlterField('instancetype', 'price_source', models.CharField(blank=True, default='', help_text='Origin of the price.', max_length=200, validators=[console.validators.plain_text], verbose_name='Price source')),
        migrations.AlterField('instancetype', 'price_usd_hour', models.FloatField(blank=True, help_text='On-demand price per instance in USD/h; empty: unknown.', null=True, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(100000)], verbose_name='Price (USD/h)')),
        migrations.AlterField('instancetype', 'vcpus', models.PositiveIntegerField(help_text='As reported by the node.', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(4096)], verbose_name='vCPUs')),
    ]
