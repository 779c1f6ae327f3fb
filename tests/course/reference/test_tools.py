"""The tables on other tools say what the benchmarks' rows say."""

import sys

import pandas as pd
import pytest

from course.__main__ import main
from course.lessons.results import RESULTS
from course.reference import tools
from tests.test_size import ROOT, imported, sources

UNIX_ALONE = ("course.benchmarks", "resource", "fcntl", "pwd", "grp", "termios", "pty")


def test_windows_can_import_all_but_benchmarks_and_grading():
    found = [
        f"{path.name} imports {name}"
        for path in sources("helpers", "course")
        if not {"benchmarks", "grading"} & {*path.relative_to(ROOT).parts}
        for name in imported(path)
        if name.startswith(UNIX_ALONE)
    ]
    assert found == []


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Where the tables are read from."""
    monkeypatch.setattr(sys.modules["course.lessons.results"], "RESULTS", tmp_path)
    return tmp_path


def test_what_was_measured_on_an_earlier_network_is_not_shown(results):
    for path in RESULTS.glob("*.csv"):
        rows = pd.read_csv(path, dtype={"sha256": str})
        if "sha256" in rows:
            worse = {name: rows[name] / 2 for name in ("accuracy", "test") if name in rows}
            rows = pd.concat([rows.assign(sha256="earlier", **worse), rows])
        rows.to_csv(results / path.name, index=False)
    shown = "\n".join(tools.sections())
    assert shown in (RESULTS / "README.md").read_text(encoding="utf-8").replace("\n\n", "\n")


@pytest.mark.parametrize("name", ["speed", "deployed", "published", "peers", "peers_speed", "wild"])
def test_a_table_that_is_missing_is_named_with_what_brings_it_back(name, results, capsys):
    for path in RESULTS.glob("*.csv"):
        if path.stem != name:
            (results / path.name).symlink_to(path)
    assert main(["results", "--check"]) == 1
    missing = results / f"{name}.csv"
    assert f"{missing} is missing: `git checkout -- {missing}`" in capsys.readouterr().err


def test_networks_of_others_are_counted_by_step_and_outcome():
    outcomes = {"optimize": ["right", "right", "refused", "too slow"], "onnx": ["wrong"]}
    rows = [
        {"network": f"net{number}", "step": step, "result": result}
        for step, results in outcomes.items()
        for number, result in enumerate(results)
    ]
    found = tools.wild(pd.DataFrame(rows)).set_index("step")
    assert list(found.columns) == [*tools.COUNTED, "right %", "over a limit"]
    assert list(found.loc["optimize"]) == [2, 1, 0, 0, "66.7%", 1]
    assert list(found.loc["onnx"]) == [0, 0, 1, 0, "0.0%", 0]


def test_each_tool_has_its_mean_and_range_the_best_first():
    rows = pd.DataFrame({"name": list("aabb"), "accuracy": [90.0, 92, 93, 95]})
    found = tools.int8(rows)
    assert found.to_dict("list") == {
        "tool": ["b", "a"],
        "mean": ["94.00", "91.00"],
        "lowest": ["93.00", "90.00"],
        "highest": ["95.00", "92.00"],
    }


def test_pruned_networks_are_compared_at_what_they_cost():
    rows = {"method": ["ours", "theirs", "ours"], "macs": [1000, 1200, 1002]}
    rows |= {"parameters": [10, 20, 12], "test": [0.9, 0.8, 0.94]}
    found = tools.pruned(pd.DataFrame(rows)).set_index("tool")
    assert list(found.loc["ours"]) == ["1,001", "11", "92.00%", "90.00%", "94.00%"]
    assert list(found.index) == ["ours", "theirs"]


def test_small_networks_of_others_stand_beside_fast_with_what_they_take():
    trained = pd.DataFrame(
        {"network": ["wide", "thin"], "parameters": [2000, 30], "macs": [9, 8], "test": [0.95, 0.8]}
    )
    rows = [
        {
            "name": name,
            "engine": f"ONNX Runtime {kind}",
            "batch": batch,
            "median_ms": slow + ms * batch,
            "iqr_ms": 0.2,
        }
        for name, ms in {"fast": 0.5, "wide": 2.0, "thin": 0.25}.items()
        for kind, batch, slow in (("int8", 1, 1), ("int8", 128, 0), ("float32", 1, 0))
    ]
    fast = pd.Series({"params": 100, "macs": 7, "accuracy": 0.9})
    found = tools.peers(trained, pd.DataFrame(rows), fast).set_index("network")
    assert list(found.index) == ["wide", "fast", "thin"]
    assert list(found.loc["wide"]) == ["95.00%", "2,000", "9", "2.00 ± 0.10", "256.00 ± 0.10"]
    assert list(found.loc["fast"]) == ["90.00%", "100", "7", "0.50 ± 0.10", "64.00 ± 0.10"]
