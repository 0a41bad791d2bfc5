"""The functions of the package: what they return, what they raise, and what runs meanwhile."""

from __future__ import annotations

import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import plimsoll
import pyarrow
import pyarrow.parquet
import pytest
from common import COMMAND, ROOT, SHORT, SWEEP, keys, samples

PACKAGE = ROOT / "bindings/python"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, cwd=ROOT, check=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text(SHORT)
    return path


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(SHORT + SWEEP)
    return path


def exported(tmp_path: Path, *words: str) -> pyarrow.Table:
    """The table that the command exports after it has run `words`."""
    store, parquet = tmp_path / "store", tmp_path / "samples.parquet"
    ran = command(*words, "--store", str(store))
    assert ran.returncode == 0, ran.stderr
    ran = command("results", "export", "last", "-o", str(parquet), "--store", str(store))
    assert ran.returncode == 0, ran.stderr
    return pyarrow.parquet.read_table(parquet)


def test_a_run_returns_the_table_that_the_command_exports(file: Path, tmp_path: Path) -> None:
    of_command = exported(tmp_path, "run", str(file))
    table = plimsoll.run(file)
    assert table.schema.equals(of_command.schema, check_metadata=True)
    assert table.schema.metadata[b"plimsoll.schema"] == b"1"
    assert table.num_rows > 40
    assert samples(table).equals(samples(of_command))
    assert set(table.column("command").to_pylist()) == {f"plimsoll run {file}"}
    assert table.column("inputs")[0].as_py() == of_command.column("inputs")[0].as_py()


def test_an_experiment_can_change_seeds_and_knobs(file: Path, tmp_path: Path) -> None:
    knob = "vm.percpu_pagelist_high_fraction"
    of_command = exported(tmp_path, "run", str(file), "--seeds", "3", "--set", f"{knob}=100")
    experiment = plimsoll.Experiment.load(file, seeds=3, knobs={knob: 100})
    table = plimsoll.run(experiment)
    assert samples(table).equals(samples(of_command))
    assert set(table.column("seed").to_pylist()) == {1, 2, 3}
    assert table.num_rows > plimsoll.run(file).num_rows


def test_a_built_in_experiment_and_a_replay_are_those_of_the_command(tmp_path: Path) -> None:
    of_command = exported(tmp_path, "reproduce", "selftest", "--quick")
    assert samples(plimsoll.reproduce("selftest", quick=True)).equals(samples(of_command))
    recording = str(ROOT / "lab/tests/data/exact-6.12-4-cpus.plr")
    machine = next(of.name for of in plimsoll.machines() if of.cpus >= 4)
    words = ["replay", recording, "--machine", machine, "--b", "ours", "--seeds", "1"]
    of_command = exported(tmp_path, *words)
    table = plimsoll.replay(recording, machine, b="ours", seeds=1)
    assert samples(table).equals(samples(of_command))


def test_equal_calls_give_equal_tables_with_any_number_of_jobs(file: Path) -> None:
    tables = [plimsoll.run(file, jobs=jobs) for jobs in (1, 2, None)]
    assert tables[0].equals(tables[1]) and tables[0].equals(tables[2])


def test_the_points_of_a_sweep_are_together_the_sweep(sweep: Path, tmp_path: Path) -> None:
    points = plimsoll.points(sweep)
    assert [point.index for point in points] == list(range(24))
    assert points[5].values == {"knob:vm.stat_interval": "2", "workload.workers": "2"}
    points = pickle.loads(pickle.dumps(points))
    alone = pyarrow.concat_tables(plimsoll.run(point) for point in points)
    whole = plimsoll.run(sweep)
    assert len(set(keys(alone))) == alone.num_rows
    assert samples(alone).equals(samples(whole))
    assert alone.column("about")[0].as_py() == points[0].title
    of_command = exported(tmp_path, "sweep", str(sweep), "--part", "6/24")
    assert samples(plimsoll.run(points[5])).equals(samples(of_command))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: plimsoll.reproduce("drian"), ["reproduce", "drian"]),
        (lambda: plimsoll.check("cli/tests/experiments/mistakes.toml"),
         ["check", "cli/tests/experiments/mistakes.toml"]),
        (lambda: plimsoll.replay("README.md", "laptop-3"),
         ["replay", "README.md", "--machine", "laptop-3"]),
        (lambda: plimsoll.replay("README.md", "laptop-2"),
         ["replay", "README.md", "--machine", "laptop-2"]),
    ],
)
def test_an_error_has_the_text_of_the_command(
    wrong: Callable[[], object], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    ran = command(*words, *([] if words[0] == "check" else ["--no-store"]))
    assert ran.returncode == 2
    with pytest.raises(plimsoll.BadInput) as raised:
        wrong()
    assert ran.stderr.strip() == f"error: {raised.value}".strip()
    assert isinstance(raised.value, plimsoll.Error)


def test_a_missing_file_and_a_file_without_a_sweep_say_so(file: Path) -> None:
    with pytest.raises(plimsoll.BadInput, match="no-such.toml: cannot be read"):
        plimsoll.run("no-such.toml")
    with pytest.raises(plimsoll.BadInput, match="has no sweep"):
        plimsoll.points(file)
    point = plimsoll.Point(plimsoll.Experiment(SHORT + SWEEP), 24, {})
    with pytest.raises(plimsoll.BadInput, match="no point 24"):
        plimsoll.run(point)


def test_what_can_be_named_is_what_the_command_lists() -> None:
    machines = {machine.name: machine for machine in plimsoll.machines()}
    assert (machines["laptop-2"].cpus, machines["laptop-2"].nodes) == (2, 1)
    assert all(f"\n{name} " in command("machines").stdout for name in machines)
    linux = next(design for design in plimsoll.designs() if design.name == "linux")
    variants = {variant.name: variant for variant in plimsoll.variants()}
    assert len(linux.variants) == 7 and set(linux.variants) <= set(variants)
    knobs = {knob.name: knob for knob in plimsoll.knobs()}
    interval = knobs["stat_interval_ms"]
    assert (interval.linux_name, interval.linux_unit) == ("vm.stat_interval", "s")
    assert (interval.unit, interval.default, interval.linux_factor) == ("ms", 1000, 1000)
    assert "drain" in plimsoll.experiments()


def test_check_says_what_would_run(sweep: Path) -> None:
    outline = plimsoll.check(sweep)
    assert outline["machines"] == "laptop-2 (2 CPUs)"
    assert outline["points"].startswith("24: ")


def test_check_names_all_designs() -> None:
    outline = plimsoll.check(ROOT / "experiments/first.toml")
    labelled = "B1: smaller batches (linux@batch_scale_max=0)"
    assert outline["designs"] == f"A: linux; {labelled}; B2: linux+bounded"
    assert "warning" not in outline


def test_check_warns_of_runs_that_are_too_short() -> None:
    short = plimsoll.Experiment(
        """
        schema = 1
        name = "short"
        machines = ["laptop-2"]
        length_ms = 1000
        workload = { name = "make-like" }
        design = [{ design = "linux" }, { design = "linux+phased" }]
        """
    )
    assert "a run lasts only 1s" in plimsoll.check(short)["warning"]


def test_other_threads_run_while_cases_run(file: Path) -> None:
    ticks, ended = [0], threading.Event()

    def tick() -> None:
        while not ended.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    began = time.monotonic()
    plimsoll.run(plimsoll.Experiment.load(file, seeds=60))
    took = time.monotonic() - began
    ended.set()
    thread.join()
    # The thread ticks a thousand times a second if it is never kept from running.
    assert ticks[0] > took * 1000 / 20, f"{ticks[0]} ticks in {took} s"


INTERRUPTED = """
import sys, time, plimsoll
print("ready", flush=True)
try:
    plimsoll.run(plimsoll.Experiment.load(sys.argv[1], seeds=10000))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_call(file: Path) -> None:
    words = [sys.executable, "-c", INTERRUPTED, str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(0.5)
        assert child.poll() is None
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        took = time.monotonic() - began
        assert child.wait() == 0
    # All cases together would take minutes.
    assert took < 5, f"the call went on for {took} s"


def test_the_readme_shows_the_examples() -> None:
    readme = (PACKAGE / "README.md").read_text()
    shown = re.findall(r"<!-- (\S+) -->\n```python\n(.*?)```", readme, re.DOTALL)
    assert [name for name, _ in shown] == ["examples/on_dask.py", "examples/on_ray.py"]
    for name, code in shown:
        assert code in (PACKAGE / name).read_text(), name
        assert len(code.splitlines()) <= 10
