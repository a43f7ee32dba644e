import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


def keep(apps, _editor):
    """What was said counts from the day it was said; days reckoned with it stay as they are."""
    Price = apps.get_model("money", "TierPrice")
    for row in apps.get_model("money", "OldTierPrice").objects.all():
        Price.objects.create(
            name=row.name,
            since=row.changed_at.date(),
            usd_hour=row.usd_hour,
            machine=row.machine,
            disk_usd_gib_month=row.disk_usd_gib_month,
            source=row.source,
            changed_at=row.changed_at,
            changed_by_id=row.changed_by_id,
        )
    for day in apps.get_model("money", "CostDay").objects.exclude(tier=""):
        day.tier_place = "kept"
        day.tier_h = max(1, day.hours.bit_count())
        day.tier_price = None if day.tier_usd is None else day.tier_usd / day.tier_h
        day.save()


def number(name, **more):
    return migrations.AddField("costday", name, models.FloatField(default=0.0, **more))


class Migration(migrations.Migration):

    dependencies = [
        ('money', '0001_daily_costs'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RenameModel('TierPrice', 'OldTierPrice'),
        # Its index would have the name of the new one's.
        migrations.AlterField(
            model_name='oldtierprice',
            name='changed_by',
            field=models.ForeignKey(db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL),
        ),
        migrations.CreateModel(
            name='TierPrice',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=200)),
                ('since', models.DateField()),
                ('usd_hour', models.FloatField(blank=True, null=True)),
                ('machine', models.CharField(blank=True, default='', max_length=63)),
                ('disk_usd_gib_month', models.FloatField(blank=True, null=True)),
                ('source', models.CharField(blank=True, default='', max_length=200)),
                ('changed_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('changed_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ('name', '-since'),
                'constraints': [models.UniqueConstraint(fields=('name', 'since'), name='one_tier_price_a_day')],
            },
        ),
        migrations.AddField(
            model_name='costday',
            name='tier_place',
            field=models.CharField(blank=True, choices=[('here', 'This machine'), ('cluster', 'A cluster'), ('foreign', "Somebody's Redis"), ('gone', 'Deleted before it was looked at: how large it was is not known'), ('kept', 'Reckoned when only its cost was kept: stays as it is')], default='', max_length=10),
        ),
        number("tier_h"),
        number("tier_memory_h"),
        number("tier_disk_h"),
        number("tier_price", null=True),
        number("tier_memory_price", null=True),
        number("tier_disk_price", null=True),
        migrations.RunPython(keep, migrations.RunPython.noop),
        migrations.RemoveField(model_name='costday', name='tier_usd'),
        migrations.DeleteModel('OldTierPrice'),
    ]
