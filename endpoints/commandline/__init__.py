"""The verbs of `emberline endpoint`, each: add its arguments, run, return the text to print."""
