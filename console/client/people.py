"""Users, teams, tokens and the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from console.client.endpoints import ResourceClient

Row = dict[str, Any]


class UserClient(ResourceClient):
    path = "users/"

    def list(self, **filters: Any) -> Iterator[Row]:
        return self.http.pages(self.path, filters)

    def get(self, username: str) -> Row:
        return cast(Row, self.http.get(self._at(username)))

    def create(self, username: str, role: str = "") -> Row:
        """Create a user. Only this response contains `password`."""
        data = {"username": username, **({"role": role} if role else {})}
        return cast(Row, self.http.send("POST", self.path, data, once=True).body)

    def change(self, username: str, facts: Mapping[str, Any]) -> Row:
        """Change `role` or `active`; False ends all sessions and blocks the login."""
        return cast(Row, self.http.send("PATCH", self._at(username), facts).body)

    def reset_password(self, username: str) -> str:
        """Return the new password, which is not available again."""
        return str(self.new_password(username)["password"])

    def new_password(self, username: str) -> Row:
        """Return `password`, which is not available again, and the number of ended sessions and
        tokens.
        """
        return cast(Row, self.http.send("POST", self._at(username, "password")).body)


class Teams(ResourceClient):
    path = "teams/"

    def list(self) -> Iterator[Row]:
        return self.http.pages(self.path)

    def get(self, slug: str) -> Row:
        return cast(Row, self.http.get(self._at(slug)))

    def create(self, facts: Mapping[str, Any]) -> Row:
        return cast(Row, self.http.send("POST", self.path, facts, once=True).body)

    def change(self, slug: str, facts: Mapping[str, Any]) -> Row:
        return cast(Row, self.http.send("PATCH", self._at(slug), facts).body)

    def delete(self, slug: str) -> None:
        self.http.send("DELETE", self._at(slug))

    def members(self, slug: str) -> Iterator[Row]:
        return self.http.pages(self._at(slug, "members"))

    def set_member(self, slug: str, username: str, role: str) -> Row:
        path = self._at(slug, "members", username)
        return cast(Row, self.http.send("PUT", path, {"role": role}).body)

    def remove_member(self, slug: str, username: str) -> None:
        self.http.send("DELETE", self._at(slug, "members", username))


class TokenClient(ResourceClient):
    path = "tokens/"

    def list(self, **filters: Any) -> Iterator[Row]:
        return self.http.pages(self.path, filters)

    def create(self, facts: Mapping[str, Any]) -> Row:
        """Create a token. Only this response contains `token`."""
        return cast(Row, self.http.send("POST", self.path, facts, once=True).body)

    def revoke(self, token_id: str) -> None:
        self.http.send("DELETE", self._at(token_id))


class Audit(ResourceClient):
    path = "audit/"

    def list(self, **filters: Any) -> Iterator[Row]:
        """Yield entries, latest first."""
        return self.http.pages(self.path, filters)
