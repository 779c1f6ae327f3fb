"""Cells run as in a notebook, and where functions are taken away all but what calls them does."""

import asyncio
import importlib
import linecache
import re
import selectors
import sys
import time
from pathlib import Path
from unittest.mock import patch

import IPython
import pytest

from course.grading import judge
from course.grading.box import Limits
from course.grading.job import Place

TAKEN = 'raise RuntimeError("this exercise asks you to write yourself what is called here")'
CALLS = f"def taken():\n    {TAKEN}"


@pytest.fixture
def notebook(a1, tmp_path, monkeypatch):
    """Make the box's notebook, with functions taken away or not."""
    (job := tmp_path / "job").mkdir()
    Place(a1, Limits(), boxed=False).build(job, judge.NOBODY, {})
    monkeypatch.syspath_prepend(job / "lib")  # as in the box
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "path_hooks", [*sys.path_hooks])
    monkeypatch.setattr(IPython, "get_ipython", IPython.get_ipython)  # so that it is put back
    scratch = job / "scratch"
    monkeypatch.chdir(scratch)
    monkeypatch.setattr(selectors, "DefaultSelector", selectors.DefaultSelector)
    loop = asyncio.SelectorEventLoop
    for name in ("_make_self_pipe", "_close_self_pipe", "_write_to_self"):  # all are put back
        monkeypatch.setattr(loop, name, getattr(loop, name))
    with patch.dict(sys.modules):
        module = importlib.import_module("inside.cells")
        made = []

        def make(*of_it):
            made.append(module.Notebook(scratch, *of_it))
            return made[-1]

        yield make
        for one in made:
            one.loop.close()


def run(notebook, *sources):
    cells = [{"name": f"cell{number}", "source": source} for number, source in enumerate(sources)]
    notebook.run(cells, 2)
    return notebook.namespace


def test_libraries_below_the_folder_of_the_box_are_found_as_libraries(notebook, monkeypatch):
    (site := Path("site")).mkdir()
    (site / "library.py").touch()
    Path("own.py").touch()
    monkeypatch.syspath_prepend(site.resolve())
    names = run(notebook(True), "import library, own")
    assert type(names["library"].__loader__) is importlib.machinery.SourceFileLoader
    assert type(names["own"].__loader__).__name__ == "Loader"


def test_only_what_calls_something_taken_away_is_left_out(notebook):
    watched = notebook(True)
    names = run(
        watched,
        CALLS,
        "expected = taken()\nassert expected > 1\nprint(expected)\nafter = 1",
        "need = later + 1\nfound = 2",
        "later = 3",
        "raise ValueError\nnever = 4",
    )
    assert (names["after"], names["need"], names["found"]) == (1, 4, 2)
    assert "expected" not in names and "never" not in names
    assert watched.missing["expected"] == "expected = taken()"
    assert watched.problems == [["cell4", "ValueError"]]


def test_where_nothing_is_taken_away_an_error_ends_its_cell(notebook):
    usual = notebook(False)
    names = run(usual, CALLS, "taken()\nafter = 1", "missing\nafter = later", "later = 3; later")
    assert "after" not in names and usual.missing == {}
    assert [cell for cell, _ in usual.problems] == ["cell1", "cell2"]


def test_a_module_of_ones_own_runs_like_a_cell(notebook):
    Path("own").mkdir()
    Path("own/tools.py").write_text(f"{CALLS}\ny = taken()\ndef f():\n    return 5\n")
    names = run(notebook(True), "from own.tools import f\nanswer = f()")
    assert names["answer"] == 5


def test_what_ran_out_of_time_is_not_tried_again(notebook):
    cell = "first = 1\nwhile True: pass\nnever = 1"
    before = notebook(False)
    assert "never" not in run(before, cell) and before.endless == [["<cell0, cell 1>", 2]]
    start = time.process_time()
    again = notebook(True, before.endless)
    names = run(again, cell, "after = 1")
    assert names["first"] == names["after"] == 1 and "never" not in names
    assert time.process_time() - start < 1


def test_shell_lines_do_what_shells_do_with_files(notebook):
    lines = [
        "!mkdir -p own/deep && touch own/a.txt own/b.txt",
        "!cp own/*.txt own/deep; mv own/deep/a.txt own/c.txt",
        "!rm -rf own/a.txt nothing\n!cp -r own copied\n!cat own/b.txt",
        "import shutil\nshutil.make_archive('packed', 'zip', 'own')\n!unzip -q -d out packed.zip",
    ]
    usual = notebook(True)
    run(usual, *lines)
    found = sorted(str(path) for path in Path().rglob("*.txt"))
    names = ("b.txt", "c.txt", "deep/b.txt")
    assert found == [f"{folder}/{name}" for folder in ("copied", "out", "own") for name in names]
    assert usual.problems == []


def test_what_a_line_would_have_installed_is_named(notebook, capsys):
    lines = "!pip install -q einops && ls", "%pip install timm", "%matplotlib inline", "!cat x"
    run(notebook(True), "\n".join(lines))
    left_out = capsys.readouterr().out.splitlines()
    words = "grading installs nothing, so this was left out:"
    assert left_out == [f"{words} pip install -q einops", f"{words} pip install timm"]


def test_a_shell_line_that_no_shell_understands_ends_no_cell(notebook):
    usual = notebook(True)
    run(usual, "!echo that's it\n!cp\n!unzip\nafter = 1")
    assert usual.namespace["after"] == 1 and usual.problems == []


def test_magics_know_names_and_those_of_ones_own_run(notebook):
    source = """
home = %pwd
name = "made"
!mkdir -p {name}/inner
%cd -q $name
%cd inner
%cd -
names = {"one": 1}
%time two = {**names, "two": 2}
three = %time 1 + 2  # a sum
import asyncio
%time await asyncio.sleep(0)
handle = display(1, display_id=True)
handle.update(2)
get_ipython().push({"pushed": 3})
get_ipython().run_cell("ran = 4")
from IPython.core.magic import register_cell_magic
@register_cell_magic
def own(line, cell):
    get_ipython().run_cell(cell.replace("DIGIT", line))
"""
    made = notebook(False)
    names = run(made, source, "%%own 5\nfive = DIGIT", "%cd {home}", "%%capture said\n1")
    assert made.problems == []
    found = {name: names.get(name) for name in ("two", "three", "pushed", "ran", "five")}
    assert found == {"two": {"one": 1, "two": 2}, "three": 3, "pushed": 3, "ran": 4, "five": 5}
    assert names["said"].stdout == ""


def test_paths_of_windows_and_files_that_begin_with_a_mark_are_read(notebook):
    made = notebook(False)
    cells = [
        "!mkdir own",
        "%%writefile own\\tools.py\nsix = 6",
        "from own.tools import six",
        "with open('marked.py', 'w', encoding='utf-8-sig') as file:\n    file.write('seven = 7')\n"
        "%run .\\marked.py",
        "%%writefile my\\ own.py\neight = 8",
        "%run my\\ own.py",
    ]
    names = run(made, *cells)
    assert made.problems == [] and (names["six"], names["seven"], names["eight"]) == (6, 7, 8)


def test_a_module_that_is_written_right_after_another_is_found(notebook):
    """Though the folder's date, which moves in steps, may be what it was."""
    made = notebook(False)
    keep = "import os\nbefore = os.stat('.')\n"
    cells = [
        "%%writefile a.py\none = 1",
        f"{keep}from a import one",
        "%%writefile b.py\ntwo = 2",
        "os.utime('.', ns=(before.st_atime_ns, before.st_mtime_ns))\nfrom b import two",
    ]
    names = run(made, *cells)
    assert made.problems == [] and names.get("two") == 2


def test_an_error_below_a_magic_is_shown_with_its_own_line(notebook):
    made = notebook(False)
    run(made, "%%time\ndef first():\n    raise KeyError", "%%time\ndef second():\n    pass")
    files = [made.namespace[name].__code__.co_filename for name in ("first", "second")]
    assert len({*files}) == 2 and all(re.match("<(.+), cell", file) for file in files)
    assert linecache.getline(files[0], 2).strip() == "raise KeyError"


DRAFT = "def answer():\n    return 'draft'\n"


@pytest.mark.parametrize(
    "cell", [f"{DRAFT}print(given())", f"print(given())\n{DRAFT}", "answer = given()"]
)
@pytest.mark.parametrize("above", ["", f"{CALLS}\nresult = taken()"])
def test_a_draft_that_needs_a_later_cell_does_not_replace_the_answer(notebook, cell, above):
    answer = "def answer():\n    return 'right'"
    names = run(notebook(True), above, cell, answer, "def given():\n    return lambda: 'draft'")
    assert names["answer"]() == "right"
    names = run(notebook(True), above, answer, cell, "def given():\n    return lambda: 'draft'")
    assert names["answer"]() == "draft"  # which stands below the answer


def test_cells_that_wait_for_others_are_executed_in_their_order(notebook):
    cells = ("found = later", "found = [later]", "later = 1")
    assert run(notebook(False), *cells)["found"] == [1]


def test_cells_that_wait_are_given_what_they_define_themselves(notebook):
    below = "def f(a):\n    return a * 10\nx = 100"
    assert run(notebook(False), "x = f(3)", "z = x + 1", below)["z"] == 31


def test_a_statement_that_waits_brings_no_older_definition_back(notebook):
    stub = "def answer():\n    raise NotImplementedError"
    cell = "y = later\ndef answer():\n    return 'right'\nprint(missing)"
    names = run(notebook(True), stub, cell, "later = 1", f"{CALLS}\nresult = taken()")
    assert names["answer"]() == "right"


def test_a_cell_with_a_mistake_in_a_function_is_executed_once(notebook):
    mistake = "tries.append(1)\ndef f():\n    n += 1\nf()"
    assert run(notebook(False), "tries = []", mistake)["tries"] == [1]
