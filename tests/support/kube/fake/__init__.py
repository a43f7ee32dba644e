"""Fake API server with controllers and scheduler in this process, over HTTP.

Covers what the product relies on: server-side apply with field ownership, strict fields, RBAC,
quotas, expiring watches, graceful and cascading deletion. Entry point: `plane.FakePlane`.
"""
