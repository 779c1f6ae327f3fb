"""The table through the shell's door, on a sweep of one's own: nothing that the course ships is written."""

from course import reference
from course.__main__ import main
from course.commands import results as command
from course.reference import measuring, readme
from tests.course.reference.small import rows_of, small_sweep


def test_check_agrees_with_the_readme(capsys, monkeypatch):
    assert main(["results", "--check"]) == (1 if readme.stale() else 0)
    monkeypatch.setattr(readme, "stale", lambda: ["README.md is old"])
    assert main(["results", "--check"]) == 1
    assert "README.md is old" in capsys.readouterr().out


def test_a_row_from_other_settings_is_pointed_out(tmp_path, capsys):
    sweep = small_sweep(tmp_path)
    rows_of(sweep, "baseline", "cut", "int8")
    main(["results", "--sweep", sweep.name])
    assert "other settings" not in capsys.readouterr().out
    reference.put([{"name": "int8", "key": "another"}], sweep.results)
    main(["results", "--sweep", sweep.name])
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if "other settings" in line] == ["int8"]


def test_every_network_that_is_there_is_measured(tmp_path, monkeypatch):
    sweep = small_sweep(tmp_path)
    found = {"accuracy": 0.5, "low": 0.4, "high": 0.6, "images": 1000}
    found |= {"validation_accuracy": 0.5, "sample_accuracy": 0.5}
    monkeypatch.setattr(measuring, "evaluate", lambda model, cifar: found)
    assert main(["results", "--sweep", sweep.name, "--measure"]) == 0
    table = reference.load(sweep.results).set_index("name")
    assert list(table[table.status == "measured"].index) == ["baseline"]
    assert table.checkpoint["baseline"] == "baseline.safetensors"
    assert table.params["baseline"] > 0
    assert command.outdated(sweep) == []
