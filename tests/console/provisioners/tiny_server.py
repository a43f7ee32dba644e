"""Managed test process: responds with 200 at /health and behaves as its argv requests.

    tiny_server.py --listen H:P [--child] [--daemon] [--stubborn] [--die] [--unready] [--shared]

--child leaves a helper in the process group, --daemon one outside it; --stubborn ignores TERM;
--shared listens with SO_REUSEPORT.
"""

import os
import signal
import socket
import sys
import time


def main(argv: list[str]) -> None:
    if "--die" in argv:
        sys.exit("told to die")
    if "--stubborn" in argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if {"--child", "--daemon"} & {*argv}:
        import subprocess  # takes a third of the start

        sleeper = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
        if "--child" in argv:
            print("child", subprocess.Popen(sleeper).pid, flush=True)
        if "--daemon" in argv:
            print("daemon", subprocess.Popen(sleeper, start_new_session=True).pid, flush=True)
    print("argv", argv, flush=True)
    print("secret length", len(os.environ.get("SECRET", "")), flush=True)
    host, port = argv[argv.index("--listen") + 1].split(":")
    with socket.create_server((host, int(port)), reuse_port="--shared" in argv) as server:
        while True:
            client, _ = server.accept()
            client.settimeout(5)
            with client:
                client.recv(4096)
                status = "503 No" if "--unready" in argv else "200 OK"
                client.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        time.sleep(0)
