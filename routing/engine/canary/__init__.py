"""Strategy canary in the router: assignment of sessions to arms, statistics per arm."""
