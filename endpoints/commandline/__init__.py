"""What `emberline` does only on the console's own machine, past the REST API."""
