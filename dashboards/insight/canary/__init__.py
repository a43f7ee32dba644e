"""Page of an endpoint's strategy canary: settings, comparison of the arms, charts over time."""
