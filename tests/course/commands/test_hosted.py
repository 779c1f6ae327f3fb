"""A notebook alone in an empty folder, on a server that says it is Colab, sets itself up."""

import importlib.metadata
import json
import os
import subprocess
import sys
import types
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course import hosted
from course.commands import doctor
from course.commands import hosted as command

REPOSITORY = Path(__file__).parents[3]
COLAB = "import sys, types; sys.modules['google.colab'] = types.ModuleType('google.colab')\n"
LESSONS_IMPORT = """
import sys
from course import lessons
from course.publish import demo, runner
from helpers import checks, data, metrics, models, passes, plots, pruning, quantization, training
print(sorted({"onnx", "onnxruntime", "latex2mathml"} & set(sys.modules)))
"""
THEN = """
import os
from helpers import checks
checks.use("exercises/lesson_00.py")
print("in", os.path.basename(os.getcwd()))
"""
REPLICA = """
import sys
from pathlib import Path
from course import replica
from course.publish import runner
runner.REPOSITORY = Path({repository!r})
runner.lessons = lambda names: sorted(runner.REPOSITORY.glob("*.ipynb"))
sys.exit(replica.main([]))
"""


def test_every_notebook_has_the_cell_and_no_badge_leads_nowhere():
    repository = command.repository_of(REPOSITORY / "pyproject.toml")
    for path in command.notebooks():
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(REPOSITORY).as_posix()
        assert command.with_hosting(text, name, repository) == text, (
            f"{name}: run python -m course hosted"
        )
        assert ("colab-badge" in text) == bool(repository)


def test_a_repository_brings_badges_and_none_takes_them_away():
    path = REPOSITORY / "notebooks" / "01_batchnorm_math.ipynb"
    before = path.read_text(encoding="utf-8")
    text = command.with_hosting(before, "notebooks/01_batchnorm_math.ipynb", "someone/course")
    title = nbformat.reads(text, as_version=4).cells[0].source
    assert "github/someone/course/blob/main/notebooks/01_batchnorm_math.ipynb" in title
    assert "https://github.com/someone/course" in json.loads(text)["cells"][1]["source"][6]
    again = command.with_hosting(text, "notebooks/01_batchnorm_math.ipynb", "")
    assert "colab-badge" not in again
    assert command.with_hosting(again, "notebooks/01_batchnorm_math.ipynb", "") == again


def test_what_stands_below_the_badges_stays():
    cells = [new_markdown_cell("# T\n\n[![Open in Colab](x)](y) [![b](c)](d)\n\nBelow.", id="t")]
    text = command.with_hosting(nbformat.writes(new_notebook(cells=cells)), "t.ipynb", "a/b")
    title = nbformat.reads(text, as_version=4).cells[0].source
    assert "\n\nBelow.\n" in title and title.count("Open in Colab") == 1


def test_a_repository_that_is_none_is_refused(tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.course]\nrepository = "https://github.com/someone"\n', encoding="utf-8")
    with pytest.raises(ValueError, match="give owner/name"):
        command.repository_of(file)


def test_the_cell_does_nothing_at_home(tmp_path):
    done = run(hosted.CELL.format(source="") + "print(sorted(os.listdir()))", tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_cell_without_an_address_asks_for_it(tmp_path):
    done = run(COLAB + hosted.CELL.format(source=""), tmp_path)
    assert "run %env COURSE_REPOSITORY=<address to clone>" in done.stderr.splitlines()[-1]


def test_an_address_that_cannot_be_cloned_is_named_with_the_switch_that_kaggle_has(tmp_path):
    nowhere = f"file://{tmp_path}/nowhere"
    done = run(COLAB + hosted.CELL.format(source=""), tmp_path, COURSE_REPOSITORY=nowhere)
    told = done.stderr.splitlines()[-1]
    assert f"{nowhere} cannot be cloned" in told and "switch on Internet" in told


@pytest.mark.parametrize("server", ["COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"])
def test_how_to_keep_answers_is_told_for_each_server(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(hosted, "needed", list)
    monkeypatch.setattr(hosted, "DRIVE", tmp_path / "none")
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLAB_RELEASE_TAG", "1")  # which Kaggle, made from Colab, has too
    monkeypatch.setenv(server, "1")
    hosted.set_up()
    told = capsys.readouterr().out
    assert f"to {REPOSITORY / 'notebooks'}" in told
    assert ("mount Drive" in told) == (server == "COLAB_RELEASE_TAG")


def test_what_is_missing_is_installed_and_what_the_server_gave_stays(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(hosted, "installed", lambda need: not need.startswith("onnx>"))
    monkeypatch.setattr(hosted.subprocess, "run", lambda words, check: ran.append(words))
    monkeypatch.setattr(hosted, "DRIVE", tmp_path)
    monkeypatch.setattr(hosted, "move_answers", lambda kept: None)
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.setenv("COURSE_MINE", "")  # so that it is put back
    monkeypatch.delenv("COURSE_MINE")
    monkeypatch.chdir(tmp_path)
    hosted.set_up()
    hosted.set_up()  # the cell is run again
    assert len(ran) == 2 and ran.pop() == ran[0]
    (onnx,) = (need for need in hosted.needed() if need.startswith("onnx>"))
    given = [f"{name}=={importlib.metadata.version(name)}" for name in hosted.GIVEN]
    assert ran == [[sys.executable, "-m", "pip", "install", "--quiet", onnx, *given]]
    assert os.environ["COURSE_MINE"] == str(tmp_path / "from-batchnorm-to-int8" / "mine.py")
    assert os.environ["PYTHONPATH"] == os.pathsep.join([str(REPOSITORY), "elsewhere"])


def test_what_a_server_has_must_be_new_enough_but_for_what_it_gives(monkeypatch):
    old = types.SimpleNamespace(version="1.0")
    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: [old])
    assert not hosted.installed("onnx>=1.20") and hosted.installed("tqdm")
    assert not {need.partition(">=")[0] for need in hosted.needed()} & set(hosted.GIVEN)
    assert any(">=" in need for need in hosted.needed())


def test_answers_of_the_session_go_along_to_drive_once(tmp_path, monkeypatch):
    mine = tmp_path / "notebooks" / "mine.py"
    (mine.parent / "mine").mkdir(parents=True)
    mine.write_text("answers")
    (mine.parent / "mine" / "tiny.safetensors").write_text("network")
    monkeypatch.setattr(hosted, "REPOSITORY", tmp_path)
    kept = tmp_path / "drive" / "course"
    hosted.move_answers(kept)
    assert (kept / "mine.py").read_text() == "answers"
    assert (kept / "mine" / "tiny.safetensors").read_text() == "network"
    mine.write_text("of another session")
    hosted.move_answers(kept)
    assert (kept / "mine.py").read_text() == "answers"


@pytest.mark.slow
@pytest.mark.ci
def test_the_cell_sets_the_course_up_in_an_empty_folder(tmp_path):
    program = COLAB + 2 * hosted.CELL.format(source="") + THEN  # once more, as REMEDY advises
    done = run(program, tmp_path, COURSE_REPOSITORY=f"file://{REPOSITORY}")
    assert done.returncode == 0, done.stderr
    assert "installing" not in done.stdout
    assert "download mine.py" in done.stdout
    assert done.stdout.strip().endswith("in notebooks")
    assert [path.parent for path in tmp_path.rglob(".git")] == [tmp_path / "from-batchnorm-to-int8"]


@pytest.mark.parametrize("lacking", ["tqdm", "batchnorm-to-int8", "jupyterlab"])
def test_the_doctor_on_a_server_never_advises_to_replace_its_libraries(
    lacking, monkeypatch, capsys
):
    found = importlib.metadata.Distribution.discover
    hiding = lambda **by: iter(()) if by.get("name") == lacking else found(**by)  # noqa: E731
    monkeypatch.setattr(importlib.metadata.Distribution, "discover", hiding)
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(__version__="0.1+x"))
    remedies = [one.remedy for one in (*doctor.packages(), *doctor.torch_pair()) if not one.good]
    assert len(remedies) == 1 + (lacking == "tqdm")  # the course itself need not be installed there
    assert set(remedies) == {hosted.REMEDY}
    assert "pip" not in hosted.REMEDY and "first cell" in hosted.REMEDY


@pytest.mark.slow
@pytest.mark.ci
def test_what_few_lessons_need_is_imported_when_it_is_used():
    """A server installs it in the first cell; a lesson without it starts sooner."""
    done = subprocess.run(
        [sys.executable, "-c", LESSONS_IMPORT], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_a_replica_names_the_cell_in_which_a_kernel_died_and_goes_on(tmp_path):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    sources = {
        "01_dies": ["1", "import os\nos._exit(1)"],
        "02_runs": ["open('helpers.py', 'w').close()"],
    }
    for name, cells in sources.items():
        made = [new_code_cell(source, id=f"cell-{at}") for at, source in enumerate(cells)]
        nbformat.write(new_notebook(cells=made), tmp_path / f"{name}.ipynb")
    done = run(REPLICA.format(repository=str(tmp_path)), REPOSITORY)
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines()]
    told = {name: outcome for name, _, _, outcome in lines}
    assert list(told) == ["01_dies", "02_runs"], done.stderr
    assert told["01_dies"] == "FAILED  cell 2 (cell-1): DeadKernelError: Kernel died"
    assert told["02_runs"].startswith("ok")
    assert done.returncode == 1


def run(program, folder, **env):
    """A fresh process in a folder from which the checkout cannot be seen."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=outside | env,
        capture_output=True,
        text=True,
    )
