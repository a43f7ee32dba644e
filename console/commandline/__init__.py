"""The `emberline` command line, a client of the REST API.

`parser.build` adds every verb; `context.run` runs one against a remote console or, through
`console.local_api`, this machine's console.
"""
