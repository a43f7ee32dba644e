"""Crash causes from logs of vLLM 0.32 in `crashes/` and of other layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.provisioners.crash_cause import (
    MAX_CHARS,
    crash_cause,
    death_text,
    ending_text,
    exit_text,
    last_message,
)

LOGS = Path(__file__).with_name("crashes")
TERMINATION_MESSAGE = 2048
"""Bytes of a log which a kubelet keeps."""

REAL = {
    "unknown_argument": "unrecognized arguments: --nonsense=1",
    "bad_choice": "argument --dtype: invalid choice: 'bogus'",
    "missing_model": "HFValidationError: Repo id must be in the form",
    "unknown_hub_model": "LocalEntryNotFoundError: Cannot find an appropriate cached snapshot",
    "context_too_long": "ValidationError: User-specified max_model_len (10000000) is greater than",
    "heads_not_divisible": "ValidationError: Total number of attention heads (9) must be divisible",
    "unknown_connector": "ValidationError: Unsupported connector type: NoSuchConnector",
    "port_taken": "OSError: [Errno 98] Address already in use",
    "kv_memory_too_small": "ValueError: No available memory for the cache blocks.",
    "kv_memory_too_small_core": "ValueError: No available memory for the cache blocks.",
}
# Here the kubelet's message contains only the exception that refers to the cause.
LOST_IN_2048 = {"kv_memory_too_small", "kv_memory_too_small_core"}


def test_every_recorded_log_has_an_expected_cause() -> None:
    assert {path.stem for path in LOGS.iterdir()} == set(REAL)


@pytest.mark.parametrize("name", REAL)
def test_recorded_logs(name: str) -> None:
    log = (LOGS / f"{name}.txt").read_text(encoding="utf-8")
    assert crash_cause(log).startswith(REAL[name])
    cut = crash_cause(log[-TERMINATION_MESSAGE:])
    if name in LOST_IN_2048:
        assert cut == "", "an exception that refers elsewhere must not pass for the cause"
        assert "See root cause above" in last_message(log[-TERMINATION_MESSAGE:])
    else:
        assert cut.startswith(REAL[name])


TRACE = 'Traceback (most recent call last):\n  File "/a/b.py", line 7, in load\n    x()\n'
DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
MADE_UP = {
    "first cause of a chain": (
        f"{TRACE}{OOM}\n{DIRECT}{TRACE}RuntimeError: profile run failed\n",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ),
    "what was raised while handling is deliberate": (
        f"{TRACE}KeyError: 'llama9'\n{DURING}{TRACE}ValueError: Model llama9 is not supported\n",
        "ValueError: Model llama9 is not supported",
    ),
    "an exception without a message names its place": (
        f"{TRACE}AssertionError\n",
        "AssertionError (b.py:7 in load)",
    ),
    "processes that write at the same time": (
        "(Worker pid=1) ERROR 11-22 10:00:00 [w.py:1] Traceback (most recent call last):\n"
        "(EngineCore pid=2) INFO 11-22 10:00:00 [core.py:9] hello\n"
        f"(Worker pid=1) ERROR 11-22 10:00:00 [w.py:1] {OOM}\n"
        "(EngineCore pid=2) ERROR 11-22 10:00:01 [core.py:9] RuntimeError: Worker failed with "
        "error, please check the stack trace above for the root cause above\n",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ),
    "a warning with an exception's name": (
        "/x/y.py:3: UserWarning: old\nserve: error: the following arguments are required: --model",
        "the following arguments are required: --model",
    ),
    "no vLLM in the image": ("/usr/bin/python3: No module named vllm\n", "No module named vllm"),
    "no interpreter in the image": ("worker: 1: exec: python3: not found", "python3: not found"),
    "no library in the image": (
        "x: error while loading shared libraries: libnuma.so.1: cannot open shared object file",
        "libnuma.so.1",
    ),
    "our launcher": ("launch: cannot start /nowhere/vllm: No such file\n", "cannot start /nowhere"),
    "a logged error": (
        "ERROR 11-22 10:00:00 [a.py:3] cannot read config\nINFO 11-22 10:00:01 [a.py:4] bye\n",
        "cannot read config",
    ),
    "colours and progress bars": (
        "\x1b[31mValueError: no such model\x1b[0m\nLoading: 10%\rLoading: 90%",
        "ValueError: no such model",
    ),
}


@pytest.mark.parametrize("name", MADE_UP)
def test_constructed_logs(name: str) -> None:
    log, cause = MADE_UP[name]
    assert cause in crash_cause(log)
    assert crash_cause(crash_cause(log)) in (crash_cause(log), ""), "stable when told again"


@pytest.mark.parametrize(
    "secret",
    [
        "hf_abcdefghijklmnopqrstuvwx",
        "redis://u:hunter2hunter2@h:1",
        "--api-key=hunter2hunter2",
        "--hf-token hunter2hunter2",
        "{'password': 'hunter2hunter2'}",
    ],
)
def test_secrets_are_removed(secret: str) -> None:
    reported = crash_cause(f"ValueError: cannot use {secret} here")
    assert "ValueError: cannot use" in reported
    assert "hunter2" not in reported
    assert "abcdefgh" not in reported


def test_words_similar_to_secrets_stay() -> None:
    text = "ValueError: The token limit and the key length of a prompt token are too small"
    assert crash_cause(text) == text


def test_log_line_that_resembles_a_shell_error_is_no_cause() -> None:
    assert crash_cause("INFO 11-22 10:00:00 [a.py:3] GET /x: 7: y: not found") == ""


def test_long_messages_are_cut_at_the_end() -> None:
    reported = crash_cause("ValueError: the beginning says it " + "x" * 5000)
    assert reported.startswith("ValueError: the beginning says it")
    assert len(reported) == MAX_CHARS


@pytest.mark.parametrize(
    ("code", "number", "text"),
    [
        (1, 0, "exit code 1"),
        (137, 0, "exit code 137 (SIGKILL)"),
        (139, 0, "exit code 139 (SIGSEGV)"),
        (255, 0, "exit code 255"),
        (0, 9, "signal 9 (SIGKILL)"),
    ],
)
def test_exit_status_texts(code: int, number: int, text: str) -> None:
    assert exit_text(code, number) == text


def test_cut_traceback_is_no_cause() -> None:
    log = "Loading the model\nTraceback (most recent call last):\n"
    assert last_message(log) == "Loading the model"
    assert last_message('Traceback (most recent call last):\n  File "/x.py", line 3, in z\n') == ""


def test_end_without_an_error_is_no_crash() -> None:
    assert ending_text("exit status 0: Done") == "Ended by itself (exit status 0: Done)"
    assert ending_text("exit status 1") == "Crashed (exit status 1)"


def test_last_line_of_a_killed_process_is_no_cause() -> None:
    log = "INFO: 200 OK\n"
    assert death_text("exit code 1", log, by_signal=False) == "exit code 1: INFO: 200 OK"
    assert death_text("signal 9", log, by_signal=True) == "signal 9"
    assert death_text("signal 6", f"{OOM}\n", by_signal=True).startswith("signal 6: OutOfMemory")
    assert last_message("") == ""


def test_argparse_error_of_a_module_omits_the_program() -> None:
    assert crash_cause("usage: x\npython -m a.worker: error: --size: bad\n") == "--size: bad"
