"""Wire format of cache nodes: RESP framing, command table, value envelope. No I/O, standard library
only.
"""
