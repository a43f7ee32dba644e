"""Static files with a hash in their name where `collectstatic` ran, plain names where it did not.

Promises that a fresh checkout serves pages before (or without) `collectstatic`.
"""

from __future__ import annotations

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStorage(CompressedManifestStaticFilesStorage):
    manifest_strict = False

    def stored_name(self, name: str) -> str:
        """The hashed name from the manifest; the finders serve a file the manifest lacks."""
        known = self.hash_key(self.clean_name(name))
        return super().stored_name(name) if known in self.hashed_files else name
