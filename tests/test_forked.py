"""A forked command behaves as a new interpreter does."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests import forked
from tests.stages import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every command is a new interpreter")
both_ways = pytest.mark.parametrize("fresh", [False, True], ids=["forked", "fresh"])


def environment(**variables):
    """The environment of the tests, as `stage` takes it; asked for by each test, since imports still add to it."""
    return {**os.environ, "OMP_NUM_THREADS": "1", **variables}


def script(folder, text):
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def run(folder, text, *words, env=None, **options):
    return forked.run([script(folder, text), *words], folder, env or environment(), **options)


@both_ways
@pytest.mark.parametrize(
    ("text", "status", "error"),
    [
        ("", 0, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('that is wrong')", 1, "that is wrong\n"),
        ("raise ValueError('odd')", 1, "ValueError: odd\n"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_the_status_and_the_error_are_those_of_a_new_interpreter(tmp_path, fresh, text, status, error):
    done = run(tmp_path, text, fresh=fresh)
    assert done.returncode == status
    assert done.stderr.endswith(error)
    assert ("Traceback" in done.stderr) == error.endswith(("odd\n", "KeyboardInterrupt\n"))


@both_ways
def test_words_folder_environment_and_streams_are_those_asked_for(tmp_path, fresh, monkeypatch):
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "this one")
    text = """
        import os, sys
        print(__name__, sys.argv[1:], os.getcwd(), sys.path[0], sys.modules["__main__"].__file__)
        print(os.environ.get("PYTEST_CURRENT_TEST"), os.environ["ACCELERATE_USE_CPU"], repr(sys.stdin.read()))
        print("aside", file=sys.stderr)
    """
    env = {key: value for key, value in environment().items() if not key.startswith("PYTEST_")}
    done = run(tmp_path, text, "a b", "c", env=env | {"ACCELERATE_USE_CPU": "true"}, fresh=fresh)
    path = tmp_path / "script.py"
    assert done.stdout == f"__main__ ['a b', 'c'] {tmp_path} {tmp_path} {path}\nNone true ''\n"
    assert done.stderr == "aside\n"


@both_ways
def test_a_module_runs_from_its_folder_and_the_python_path(tmp_path, fresh):
    (tmp_path / "one.py").write_text("import sys, two; print(__name__, sys.argv, sys.path[:2])")
    (tmp_path / "more").mkdir()
    (tmp_path / "more/two.py").touch()
    env = {**environment(), "PYTHONPATH": str(tmp_path / "more")}
    done = forked.run(["-m", "one", "word"], tmp_path, env, fresh=fresh)
    assert done.stdout == f"__main__ {[str(tmp_path / 'one.py'), 'word']} {[str(tmp_path), str(tmp_path / 'more')]}\n"


@both_ways
def test_threads_and_exit_functions_come_to_their_end(tmp_path, fresh):
    text = """
        import atexit, sys, threading, time
        atexit.register(print, "exit function")
        threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
        sys.exit(1)
    """
    done = run(tmp_path, text, fresh=fresh)
    assert (done.returncode, done.stdout) == (1, "thread\nexit function\n")


def test_children_start_from_imported_libraries_and_from_nothing_else(tmp_path):
    text = """
        import sys
        assert {"torch", "accelerate", "datasets", "pipelines.loading"} <= sys.modules.keys()
        import gc, multiprocessing, multiprocessing.resource_tracker, random, signal, threading
        import accelerate.state, numpy, torch, torch.distributed
        assert not accelerate.state.AcceleratorState._shared_state
        assert not accelerate.state.PartialState._shared_state
        assert not torch.distributed.is_initialized()
        assert torch.get_num_threads() == 1
        assert threading.enumerate() == [threading.main_thread()]
        assert multiprocessing.parent_process() is None
        assert multiprocessing.current_process().name == "MainProcess"
        assert multiprocessing.resource_tracker._resource_tracker._fd is None
        assert (signal.getsignal(signal.SIGINT) is signal.default_int_handler) == (sys.argv[1] == "True")
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        print(random.random(), numpy.random.random(), torch.rand(()).item())
    """
    interruptible = str(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    first, second = (run(tmp_path, text, interruptible) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert not set(first.stdout.split()) & set(second.stdout.split())


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "PYTHONHASHSEED", "HF_HOME", "ANYTHING_ELSE"])
def test_a_variable_that_imports_may_have_read_takes_a_new_interpreter(tmp_path, variable):
    text = "import sys; print('torch' in sys.modules)"
    assert run(tmp_path, text).stdout == "True\n"
    assert run(tmp_path, text, env={**environment(), variable: "7"}).stdout == "False\n"


def test_all_commands_can_be_given_new_interpreters(tmp_path, monkeypatch):
    monkeypatch.setenv("TEST_PROCESSES", "fresh")
    assert run(tmp_path, "import sys; print('torch' in sys.modules)").stdout == "False\n"


@both_ways
def test_a_process_that_takes_too_long_is_killed(tmp_path, fresh):
    text = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    for seconds in (0.5, 5, 50):  # an interpreter may need longer to begin on a busy machine
        with pytest.raises(subprocess.TimeoutExpired) as expired:
            run(tmp_path, text, timeout=seconds, fresh=fresh)
        if expired.value.output:
            break
    with pytest.raises(ProcessLookupError):
        os.kill(int(expired.value.output), 0)


@pytest.mark.parametrize("fork", [True, False], ids=["forked", "fresh"])
def test_a_running_process_has_a_number_and_takes_signals(tmp_path, fork):
    text = """
        import os, pathlib, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        print(os.getpid())
        pathlib.Path("ready").touch()
        time.sleep(600)
    """
    process = forked.Process([script(tmp_path, text)], tmp_path, environment(), fork)
    assert forked.until((tmp_path / "ready").exists, forked.LONG)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.finish() == process.returncode == process.poll() == 7
    assert process.output() == (f"{process.pid}\n", "")
    process.send_signal(signal.SIGTERM)  # to nobody


def test_ranks_find_each_other(tmp_path):
    text = """
        import os, torch, torch.distributed as dist
        dist.init_process_group("gloo")
        total = torch.tensor([dist.get_rank() + 1])
        dist.all_reduce(total)
        assert (os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"]) == (str(dist.get_rank()), "3")
        print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {total.item()}", flush=True)
        dist.destroy_process_group()
    """
    done = run(tmp_path, text, processes=3)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"rank {rank} of 3: 6" for rank in range(3)]


def test_one_rank_that_fails_ends_the_others(tmp_path):
    text = """
        import os, pathlib, signal, sys, time
        ready = pathlib.Path("ready")
        if os.environ["RANK"] == "1":
            while not ready.exists():
                time.sleep(0.05)
            sys.exit(2)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
        ready.touch()
        time.sleep(600)
    """
    done = run(tmp_path, text, processes=2)
    assert (done.returncode, done.stderr) == (1, "ended\n")


def test_children_of_a_shared_server_end_with_the_client_that_asked_for_them(tmp_path):
    if forked.shared is None:
        pytest.skip("workers of pytest-xdist alone share a server")
    other, sleep = forked.connect(forked.shared), ["-c", "import time; time.sleep(600)"]
    with (tmp_path / "said").open("w") as said:
        mine = forked.Forked(forked.start()[0], sleep, tmp_path, environment(), [said, said])
        its = forked.Forked(other, sleep, tmp_path, environment(), [said, said])
    other.close()
    assert its.wait(forked.LONG) == -signal.SIGKILL
    assert mine.poll() is None
    mine.send_signal(signal.SIGTERM)
    assert mine.wait(forked.LONG) == -signal.SIGTERM


WORKERS = """
    import os, torch
    from pathlib import Path
    from common import workers

    def state(_):
        os.write(1, b"a worker\\n")
        server = "fork_server.py" in Path(f"/proc/{os.getppid()}/cmdline").read_text()
        return server, torch.are_deterministic_algorithms_enabled(), os.getpgid(os.getppid()) == os.getpgid(0)

    if __name__ == "__main__":
        torch.use_deterministic_algorithms(True)
        for _ in range(2):
            print(*workers.pooled(state, range(4), 2), flush=True)
"""


def test_what_workers_are_forked_from_is_a_fork_too_and_has_no_state_of_its_command(tmp_path):
    if forked.shared is None:
        pytest.skip("workers of pytest-xdist alone share a server")
    (tmp_path / "script.py").write_text(textwrap.dedent(WORKERS))
    done = forked.run(["script.py"], tmp_path, environment(PYTHONPATH=str(ROOT)))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines.count("a worker") == 8
    assert [line for line in lines if line != "a worker"] == [" ".join(["(True, False, True)"] * 4)] * 2


def test_ranks_that_take_too_long_are_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(forked, "GRACE", 0.2)
    text = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    with pytest.raises(subprocess.TimeoutExpired):
        run(tmp_path, text, processes=2, timeout=0.5)
