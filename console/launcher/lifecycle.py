"""`make up` and `make down`: steps in order, with messages.

`up` is idempotent and completes an interrupted `up`, because every step checks its own result. A
failed step reports the fix and leaves nothing running. The admin password is shown once and stored
nowhere in clear text.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from console.core import disk
from console.core import environment as settings
from console.launcher import (
    alertmanager,
    compiled_engines,
    lock,
    processes,
    runtime_environment,
    stack,
    tools,
    vllm_environment,
)
from console.launcher.layout import ROOT, Layout, read_facts, remembered_port, write_facts
from console.launcher.processes import Services
from console.launcher.progress import StepFailed, die_with_launcher, print_line, run, step
from console.processkit.files import write_private
from console.provisioners.local import ports, state

READY_DEADLINE_S = 600


def up(layout: Layout, *, detach: bool) -> int:
    """Set everything up and run it, in the foreground until Ctrl-C unless `detach`."""
    if _is_set_up(layout):
        print_line("Emberline is already running.")
        _summary(layout)
        return 0
    started = time.monotonic()
    _check_disk(layout)
    layout.prepare()
    # A concurrent run would treat the other's processes as leftovers.
    with lock.hold_lock(layout, "up"):
        return _up(layout, started, detach=detach)


def _is_set_up(layout: Layout) -> bool:
    """Return whether the running supervisord belongs to a completed `up`."""
    pid = runtime_environment.supervisor_pid(layout)
    return bool(pid) and read_facts(layout).get("completed") == pid and stack.is_running(layout)


def _check_disk(layout: Layout) -> None:
    """Check first: otherwise each step fails with its own message."""
    layout.var.mkdir(parents=True, exist_ok=True)
    space = disk.read_disk(layout.var)
    if space.state is disk.DiskState.FULL:
        raise StepFailed(f"The disk of {layout.var} is full: {space.text}. {space.remedy}")
    if space.state is disk.DiskState.LOW:
        print_line(f"  ! The disk of {layout.var} is almost full: {space.text}.")


def _up(layout: Layout, started: float, *, detach: bool) -> int:
    _stop_on_signals()
    resumed = stack.is_running(layout)
    if resumed:
        print_line("Emberline runs; its setup was interrupted and is resumed")
        runtime_environment.bind_supervisor(layout, runtime_environment.supervisor_pid(layout))
        services = Services.from_facts(read_facts(layout))
    else:
        services = _clean_and_prepare(layout)
    ready = False
    try:
        supervisor = None if resumed else _start(layout, services)
        _wait_for_console(services)
        print_line("Emberline: running")
        _seed_and_wait(layout)
        write_facts(layout, completed=runtime_environment.supervisor_pid(layout))
        _summary(layout)
        ready = True
        print_line(f"Ready after {time.monotonic() - started:.0f} s.")
        if detach or supervisor is None:
            return 0
        print_line("Ctrl-C (or `make down` in another terminal) stops everything.")
        return _wait_for_end(layout, supervisor)
    except KeyboardInterrupt:
        if resumed:  # endpoints may have been serving for days
            print_line("Emberline keeps running; stop it with `make down`.")
            return 130
        return _down(layout) if ready else _down(layout) or 130
    except StepFailed:
        if not resumed:
            _down(layout)
        raise


def _clean_and_prepare(layout: Layout) -> Services:
    print_line("Emberline: setting up")
    # First: processes that outlived their supervisord still hold our ports.
    for line in stack.kill_leftovers(layout):
        print_line(f"  killed, left by an earlier run: {line}")
    runtime_environment.clear_environment(layout)
    write_facts(layout, completed=0)
    return _prepare(layout)


def _stop_on_signals() -> None:
    """Handle a closed terminal and TERM like Ctrl-C; respect `nohup`."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def down(layout: Layout) -> int:
    """Stop everything, including an `up` in progress; return 0 if nothing is left, even after
    kills.
    """
    if not layout.run.is_dir():
        print_line("Nothing is running.")
        return 0
    with lock.take_over_lock(layout) as ended:
        return _down(layout, ended=ended)


def _down(layout: Layout, *, ended: bool = False) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    runtime_environment.clear_environment(layout)
    if not runtime_environment.supervisor_pid(layout) and not stack.find_leftovers(layout):
        print_line("Everything is stopped." if ended else "Nothing is running.")
        return 0
    print_line("Stopping; open streams may finish.")
    for line in stack.stop(layout):
        print_line(f"  killed: {line}")
    print_line("Stopped. `make up` restores the previous state.")
    return 0


def prepare(layout: Layout) -> bool:
    """Prepare the vLLM environment and the demo model. Return False for simulated workers."""
    layout.prepare()
    if os.environ.get("WORKERS", "vllm") == "simulated":
        return False
    vllm_environment.prepare(layout)
    return True


def _prepare(layout: Layout) -> Services:
    layout.prepare()
    compilation = compiled_engines.start(layout)
    workers = _workers(layout)
    for name in ("django_secret_key", "l2_password", "targets_token"):
        settings.generated_secret(layout.secrets / name)
    services = Services(
        host=os.environ.get("EMBERLINE_HOST", "127.0.0.1"),
        port=_port(),
        workers=workers,
        valkey=_valkey(layout),
        prometheus=_prometheus(layout),
        alertmanager=_alertmanager(layout),
    )
    if not ports.is_free(0, services.host):
        raise StepFailed(
            f"EMBERLINE_HOST={services.host!r} is not an address of this machine. "
            "Unset it to listen on 127.0.0.1."
        )
    if not ports.is_free(services.port, services.host):
        raise StepFailed(
            f"Port {services.port} on {services.host} is in use by "
            f"{ports.port_holder(services.port)[1]}, and the console's address is "
            "fixed. Free the port or choose another: EMBERLINE_PORT=8010 make up"
        )
    processes.keep_given_secrets(layout)
    write_facts(layout, host=services.host, port=services.port, workers=workers)
    manage = [sys.executable, str(ROOT / "manage.py")]
    environment = os.environ | processes.console_environment(layout, services)
    with step("Migrating the database"):
        run([*manage, "migrate", "--noinput", "-v", "0"], "Migration failed", env=environment)
    with step("Collecting static files"):
        # The mtime of an interrupted copy is newer than its source, so it would not be replaced.
        again = ["--clear"] if not read_facts(layout).get("static_collected") else []
        write_facts(layout, static_collected=False)
        command = [*manage, "collectstatic", "--noinput", "-v", "0", *again]
        run(command, "Static files were not collected", env=environment)
        write_facts(layout, static_collected=True)
    write_facts(layout, engine_path=str(compiled_engines.wait(layout, compilation) or ""))
    return services


def _port() -> int:
    try:
        return settings.port(os.environ, "EMBERLINE_PORT", 8000)
    except settings.SettingError as error:
        raise StepFailed(str(error)) from None


def _variable_or_file(name: str) -> str:
    """Return the variable or the content of its file."""
    try:
        return settings.text(os.environ, name)
    except settings.SettingError as error:
        raise StepFailed(str(error)) from None


def _workers(layout: Layout) -> str:
    """Return `vllm` if available, else `simulated` with a notice."""
    try:
        if prepare(layout):
            return "vllm"
        print_line("  ! WORKERS=simulated: workers return made-up text; every page shows a notice.")
    except StepFailed as error:
        print_line(f"  ! Real vLLM cannot be used here: {error}")
        if error.output:
            print_line("      " + error.output.replace("\n", "\n      "))
        print_line("  ! Simulated workers are used instead; every page shows a notice.")
    return "simulated"


def _valkey(layout: Layout) -> Path | None:
    """Return the Valkey binary to run, None if REDIS_URL is set. Writes redis_url."""
    named = _variable_or_file("REDIS_URL")
    if named:
        write_private(layout.secrets / "redis_url", named)
        return None
    binary = tools.valkey_server()
    if binary is None:
        raise StepFailed(
            "No Valkey or Redis server: apt-get install redis-server, or set REDIS_URL"
        )
    password = settings.generated_secret(layout.secrets / "valkey_password")
    port = remembered_port(layout, "valkey", 16379)
    write_private(layout.secrets / "redis_url", f"redis://:{password}@127.0.0.1:{port}/0")
    routers = ""
    if tools.has_channel_rights(binary):
        routers = settings.generated_secret(layout.secrets / processes.STORE_PASSWORD)
    write_facts(layout, state_store=bool(routers))
    processes.write_valkey_config(layout, port, password, routers)
    return binary


def _prometheus(layout: Layout) -> Path | None:
    """Return the Prometheus binary to run, None if a URL is set or none is available."""
    if _variable_or_file("PROMETHEUS_URL"):
        return None
    try:
        binary = tools.prometheus_server(layout)
        if binary is None:
            with step("Fetching Prometheus"):
                binary = tools.ensure_prometheus(layout)
    except StepFailed as error:
        print_line(f"  ! {error}")
        binary = None
    if binary is None:
        print_line("  ! No Prometheus: dashboards stay empty. Install it, or set PROMETHEUS_URL.")
        return None
    remembered_port(layout, "prometheus", 19090)
    return binary


def _alertmanager(layout: Layout) -> Path | None:
    """Return the Alertmanager to run, None if a URL is set or none is available."""
    if _variable_or_file("ALERTMANAGER_URL"):
        return None
    try:
        server = alertmanager.find_server(layout)
        if server is None:
            with step("Fetching Alertmanager"):
                server = alertmanager.ensure_server(layout)
    except (StepFailed, OSError) as error:
        print_line(f"  ! {error}")
        server = None
    if server is None:
        print_line(
            "  ! No Alertmanager: no alert is sent. Install it (alertmanager or "
            "prometheus-alertmanager), or set ALERTMANAGER_URL."
        )
        return None
    remembered_port(layout, "alertmanager", 19093)
    return server


def _start(layout: Layout, services: Services) -> subprocess.Popen[bytes]:
    config = processes.write_config(layout, services)
    environment = processes.without_secrets(os.environ) | processes.console_environment(
        layout, services
    )
    runtime_environment.save_environment(layout, 0, environment)
    with step("Starting processes"):
        supervisor = stack.start(layout, config)
    runtime_environment.bind_supervisor(layout, supervisor.pid)
    return supervisor


def _wait_for_console(services: Services) -> None:
    with step(f"Waiting for the console on {services.url}"):
        if not stack.wait_until(lambda: _is_responding(f"{services.url}/readyz"), 90):
            raise StepFailed("The console does not respond; see var/log/web.log")


def _seed_and_wait(layout: Layout) -> None:
    """Create the first admin and the demo endpoint; return when it is Ready or failed."""
    stored = read_facts(layout)
    services = Services.from_facts(stored)
    environment = os.environ | processes.console_environment(layout, services)
    manage = [sys.executable, str(ROOT / "manage.py")]
    admin_shown = bool(stored.get("admin_shown"))
    for command in (
        ["emberline_admin", "--create", *([] if admin_shown else ["--renew-unused"])],
        ["emberline", "seed-demo"],
        ["emberline", "endpoint", "wait", "demo", f"--timeout={READY_DEADLINE_S}"],
    ):
        done = subprocess.run(
            [*manage, *command],
            env=environment,
            cwd=ROOT,
            check=False,
            preexec_fn=die_with_launcher,
        )
        if command[0] == "emberline_admin":
            if done.returncode:
                raise StepFailed("The first admin could not be created")
            write_facts(layout, admin_shown=True)
        if done.returncode:
            print_line(
                "  ! The demo endpoint is not Ready; its page shows the reason: "
                f"{services.url}/endpoints/"
            )
            return


def _wait_for_end(layout: Layout, supervisor: subprocess.Popen[bytes]) -> int:
    status = supervisor.wait()
    runtime_environment.clear_environment(layout)
    print_line("supervisord has ended.")
    for line in stack.kill_leftovers(layout):
        print_line(f"  killed: {line}")
    return 0 if status == 0 else 1


def status(layout: Layout) -> int:
    """Print a line per program; return 1 if nothing runs."""
    programs = stack.list_programs(layout)
    if programs is None:
        print_line("Emberline is not running. Start it: make up")
        return 1
    for name, program in sorted(programs.items()):
        process = f"pid {program.pid}" if program.pid else program.spawn_error
        print_line(f"{name:28} {program.state.name:10} {process}".rstrip())
    _summary(layout)
    return 0


def _summary(layout: Layout) -> None:
    stored = read_facts(layout)
    services = Services.from_facts(stored)
    print_line()
    print_line(f"  Console     {services.url}")
    if stored.get("prometheus_port") and services.prometheus:
        print_line(f"  Prometheus  http://127.0.0.1:{stored['prometheus_port']}")
    key = layout.secrets / "quickstart" / "demo.key"
    router = _demo_url(layout)
    if router and key.is_file():
        print_line("  Try it:")
        print_line(f"    export EMBERLINE_API_KEY=$(cat {_short(key)})")
        print_line(
            f"    curl -s {router}/v1/chat/completions "
            '-H "Authorization: Bearer $EMBERLINE_API_KEY" -H "Content-Type: application/json" '
            f'-d \'{{"model":"demo","messages":[{{"role":"user","content":"Hello"}}]}}\''
        )
    if services.workers == "simulated":
        print_line("  Workers are SIMULATED: they return made-up text.")
    print_line()


def _demo_url(layout: Layout) -> str:
    """Return the demo router's address from the provisioner's state, "" if unknown."""
    router = state.load(layout.var, "demo-router")
    port = router.replicas.get(0, state.Replica()).ports.get("http") if router else None
    return f"http://{ports.HOST}:{port}" if port else ""


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _is_responding(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310 (our own address)
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
