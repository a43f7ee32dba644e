"""The `emberline` command line over the REST API: `parser.build` adds every verb, `running.run`
runs one, on a console far away or, through `console.local_api`, on the one of this machine.
Must not know Django.
"""
