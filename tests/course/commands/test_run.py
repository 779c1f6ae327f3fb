import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from course.__main__ import main
from course.publish import runner


@pytest.mark.parametrize("failure", [None, "cell 3 (x): broken"])
def test_a_run_of_everything_names_a_failure_runs_the_others_and_ends_with_the_report(
    tmp_path, monkeypatch, capsys, failure
):
    paths = [tmp_path / "01_a.ipynb", tmp_path / "02_b.ipynb"]
    for path in paths:
        nbformat.write(new_notebook(cells=[new_markdown_cell(f"# Lesson {path.stem}")]), path)

    def copied(path, output, profile):
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(path.read_text())
        return runner.Outcome(path.stem, 1.0, failure if path.stem == "01_a" else None)

    monkeypatch.setattr(runner, "run_lesson", copied)
    monkeypatch.setattr(runner, "lessons", lambda *_, **__: paths)
    monkeypatch.setattr(runner, "chosen", lambda names: paths)
    assert main(["run", "--output", str(tmp_path / "out" / "notebooks")]) == (1 if failure else 0)
    out = capsys.readouterr().out
    assert "report: " in out and "02_b" in out
    assert (f"FAILED  {failure}" in out and "failed: 01_a" in out) == bool(failure)
    assert "Lesson 02_b" in (tmp_path / "out" / "report.html").read_text()
