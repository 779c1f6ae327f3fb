import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course.publish import runner


def write(path, *sources):
    cells = [new_code_cell(source, id=f"cell-{number}") for number, source in enumerate(sources)]
    nbformat.write(new_notebook(cells=cells), path)
    return path


def test_a_failing_cell_is_named_and_what_ran_is_kept(tmp_path):
    source = write(tmp_path / "01_bad.ipynb", "print(6 * 7)", "raise KeyError('lost')", "print('never')")
    outcome = runner.run_lesson(source, tmp_path / "out" / "01_bad.ipynb", "quick")
    assert outcome.failure == "cell 2 (cell-1): KeyError: 'lost'"
    assert "01_bad" in outcome.line() and "FAILED" in outcome.line()
    executed = nbformat.read(tmp_path / "out" / "01_bad.ipynb", as_version=4)
    assert executed.cells[0].outputs[0].text == "42\n"
    assert nbformat.read(source, as_version=4).cells[0].outputs == []


@pytest.mark.slow
def test_the_kernel_knows_the_profile_and_runs_beside_the_notebook_and_its_death_is_a_failure_and_no_crash(tmp_path):
    source = write(tmp_path / "01_ok.ipynb", "import os; print(os.environ['PROFILE'], os.getcwd())", "os._exit(1)")
    outcome = runner.run_lesson(source, tmp_path / "out.ipynb", "full")
    assert outcome.failure.startswith("cell 2 (cell-1): ")
    assert nbformat.read(tmp_path / "out.ipynb", as_version=4).cells[0].outputs[0].text == f"full {tmp_path}\n"


def test_publishing_drops_widgets_and_times_and_keeps_the_rest(tmp_path):
    cell = new_code_cell("1", id="one", metadata={"execution": {"iopub.status.busy": "2026-01-01T00:00:00Z"}})
    widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/plain": "bar"}
    cell.outputs = [new_output("display_data", data=widget), new_output("stream", name="stdout", text="kept")]
    notebook = new_notebook(cells=[new_markdown_cell("# T", id="t"), cell], metadata={"widgets": {}})
    nbformat.write(notebook, tmp_path / "in.ipynb")
    runner.publish(tmp_path / "in.ipynb", tmp_path / "out.ipynb")
    published = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    assert [output.get("text") for output in published.cells[1].outputs] == ["kept"]
    assert published.cells[1].metadata == {} and published.cells[1].id == "one"
    assert set(published.metadata) == {"kernelspec", "language_info"}


def test_the_talk_runs_when_asked_for_and_with_everything_and_is_no_lesson(tmp_path):
    for name in ("01_a", "talk"):
        write(tmp_path / f"{name}.ipynb")
    for names, stems in (([], ["01_a", "talk"]), (["talk"], ["talk"]), (["01"], ["01_a"])):
        assert [path.stem for path in runner.chosen(names, tmp_path)] == stems
    assert [path.stem for path in runner.lessons(folder=tmp_path)] == ["01_a"]
