"""The tables exist since routing 0003; only their rows' app changes."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        ('routing', '0004_traces_leave'),
        ('endpoints', '0008_key_usage_estimates'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(state_operations=[
            migrations.CreateModel(
                name='ImportedTrace',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('name', models.CharField(max_length=80)),
                    ('source_format', models.CharField(max_length=16)),
                    ('imported_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('requests', models.PositiveIntegerField()),
                    ('sessions', models.PositiveIntegerField()),
                    ('prompt_tokens', models.PositiveBigIntegerField()),
                    ('output_tokens', models.PositiveBigIntegerField()),
                    ('duration_s', models.FloatField()),
                    ('size', models.PositiveIntegerField()),
                    ('data', models.BinaryField()),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='imported_traces', to='endpoints.endpoint')),
                    ('imported_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ],
                options={
                    'db_table': 'routing_importedtrace',
                    'ordering': ('name',),
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'name'), name='imported_trace_once')],
                },
            ),
            migrations.CreateModel(
                name='TracePiece',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('router', models.CharField(max_length=40)),
                    ('number', models.PositiveBigIntegerField()),
                    ('stream', models.PositiveBigIntegerField()),
                    ('hour', models.DateTimeField()),
                    ('first', models.DateTimeField()),
                    ('last', models.DateTimeField()),
                    ('requests', models.PositiveIntegerField()),
                    ('prompt_tokens', models.PositiveBigIntegerField()),
                    ('cached_tokens', models.PositiveBigIntegerField()),
                    ('output_tokens', models.PositiveBigIntegerField()),
                    ('lost', models.PositiveIntegerField()),
                    ('size', models.PositiveIntegerField()),
                    ('data', models.BinaryField()),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='trace_pieces', to='endpoints.endpoint')),
                ],
                options={
                    'db_table': 'routing_tracepiece',
                    'ordering': ('router', 'number'),
                    'indexes': [models.Index(fields=['endpoint', 'hour'], name='trace_piece_hour')],
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'router', 'number'), name='trace_piece_once')],
                },
            ),
            migrations.CreateModel(
                name='TraceSource',
                fields=[
                    ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                    ('router', models.CharField(max_length=40)),
                    ('url', models.CharField(max_length=200)),
                    ('collected', models.PositiveBigIntegerField(default=0)),
                    ('lost', models.PositiveBigIntegerField(default=0)),
                    ('active', models.BooleanField(default=True)),
                    ('seen_at', models.DateTimeField(default=django.utils.timezone.now)),
                    ('endpoint', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='trace_sources', to='endpoints.endpoint')),
                ],
                options={
                    'db_table': 'routing_tracesource',
                    'ordering': ('seen_at',),
                    'constraints': [models.UniqueConstraint(fields=('endpoint', 'router'), name='trace_source_once')],
                },
            ),
        ]),
    ]
