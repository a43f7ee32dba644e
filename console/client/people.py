"""Users, teams, tokens and the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from console.client.http import Document, ObjectClient, ResourceClient


class UserClient(ResourceClient):
    path = "users/"

    def list(self, **filters: Any) -> Iterator[Document]:
        return self.http.pages(self.path, filters)

    def get(self, username: str) -> Document:
        return self._get(self._at(username))

    def create(self, username: str, role: str = "") -> Document:
        """Create a user. Only this response contains `password`."""
        data = {"username": username, **({"role": role} if role else {})}
        return self._send("POST", self.path, data, once=True)

    def change(self, username: str, facts: Mapping[str, Any]) -> Document:
        """Change `role` or `active`; False ends all sessions and blocks the login."""
        return self._send("PATCH", self._at(username), facts)

    def reset_password(self, username: str) -> str:
        """Return the new password, which is not available again."""
        return str(self.new_password(username)["password"])

    def new_password(self, username: str) -> Document:
        """Return `password`, which is not available again, and the number of ended sessions and
        tokens.
        """
        return self._send("POST", self._at(username, "password"))


class Teams(ObjectClient[Document]):
    path = "teams/"

    def members(self, slug: str) -> Iterator[Document]:
        return self.http.pages(self._at(slug, "members"))

    def set_member(self, slug: str, username: str, role: str) -> Document:
        return self._send("PUT", self._at(slug, "members", username), {"role": role})

    def remove_member(self, slug: str, username: str) -> None:
        self.http.send("DELETE", self._at(slug, "members", username))


class TokenClient(ObjectClient[Document]):
    """API tokens; only the response of `create` contains `token`."""

    path = "tokens/"

    def revoke(self, token_id: str) -> None:
        self.delete(token_id)


class Audit(ResourceClient):
    path = "audit/"

    def list(self, **filters: Any) -> Iterator[Document]:
        """Yield entries, latest first."""
        return self.http.pages(self.path, filters)
