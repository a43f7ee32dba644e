"""Run a program and shorten the URLs in its log to scheme and host: a path may be a secret.

python -m console.launcher.redacted_log PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import Final

from console.launcher.progress import die_with_launcher

_URL: Final = re.compile(rb"(https?://)(?:[^/\s\"'\\@]*@)?([^/\s\"'\\]+)/[^\s\"'\\]*")


def redact(line: bytes) -> bytes:
    return _URL.sub(rb"\1\2/...", line)


def main() -> int:
    program = subprocess.Popen(
        sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=die_with_launcher
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda given, _frame: program.send_signal(given))
    assert program.stdout is not None
    for line in program.stdout:
        sys.stdout.buffer.write(redact(line))
        sys.stdout.buffer.flush()
    return program.wait()


if __name__ == "__main__":
    sys.exit(main())
