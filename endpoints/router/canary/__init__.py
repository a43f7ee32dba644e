"""Strategy canaries of endpoints: start, collection of results, automatic stop and promotion."""
