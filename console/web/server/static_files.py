"""Static files with hashed names after `collectstatic`, plain names without it."""

from __future__ import annotations

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStorage(CompressedManifestStaticFilesStorage):
    manifest_strict = False

    def stored_name(self, name: str) -> str:
        """Return the manifest's hashed name; the finders serve files outside the manifest."""
        name_hash = self.hash_key(self.clean_name(name))
        return super().stored_name(name) if name_hash in self.hashed_files else name
