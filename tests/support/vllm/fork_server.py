"""Run programs in forks of one Python process that has vLLM imported.

Run by the interpreter of .venv-vllm, never imported: `python -P fork_server.py FD`, where FD is a
Unix stream socket. Each line on it is a JSON object. A request {"id", "argv", "env", "cwd",
"stdin", "stdout", "stderr"} starts the words after the interpreter (`-c CODE`, `-m MODULE` or a
script, then arguments) in a session of its own; the three files are paths. Answers: {"id", "pid"},
later {"pid", "code"}. End of file on the socket kills every program and ends the server, so that
no worker outlives the tests, however they end.

Importing torch and vLLM takes 8 to 10 s of CPU time, which vLLM on a CPU spends twice for each
worker: its engine process is spawned, not forked. Here the engine is forked as well, as vLLM does
on Linux with a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

# What the API server, the engine and the programs of the tests import at their start.
PRELOADED = (
    "vllm.entrypoints.openai.api_server",
    "vllm.entrypoints.launchers.api_server.entry",
    "vllm.entrypoints.anthropic.serving",
    "vllm.v1.engine.async_llm",
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.v1.kv_offload.tiering.spec",
    "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector",
    "vllm.model_executor.layers.quantization.online.base",
    "vllm.model_executor.models.llama",
    "uvicorn.protocols.http.httptools_impl",
)
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    for name in PRELOADED:
        importlib.import_module(name)
    import setproctitle
    import vllm.v1.engine.utils as engines

    setproctitle.getproctitle()  # finds the process's title, which needs its first environment
    engines.get_mp_context = lambda: multiprocessing.get_context("fork")
    gc.collect()
    gc.freeze()  # the forks' collectors leave these objects, and so their pages, alone
    wake, waker = socket.socketpair()
    for end in (wake, waker):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker.fileno())
    running: set[int] = set()
    unread = b""
    try:
        while True:
            ready, _, _ = select.select([channel, wake], [], [])
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    wake.recv(4096)
                _report_ended(channel, running)
            if channel in ready:
                data = channel.recv(65536)
                if not data:
                    return
                *lines, unread = (unread + data).split(b"\n")
                for line in lines:
                    request = json.loads(line)
                    pid = os.fork()
                    if pid == 0:
                        signal.set_wakeup_fd(-1)
                        for one in (channel, wake, waker):
                            one.close()
                        _run(request)
                    running.add(pid)
                    _send(channel, {"id": request["id"], "pid": pid})
    finally:
        for pid in running:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _report_ended(channel: socket.socket, running: set[int]) -> None:
    for pid in list(running):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            running.remove(pid)
            _send(channel, {"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _send(channel: socket.socket, answer: dict[str, Any]) -> None:
    channel.sendall(json.dumps(answer).encode() + b"\n")


def _run(request: dict[str, Any]) -> None:
    """Become the program; never returns."""
    code = 1
    try:
        os.setsid()
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for target, (name, flags) in enumerate(
            (
                (request["stdin"], os.O_RDONLY),
                (request["stdout"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
                (request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            )
        ):
            opened = os.open(name, flags, 0o644)
            os.dup2(opened, target)
            os.close(opened)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        _execute(request["argv"])
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _execute(argv: list[str]) -> None:
    """As the interpreter does with these arguments, the entries of PYTHONPATH included."""
    sys.path[:0] = [folder for folder in os.environ.get("PYTHONPATH", "").split(":") if folder]
    first, *rest = argv
    if first == "-m":
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = [rest[0], *rest[1:]]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *rest[1:]]
        module = type(sys)("__main__")
        sys.modules["__main__"] = module
        exec(compile(rest[0], "<string>", "exec"), module.__dict__)
    else:
        sys.argv = argv
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    main()
