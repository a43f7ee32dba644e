"""vLLM fetches media from the hosts that its arguments name, and follows no redirect elsewhere."""

from __future__ import annotations

import json

import pytest

from endpoints.spec.endpoint_spec import parse
from endpoints.workload.worker_spec import Installation, worker_spec
from tests.support.cachenode import ROOT
from tests.support.vllm.forks import run_vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(240)]

# Reads the arguments as a worker does, then fetches from a server which notes what it is asked.
PROGRAM = """
import json, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.multimodal.media import MediaConnector
from vllm.utils.argparse_utils import FlexibleArgumentParser

asked = []

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        self.send_response(302 if self.path == "/away" else 200)
        self.send_header("Location", "/secret")
        self.end_headers()

    def log_message(self, *_args):
        pass

server = HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
given = make_arg_parser(FlexibleArgumentParser()).parse_args(json.loads(sys.argv[1]))
connector = MediaConnector(
    allowed_local_media_path=given.allowed_local_media_path,
    allowed_media_domains=given.allowed_media_domains,
)
for url in (f"http://127.0.0.1:{server.server_port}/away", "file:///etc/hostname"):
    try:
        connector.fetch_image(url)
    except Exception as error:
        print(type(error).__name__, file=sys.stderr)
print(json.dumps(asked))
"""
HERE = Installation("python", "python", str(ROOT), "/m", "")


@pytest.mark.parametrize(("hosts", "hosts_requested"), [([], []), (["127.0.0.1"], ["/away"])])
def test_real_vllm_restricts_media_hosts(hosts: list[str], hosts_requested: list[str]) -> None:
    data = {"name": "demo", "model": "/m", "cache": {"l1": {"enabled": False}}}
    spec = worker_spec(parse({**data, "media_domains": hosts}), HERE, None)
    filled = [word.replace("{port:http}", "8000") for word in spec.argv[3:]]
    done = run_vllm_python("-c", PROGRAM, json.dumps(filled), env={**spec.env, "PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == hosts_requested
