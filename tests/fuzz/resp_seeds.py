"""Seeds of the cache node's fuzz targets: small valid inputs that reach all branches."""

_SET = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60\r\n" + b"v" * 60 + b"\r\n"
_WIRES = (
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n" * 2,
    b"set k v ex 5\r\nget k\r\n\r\nmget k k nokey\n",
    _SET + b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n",
    b"*4\r\n$5\r\nSETEX\r\n$1\r\nk\r\n$2\r\n10\r\n$70\r\n" + b"w" * 70 + b"\r\n",
    b"*5\r\n$3\r\nSET\r\n$4\r\nemb1\r\n$49\r\n" + b"x" * 49 + b"\r\n$2\r\nNX\r\n$2\r\nNX\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$400\r\n" + b"y" * 400 + b"\r\nPING\r\n",
    b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$501\r\n",
    b"*0\r\n*-1\r\n*1\r\n$0\r\n\r\n*1\r\n$-1\r\n",
    b"*2\r\n$60\r\n" + b"n" * 60 + b"\r\n$1\r\nk\r\nPING\r\n",
    b"HELLO 3 AUTH default x SETNAME me\r\nCLIENT LIST\r\nCLIENT KILL ID 1 SKIPME no\r\nINFO\r\n",
    b"SCAN 0 MATCH *k* COUNT 5 TYPE string\r\nCONFIG GET *\r\nCOMMAND INFO get client|id\r\n",
    b"COMMAND DOCS set\r\nMEMORY USAGE k SAMPLES 5\r\nGETRANGE k 0 -1\r\nSTRLEN k\r\n"
    b"KEYS [a-k]\r\n",
    b"EXPIRE k 5 NX\r\nPEXPIREAT k 1\r\nDEL k\r\nFLUSHALL\r\nRESET\r\nQUIT\r\nPING\r\n",
)
_PATTERNS = (b"a*b?c[d-f]\nabxce", b"[^a]\\*\nb*", b"*a*a*a*b\naaaaaaaaaa", b"[]\n]", b"[z-a\nb")
SEEDS: dict[str, tuple[bytes, ...]] = {
    "resp": tuple(bytes([pick]) + b"\x20\x60\xb0" + wire for wire in _WIRES for pick in (0, 1)),
    "sessions": tuple(
        bytes([pick]) + b"\x20\x60\xb0" + wire for wire in _WIRES for pick in (0, 30)
    ),
    "globs": _PATTERNS,
}
WORDS: tuple[bytes, ...] = (
    *(b"*%d\r\n" % count for count in (-1, 0, 1, 2, 3, 5, 50, 51)),
    *(b"$%d\r\n" % count for count in (-1, 0, 1, 3, 47, 48, 49, 56, 60, 300, 301, 500, 501)),
    b"$3\r\nSET\r\n", b"$3\r\nGET\r\n", b"$1\r\nk\r\n", b"$4\r\nMGET\r\n", b"$5\r\nSETEX\r\n",
    b"$5\r\nemb1:\r\n", b"\r\n", b"\n", b"\r", b"*", b"$", b"x" * 48, b"x" * 60 + b"\r\n",
    b"SET k ", b"GET k\r\n", b"MGET k k k\r\n", b" EX 10", b" PXAT ", b" NX", b" XX", b" KEEPTTL",
    b"HELLO 3\r\n", b"HELLO 2\r\n", b" AUTH default x", b"CLIENT ", b"COMMAND ", b"CONFIG GET ",
    b"SCAN 0 ", b" MATCH ", b" COUNT ", b"GETRANGE k ", b"EXPIRE k ", b"MEMORY USAGE k",
    b"LEASE 1000 k\r\n", b"UNLEASE 1\r\n", b"FLUSHALL\r\n", b"DEL k\r\n", b"INFO\r\n",
    b"99999999999999999999", b"-1",
    b"[a-", b"\\", b"**",
)  # fmt: skip
