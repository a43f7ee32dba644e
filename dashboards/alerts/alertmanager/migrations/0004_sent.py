from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('notify', '0003_acknowledgements'),
    ]

    operations = [
        migrations.RenameField('group', 'told', 'sent'),
        migrations.RenameField('group', 'told_at', 'sent_at'),
    ]
