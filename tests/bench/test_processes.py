"""Jobs in processes of their own: heard, stopped together, one thread each; locks keep two from writing at
once.
"""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from bcrl.errors import BadInput
from bcrl_bench.processes import in_processes


def tells(name, show):
    show({"stage": name, "threads": os.environ["OMP_NUM_THREADS"]})


def fails(name, show):
    if name == "bad":
        raise BadInput("no such log")
    time.sleep(60)


def dies(name, show):
    os._exit(9)


def lingers(folder, show):
    (Path(folder) / str(os.getpid())).touch()
    for _ in range(600):
        show({"stage": "x" * 1000})
        time.sleep(0.1)


def test_every_job_is_heard_and_has_one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    heard = []
    in_processes(tells, [("one",), ("two",)], heard.append)
    assert sorted((news["stage"], news["threads"]) for news in heard) == [("one", "1"), ("two", "1")]


def test_a_failure_is_raised_here_and_stops_the_rest():
    began = time.monotonic()
    with pytest.raises(BadInput, match="no such log"):
        in_processes(fails, [("good",), ("bad",)], lambda news: None)
    assert time.monotonic() - began < 50


def test_a_process_that_dies_is_noticed():
    with pytest.raises(BrokenProcessPool):
        in_processes(dies, [("one",)], lambda news: None)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_jobs_leave_with_a_parent_that_was_killed(tmp_path, how):
    """Else they would go on writing into the folder in which a second run begins."""
    code = f"import sys; sys.path[:] = {sys.path!r}\n"
    code += "import test_processes\nfrom bcrl_bench.processes import in_processes\n"
    calls = f"[({str(tmp_path)!r},)] * 2"
    code += f"if __name__ == '__main__': in_processes(test_processes.lingers, {calls}, lambda news: None)\n"
    (tmp_path / "parent.py").write_text(code)
    parent = subprocess.Popen([sys.executable, str(tmp_path / "parent.py")])
    began = time.monotonic()
    while len(found := [path for path in tmp_path.iterdir() if path.name.isdigit()]) < 2:
        assert time.monotonic() - began < 60
        time.sleep(0.1)
    parent.send_signal(how)
    parent.wait()
    began = time.monotonic()
    while any(Path(f"/proc/{path.name}").exists() for path in found):
        assert time.monotonic() - began < 20
        time.sleep(0.1)
