import console.validators
import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('money', '0004_name_cost_places'),
    ]

    operations = [
        migrations.AlterField('budget', 'name', models.CharField(error_messages={'unique': 'A budget with this name exists.'}, help_text='At most 60 characters, unique.', max_length=60, unique=True, validators=[console.validators.plain_text], verbose_name='Name')),
        migrations.AlterField('budget', 'subject', models.CharField(blank=True, default='', help_text='Team slug, tag as KEY=VALUE, or endpoint name; empty for all.', max_length=200, validators=[console.validators.plain_text], verbose_name='Subject')),
        migrations.AlterField('budget', 'usd', models.FloatField(help_text='USD per calendar month, above 0.', validators=[django.core.validators.MinValueValidator(0.01), django.core.validators.MaxValueValidator(1000000000)], verbose_name='Budget (USD/month)')),
        migrations.AlterField('budget', 'whose', models.CharField(choices=[('all', 'All endpoints'), ('team', 'Team'), ('tag', 'Tag'), ('endpoint', 'Endpoint')], default='all', error_messages={'invalid_choice': 'Choose the scope: all, team, tag or endpoint.'}, help_text='One of: all, team, tag, endpoint.', max_length=10, verbose_name='Scope')),
        migrations.AlterField('tierprice', 'disk_usd_gib_month', models.FloatField(blank=True, help_text='USD per month and GiB of disk.', null=True, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(1000000000)], verbose_name='Disk price (USD/GiB/month)')),
        migrations.AlterField('tierprice', 'machine', models.CharField(blank=True, default='', help_text='Instance type of its nodes, as under Instance types.', max_length=63, validators=[console.validators.plain_text], verbose_name='Instance type')),
        migrations.AlterField('tierprice', 'name', models.CharField(help_text='Name of the cache tier, or redis:HOST:PORT.', max_length=200, validators=[console.validators.plain_text], verbose_name='Name')),
        migrations.AlterField('tierprice', 'since', models.DateField(help_text='First day of this price, such as 2026-11-21; default: today. Earlier days keep the earlier price.', verbose_name='Valid from')),
        migrations.AlterField('tierprice', 'source', models.CharField(blank=True, default='', help_text='Source of the price.', max_length=200, validators=[console.validators.plain_text], verbose_name='Source')),
        migrations.AlterField('tierprice', 'usd_hour', models.FloatField(blank=True, help_text='USD per hour of the whole tier; empty: calculated from the instance type.', null=True, validators=[django.core.validators.MinValueValidator(0), django.core.validators.MaxValueValidator(1000000000)], verbose_name='Price (USD/h)')),
    ]
