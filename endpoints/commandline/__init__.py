"""Commands of `emberline` that run on the console's machine and bypass the REST API."""
