"""CPU time of the router for a turn of an agent: long bodies that grow a little each time.

    .venv/bin/python -m bench.router_agents [--tokens 20000,100000] [--strategy prefixaware,kvaware]

Like bench.router_cpu, with sessions instead of groups. The first request of each session is not
counted. For kvaware the backends tokenize, and this process publishes the blocks of each prompt
as the events of the worker that answered it. CPU time is the router's, all threads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
from array import array
from pathlib import Path
from time import time
from typing import Any

import msgspec
import uvloop
import zmq

from bench.router_cpu import Backend, cpu_s, free_port
from routing.engine.tokens import requests
from routing.engine.tokens.requests import ServerDefaults
from routing.engine.tokens.service import TokenOutcome, TokensConfig, TokenService
from routing.engine.tokens.tokenizer import LocalTokens, load_model_files

CHAT, TEXT = b"/v1/chat/completions", b"/v1/completions"
BLOCK = 16
_WORKERS = 2
_TEXT = """
the of and to in is that for it as was with be by on not he his but at are this have from or which
one had all when there can an their more if will would about out up what time other cache worker
prompt token router block prefix model answer question table window market
"""
_WORDS = _TEXT.split()
_TOKENS_A_WORD = 1.35  # of `words`


def words(chance: random.Random, count: int) -> str:
    picked = [chance.choice(_WORDS) for _ in range(count)]
    for at in range(0, count, 11):
        picked[at] = picked[at].capitalize() + ("," if at % 3 else ".")
    return " ".join(picked)


class TokenizingBackend(Backend):
    """Also answers /tokenize, by which the router verifies its tokenizer."""

    def __init__(self, local: LocalTokens) -> None:
        super().__init__(0)
        self._local = local

    def data_received(self, data: bytes) -> None:
        body = data.partition(b"\r\n\r\n")[2]
        if data.startswith(b"POST /tokenize") and body:
            document = json.loads(body)
            path = CHAT if "messages" in document else TEXT
            prompt = requests.read_prompt(path, document, ServerDefaults())
            assert not isinstance(prompt, requests.IdsPrompt)
            answer = json.dumps({"tokens": self._local.ids(prompt).tolist()}).encode()
            head = (
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            )
            self._transport.write(head % len(answer) + answer)
        else:
            super().data_received(data)


async def serve(port: int, model: Path) -> None:
    local = LocalTokens(load_model_files(model), ServerDefaults())
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: TokenizingBackend(local), "127.0.0.1", port)
    await server.serve_forever()


class Session:
    def __init__(self, seed: int, tokens: int) -> None:
        self._chance = random.Random(seed)
        self.messages = [{"role": "system", "content": words(self._chance, 3000)}]
        self.reported: dict[str, int] = {}  # worker -> blocks
        self.key = seed << 32
        size = 3000 * _TOKENS_A_WORD
        while size < tokens:
            self.grow(1500)
            size += 1500

    def grow(self, tokens: int) -> None:
        answer, result = tokens // 10, tokens - tokens // 10
        for role, size in (("assistant", answer), ("user", result)):
            content = words(self._chance, max(1, int(size / _TOKENS_A_WORD)))
            self.messages.append({"role": role, "content": content})

    def body(self) -> dict[str, object]:
        return {"model": "m", "max_tokens": 100, "messages": self.messages}


class Events:
    """Event sockets of the workers."""

    def __init__(self, ports: dict[str, int]) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets = {}
        self._sequence = dict.fromkeys(ports, 0)
        for worker, port in ports.items():
            self._sockets[worker] = self._context.socket(zmq.PUB)
            self._sockets[worker].bind(f"tcp://127.0.0.1:{port}")

    def publish(self, worker: str, session: Session, ids: array[int]) -> None:
        first, last = session.reported.get(worker, 0), len(ids) // BLOCK
        session.reported[worker] = last
        event = {
            "type": "BlockStored",
            "block_hashes": [session.key + number + 1 for number in range(first, last)],
            "parent_block_hash": session.key + first if first else None,
            "token_ids": ids[first * BLOCK : last * BLOCK].tolist(),
            "block_size": BLOCK,
            "medium": "GPU",
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
        payload = msgspec.msgpack.encode([time(), [event], 0])
        sequence = self._sequence[worker]
        self._sequence[worker] += 1
        self._sockets[worker].send_multipart([b"", sequence.to_bytes(8, "big"), payload])

    def close(self) -> None:
        self._context.destroy(linger=0)


class Client:
    def __init__(self, port: int, events: Events | None, model: Path) -> None:
        self._port = port
        self._events = events
        self._tokens: TokenService | None = None
        if events is not None:
            local = LocalTokens(load_model_files(model), ServerDefaults())
            self._tokens = TokenService(TokensConfig(wait_s=60), local)

    async def send(self, session: Session) -> bytes:
        """Send the session's next request; return the answer's head."""
        body = json.dumps(session.body()).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        head, _, _ = (await reader.read(-1)).partition(b"\r\n\r\n")
        writer.close()
        if not head.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(f"not served: {head.splitlines()[:1]!r}")
        if self._events is not None and self._tokens is not None:
            worker = head.partition(b"x-emberline-worker: ")[2].split(b"\r\n", 1)[0].decode()
            self._events.publish(worker, session, await self._ids(session))
            await asyncio.sleep(0.05)  # as long as a tool takes, at least
        return head

    async def _ids(self, session: Session) -> array[int]:
        assert self._tokens is not None
        ended: asyncio.Future[TokenOutcome] = asyncio.get_running_loop().create_future()
        found = self._tokens.submit(CHAT, session.body(), "m", ended.set_result)
        outcome = found if isinstance(found, TokenOutcome) else await ended
        assert outcome.tokens is not None, outcome.reason
        return array("I", outcome.tokens.data)


async def until_ready(admin: int, strategy: str) -> None:
    """Wait until the router serves, follows its workers' events and has verified its tokenizer."""
    found: dict[str, Any] = {}
    for _ in range(300):
        await asyncio.sleep(0.1)
        try:
            found = json.loads(await _get(admin, b"/index"))
        except (OSError, ValueError):
            continue
        kv = found.get("kv") or {}
        ready = kv.get("telling") and (kv.get("tokenizer") or {}).get("compared") == "same"
        if strategy != "kvaware" or ready:
            return
    raise TimeoutError(f"the router is not ready: {found}")


async def _get(port: int, path: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path)
    answer = await reader.read(-1)
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]


async def measure(strategy: str, flags: argparse.Namespace) -> None:
    ports = [free_port() for _ in range(2 * _WORKERS + 2)]
    port, admin = ports[:2]
    urls = [f"http://127.0.0.1:{one}" for one in ports[2 : 2 + _WORKERS]]
    sources = dict(zip(urls, ports[2 + _WORKERS :], strict=True))
    this = [sys.executable, "-m", "bench.router_agents", "--model", str(flags.model)]
    backends = [subprocess.Popen([*this, "--backend", str(one)]) for one in ports[2 : 2 + _WORKERS]]
    command = [sys.executable, "-m", "routing.engine", "--listen", f"127.0.0.1:{port}"]
    command += ["--admin", f"127.0.0.1:{admin}", "--strategy", strategy, "--model", "m"]
    events = None
    for url, events_port in sources.items():
        command += ["--worker", url]
        if strategy == "kvaware":
            command += ["--kv-events", f"{url}=tcp://127.0.0.1:{events_port}"]
    if strategy == "kvaware":
        command += ["--tokenizer", str(flags.model), "--kv-probe", "0"]
        events = Events({url.removeprefix("http://"): one for url, one in sources.items()})
    router = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await until_ready(admin, strategy)
        client = Client(port, events, flags.model)
        for tokens in map(int, flags.tokens.split(",")):
            sessions = [Session(tokens + n, tokens) for n in range(1, flags.sessions + 1)]
            for session in sessions:
                await client.send(session)
            before = cpu_s(router.pid)
            for _ in range(flags.turns):
                for session in sessions:
                    session.grow(flags.grow)
                    await client.send(session)
            each = (cpu_s(router.pid) - before) / (flags.turns * len(sessions))
            rss = int(Path(f"/proc/{router.pid}/statm").read_text().split()[1]) * 4096
            print(
                f"{strategy:<12} {tokens:>7} tokens, {flags.grow} new a turn: {each * 1e3:6.2f} ms "
                f"CPU a request, {each * 50:6.1%} of a core at 50 requests/s, "
                f"{rss / 2**20:.0f} MiB resident",
                flush=True,
            )
        if strategy == "kvaware":
            kv = json.loads(await _get(admin, b"/index"))["kv"]
            print(f"  tokens {kv['tokens']['outcomes']}, without {kv['fallbacks']}")
    finally:
        for process in (router, *backends):
            process.terminate()
            process.wait()
        if events is not None:
            events.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tokens", default="20000,100000")
    parser.add_argument("--strategy", default="prefixaware,kvaware")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--grow", type=int, default=1500, help="new tokens of a turn")
    parser.add_argument("--model", type=Path, default=Path("var/models/smollm2-135m-instruct"))
    parser.add_argument("--backend", type=int, default=0, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.backend:
        uvloop.run(serve(flags.backend, flags.model))
    else:
        for strategy in flags.strategy.split(","):
            uvloop.run(measure(strategy, flags))


if __name__ == "__main__":
    main()
