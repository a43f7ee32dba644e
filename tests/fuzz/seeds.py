"""Seeds of the router's fuzz targets: small valid inputs that reach all branches of each reader."""

_STEER = b"\x00\x10\x40\x80\xe0"
_UPLOAD = b"POST /v1/audio/transcriptions HTTP/1.1\r\nhost: a\r\n"  # takes any body
_POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n"
_EVENTS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)

_REQUESTS = (
    _POST + b"content-length: 2\r\n\r\n{}" + _POST + b"content-length: 2\r\n\r\n[]",
    b"\r\nGET /health HTTP/1.1\r\nhost: a\r\n\r\nHEAD http://b/x?y HTTP/1.1\r\nhost: a\r\n\r\n",
    _POST
    + b"transfer-encoding: chunked\r\n\r\n5;x=1\r\nhello\r\n0\r\nt: 1\r\n\r\nGET / HTTP/1.0\r\n",
    _POST + b"expect: 100-continue\r\nconnection: close, x\r\nx: 1\r\ncontent-length: 1\r\n\r\n1",
    b"GET /v1/models HTTP/1.1\r\nhost: a\r\nx-request-id: 1\r\nupgrade: h2c\r\nte: a\r\n\r\n" * 3,
    _UPLOAD + b"content-length: 400\r\n\r\n" + b"x" * 400,
    _UPLOAD + b"transfer-encoding: chunked\r\n\r\n190\r\n" + b"x" * 400 + b"\r\n0\r\n\r\n",
    _POST + b"x: " + b"y" * 990 + b"\r\n\r\n",
    _POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST / HTTP/1.0\r\nauthorization: Bearer x\r\nx-emberline-pin: w\r\n"
    b"content-length: 0\r\n\r\n",
)
_ANSWERS = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    _EVENTS + b"a\r\ndata: {}\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.1 503 Busy\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx",
    _EVENTS + b"a\r\ndata: {}\n\n\r\n1",
    b"HTTP/1.1 304 Same\r\netag: x\r\ncontent-length: 9\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx-emberline-worker: w\r\ntransfer-encoding: chunked\r\n\r\n"
    b"1;a=b\r\nx\r\n0\r\nt: 1\r\n\r\n",
)
_CHAT = (
    b'{"model":"m","cache_salt":"s","user":"u","tools":[{"a":1}],"messages":['
    b'{"role":"system","content":"' + b"s" * 80 + b'"},'
    b'{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]}'
)

SEEDS: dict[str, tuple[bytes, ...]] = {
    "requests": tuple(bytes([pick]) + _STEER[1:] + wire for wire in _REQUESTS for pick in range(4)),
    "answers": tuple(bytes([pick]) + _STEER[1:] + wire for wire in _ANSWERS for pick in range(8)),
    "heads": (
        b"\x00\x07GET / HTTP/1.1\r\nhost: a\r\nx-length: 1\r\ncontent-length: 2\r\nlength: 3\r\n",
        b"\x01\x07HTTP/1.1 200 OK\r\nx-content-length: 1\r\ncontent-length: 2\r\n",
        b"\x00\x07GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 2\r\n",
        *(b"\x00\x07" + wire.partition(b"\r\n\r\n")[0] + b"\r\n" for wire in _REQUESTS),
        *(b"\x01\x07" + wire.partition(b"\r\n\r\n")[0] + b"\r\n" for wire in _ANSWERS),
    ),
    "chunks": tuple(
        _STEER[1:] + wire
        for wire in (
            b"5\r\nhello\r\n0\r\n\r\nGET /",
            b"A;x=y\r\n0123456789\r\n000\r\nt: 1\r\n\r\n",
            b"1 \r\na\r\n0 \r\n\r\n",
        )
    ),
    "bodies": (
        b"\x00" + _CHAT,
        b"\x01" + b'{"prompt":[1,2,3],"model":"m"}',
        b"\x01" + b'{"prompt":"' + b"x" * 200 + b'"}',
        b"\x02" + b'{"input":[{"role":"user","content":"x"}],"instructions":"be"}',
        b"\x03" + b'{"system":[{"type":"text","text":"x"}],"messages":[]}',
        b"\x04" + b'{"input":["a","b"]}',
    ),
    "tails": (
        b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}',
        b'data: {"usage":{"prompt_tokens":3,"prompt_tokens_details":{"cached_tokens":2}}}\n\n'
        b"data: [DONE]\n\n",
        b'{"usage":{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":1}}',
        b'{"usage":null,"x":"\\"usage\\": {"}',
    ),
    "configs": (
        b'\x00{"listen":"127.0.0.1:1","workers":[{"url":"http://a:1","id":"w","draining":true}]}',
        b'\x00{"listen":"[::1]:1","strategy":"session","session_key":"body:user","model":"m"}',
        b'\x00{"listen":"a:1","health":{"path":"/h","fall":2},"limits":{"hold_bytes":0}}',
        b'\x01{"keys":[{"id":"a","sha256":"' + b"0" * 64 + b'","pin":true}]}',
    ),
}

# The fuzzer cannot see into regular expressions: a dictionary lists what they match.
WORDS: tuple[bytes, ...] = (
    b'GET / HTTP/1.1\r\nhost: a\r\n\r\n', b'POST /', b'HEAD ', b'OPTIONS * ', b'CONNECT a:1',
    b'TRACE ', b' HTTP/1.1\r\n', b' HTTP/1.0\r\n', b'HTTP/1.1 200 OK\r\n', b'HTTP/1.0 ',
    b'http://a/b', b'PRI * ', b'HTTP/1.1 100 Continue\r\n\r\n', b'204', b'304', b'101', b'503',
    b'1e', b'0\r\n\r\n', b'\r\n\r\n', b'content-length: ', b'content-length: 5\r\n',
    b'transfer-encoding: chunked\r\n', b'chunked', b'connection: close\r\n', b'connection: ',
    b'keep-alive', b'host: a\r\n', b'expect: 100-continue\r\n', b'x-request-id: ',
    b'x-emberline-pin: w\r\n', b'authorization: ', b'upgrade: websocket\r\n', b'te: ',
    b'trailer: x\r\n', b'content-type: text/event-stream\r\n', b'identity', b'\n', b'\r',
    b'\r\n ', b'\t', b'\x00', b'\x0b', b';', b';a=b', b'data: ', b'\n\n', b'[DONE]',
    b'"usage": {', b'"prompt_tokens": ', b'"completion_tokens": ', b'"cached_tokens": ',
    b'"messages":[', b'"role":"user"', b'"content":"', b'"prompt":', b'"input":', b'"model":"',
    b'"cache_salt":"', b'"tools":[', b'\\ud800', b'1e999', b'"workers":[', b'"limits":{',
    b'"listen":"', b'"url":"http://', b'"strategy":"', b'"keys":[',
)  # fmt: skip
