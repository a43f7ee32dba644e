"""An API server with its controllers and scheduler in this process, over real HTTP.

As strict as what we do to it can notice: server-side apply with owners of fields, strict fields,
RBAC, quotas, watches that expire, graceful and cascading deletion. `plane.FakePlane` is the door.
"""
