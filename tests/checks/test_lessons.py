"""Exercises as a learner meets them: cells in a kernel's place, hints in steps, answers that are
kept.
"""

import builtins
import linecache
import operator
import re
import shutil
import signal
import textwrap
from dataclasses import replace

import nbformat
import pytest
import torch

from course.publish.runner import NOTEBOOKS
from helpers import checks
from helpers.checks import alone, trying
from helpers.checks.alone import Spare
from helpers.checks.lessons import Lessons, changed_solution, definitions_in
from helpers.checks.specification import Mistake
from helpers.checks.trying import first_failure

RIGHT = """
def output_size(size, kernel, stride, padding):
    return (size + 2 * padding - kernel) // stride + 1
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of notebooks: lesson 01 with its exercises, and no answers yet."""
    for name in ("COURSE_MINE", "COURSE_HEADLESS"):  # a learner's own answers are left alone
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "exercises").mkdir()
    for name in ("lesson_01.py", "exercise_inputs.py"):
        shutil.copy(NOTEBOOKS / "exercises" / name, tmp_path / "exercises")
    shutil.copy(NOTEBOOKS / "01_batchnorm_math.ipynb", tmp_path)
    checks.use(tmp_path / "exercises" / "lesson_01.py")
    yield tmp_path
    checks.lessons().spare.stop()


@pytest.fixture
def one_process(monkeypatch):
    """Answers are kept untried, for tests of something else."""
    monkeypatch.setattr(Spare, "try_alone", lambda *_: None)


@pytest.fixture
def cell(folder):
    """Run a cell as a kernel does, and give its `output_size`: the source is known under a name
    that is no file's.
    """
    cells = []

    def run(source, **names):
        source = textwrap.dedent(source).lstrip("\n")
        cells.append(f"<cell {len(cells)} of {id(cells)}>")
        linecache.cache[cells[-1]] = (
            len(source),
            None,
            source.splitlines(keepends=True),
            cells[-1],
        )
        names["__name__"] = "__main__"
        exec(compile(source, cells[-1], "exec"), names)
        return names["output_size"]

    yield run
    for name in cells:
        linecache.cache.pop(name, None)


def refusal(function):
    with pytest.raises(checks.NotRightYet) as caught:
        checks.check(function)
    assert caught.value._render_traceback_() == [f"NotRightYet: {caught.value}"]
    return str(caught.value)


def test_a_right_answer_is_kept_and_used_by_the_next_kernel(cell, folder, capsys):
    assert checks.yours("output_size")(32, 3, 2, 1) == 16
    assert "solution of the course" in capsys.readouterr().out
    checks.check(cell(RIGHT))
    assert capsys.readouterr().out == "output_size: right (kept in mine.py for later lessons)\n"
    checks.use(folder / "exercises" / "lesson_01.py")  # as after a restart
    assert checks.yours("output_size")(32, 3, 2, 1) == 16
    assert "your own" in capsys.readouterr().out
    assert list(checks.lessons().blocks()) == ["output_size"]


def test_a_headless_run_keeps_no_answers_draws_new_inputs_and_survives_prints(
    cell, folder, monkeypatch, capsys
):
    monkeypatch.setenv("COURSE_HEADLESS", "1")
    wrong = RIGHT.replace("// stride + 1", "// stride + 2")
    (folder / "mine.py").write_text(f"# ---- output_size ----\n{wrong}")
    assert checks.yours("output_size")(32, 3, 2, 1) == 16
    checks.check(cell(RIGHT))
    assert capsys.readouterr().out.endswith("output_size: right\n")
    assert wrong in (folder / "mine.py").read_text()
    seen = []
    answer = cell(
        RIGHT.replace("return", "seen.append((size, kernel)); print(size); return"), seen=seen
    )
    checks.check(answer)
    half = len(seen)
    checks.check(answer)
    assert seen[:half] != seen[half:]
    assert capsys.readouterr().out.endswith("output_size: right\n")


def test_the_cell_goes_along_with_its_imports_and_helpers(cell, folder, one_process, capsys):
    source = """
    from fractions import Fraction
    from dataclasses import dataclass
    ROOM: int = 4 // 2
    ONE = operator.floordiv(ROOM, 2)
    @dataclass
    class Place: number: int
    steps = lambda room, stride: int(Fraction(room) // stride)
    print("drawn")
    def output_size(size, kernel, stride, padding):
        return steps(size + ROOM * padding - kernel, stride) + Place(ONE).number
    """
    checks.check(cell(source, operator=operator))
    assert "kept" in capsys.readouterr().out
    assert "drawn" not in (folder / "mine.py").read_text()
    assert checks.yours("output_size")(32, 3, 2, 1) == 16


@pytest.mark.parametrize(
    ("change", "told", "seconds"),
    [
        (
            ("padding)", "padding, padded=padded)"),
            "alone it fails (NameError: name 'padded' is not defined)",
            120,
        ),
        (
            ("+ 1", "+ torch.nn.Conv2d.one"),
            "type object 'Conv2d' has no attribute 'one'). Define",
            120,
        ),
        (("size +", "display(size) or size +"), "NameError: name 'display' is not defined", 120),
        (("", ""), "alone it takes more than 0.1 seconds", 0.1),
    ],
)
def test_what_only_the_notebook_knows_is_named_at_once(
    change, told, seconds, cell, folder, monkeypatch, capsys
):
    """Another cell defined `padded`, IPython put `display` among the builtins, and a layer of torch
    was patched.
    """
    monkeypatch.setattr(alone, "SECONDS", seconds)
    monkeypatch.setattr(builtins, "display", print, raising=False)
    monkeypatch.setattr(torch.nn.Conv2d, "one", 1, raising=False)
    checks.check(
        cell(
            RIGHT.replace(*change, 1), torch=torch, padded=lambda size, padding: size + 2 * padding
        )
    )
    assert "right, but not kept" in (out := capsys.readouterr().out) and told in out
    assert not (folder / "mine.py").exists()


def test_a_file_of_the_learner_in_another_encoding_stays_as_it_is(cell, folder, capsys):
    (folder / "mine.py").write_bytes(b"# \xe9\n")
    checks.check(cell(RIGHT))
    assert "right, but not kept" in (out := capsys.readouterr().out) and "utf-8" in out
    assert (folder / "mine.py").read_bytes() == b"# \xe9\n"


def test_a_second_answer_replaces_the_first_and_leaves_the_others(cell, folder, one_process):
    (folder / "mine.py").write_text("import math  # mine\n\n# ---- other ----\nother = 1\n")
    for answer in (RIGHT, RIGHT.replace("stride + 1", "stride + 1 + 0")):
        checks.check(cell(answer))
    text = (folder / "mine.py").read_text()
    assert text.count("def output_size") == 1 and "+ 1 + 0" in text and "other = 1" in text
    assert text.startswith("import math  # mine\n")


def test_what_another_notebook_keeps_meanwhile_stays(cell, folder, monkeypatch):
    other = "# ---- total ----\n\ndef total():\n    return 1\n"

    def busy(spare, name, blocks):
        (folder / "mine.py").write_text(other)

    monkeypatch.setattr(Spare, "try_alone", busy)
    checks.check(cell(RIGHT))
    assert list(checks.lessons().blocks()) == ["total", "output_size"]


def test_answers_of_one_cell_that_use_one_another_are_kept(cell, folder, capsys):
    cells = [*checks.lessons().items][:2]
    first, second = (checks.lessons().solution(name) for name in cells)
    source = f"{first}\n{second}\nuses = ({cells[0]}, {cells[1]})\n" + RIGHT * (
        "output_size" not in cells
    )
    names = "import torch, math\nfrom torch import nn\nfrom torch.nn import functional as F\n"
    checks.check(cell(names + source))
    assert "(kept" in capsys.readouterr().out
    (folder / "mine.py").write_text(
        "".join(f"# ---- {name} ----\n\n{names}{source}\n" for name in cells)
    )
    assert checks.lessons().define(cells[1], checks.lessons().blocks())


def test_the_second_try_prints_no_more_than_the_first(cell, capsys):
    wrong = cell("\n".join(RIGHT.splitlines()[:2]) + "\n    print(size)\n    return size\n")
    printed = []
    for _ in range(2):
        refusal(wrong)
        printed.append(len(capsys.readouterr().out.splitlines()))
    assert printed[1] == printed[0] > 0


def test_an_empty_answer_is_no_error_and_hints_to_a_wrong_one_come_in_steps(cell, capsys):
    checks.check(
        cell("def output_size(size, kernel, stride, padding):\n    raise NotImplementedError")
    )
    assert "output_size: not done yet" in capsys.readouterr().out
    for raises, named in (
        ("convolve", "convolve"),
        ("forward", "output_size"),
    ):  # an exercise, and a layer without one
        stub = f"def {raises}():\n    raise NotImplementedError\n"
        checks.check(cell(f"{stub}def output_size(size, kernel, stride, padding):\n    {raises}()"))
        assert f"{named}: not done yet" in capsys.readouterr().out
    torchs = cell(
        "def output_size(size, kernel, stride, padding):\n    raise NotImplementedError('for Byte')"
    )
    assert "NotImplementedError: for Byte\n    in line 2" in refusal(torchs)
    wrong = cell("def output_size(size, kernel, stride, padding):\n    return 0")
    checks.lessons().misses.clear()
    first, second, _, fourth = (refusal(wrong) for _ in range(4))
    assert "expected" in first and "got 0" in first and "Hint" not in first
    assert "Hint:" in second and "The solution" not in second
    assert "The solution:\ndef output_size(" in fourth


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            ("half = size / 0", "return half"),
            "ZeroDivisionError: division by zero\n    in line 2 of your cell: half =",
        ),
        (("return sys.exit(3)",), "SystemExit: 3\n    in line 2 of your cell: return sys.exit(3)"),
        (("while True:", "    size += 1"), "Does a loop never end?"),
        (("while True:", "    size += 1", "# as on Windows"), "Does a loop never end?"),
    ],
)
def test_an_error_shows_the_line_of_the_cell_and_an_endless_answer_is_stopped(
    lines, told, cell, monkeypatch
):
    if "loop" in told:
        limit = trying.time_limit
        monkeypatch.setattr(trying, "time_limit", lambda seconds: limit(0.2))
    if "# as on Windows" in lines:
        monkeypatch.delattr(trying.signal, "setitimer")
    source = "\n    ".join(("def output_size(size, kernel, stride, padding):", *lines))
    assert told in refusal(cell(source, sys=__import__("sys")))


def test_below_a_decorator_the_line_and_the_imports_of_the_cell_are_found(
    cell, folder, one_process, capsys
):
    right = RIGHT.replace("def ", "import copy\n@torch.no_grad()\ndef ").replace(
        "return ", "return copy.copy(0) + "
    )
    wrong = cell(right.replace("(0) +", "(0) // 0 +"), torch=torch)
    assert "in line 4 of your cell: return copy.copy(0) // 0" in refusal(wrong)
    checks.check(cell(right, torch=torch))
    assert (
        "kept in mine.py" in capsys.readouterr().out
        and "import copy" in (folder / "mine.py").read_text()
    )


def test_unknown_exercises_and_missing_files_are_named(folder):
    with pytest.raises(checks.NotRightYet, match=r"no exercise called 'outputsize'.*output_size"):
        checks.yours("outputsize")
    (folder / "mine.py").write_text("# ---- output_size ----\ndef output_size(:\n")
    with pytest.raises(
        checks.NotRightYet, match=r"output_size in .*mine.py: .*line 1.*; correct it there"
    ):
        checks.yours("output_size")
    with pytest.raises(checks.NotRightYet, match="lesson_99"):
        checks.use(folder / "lesson_99.py")


def test_the_progress_page_shows_what_passed_lesson_by_lesson(monkeypatch):
    """Its cells run where the learner's file says that one exercise is done."""
    monkeypatch.chdir(NOTEBOOKS)
    monkeypatch.setattr(Lessons, "blocks", lambda self: {"output_size": ""})
    monkeypatch.delenv("COURSE_HEADLESS", raising=False)
    names, lessons = {}, sorted((NOTEBOOKS / "exercises").glob("lesson_*.py"))
    for cell in nbformat.read("progress.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
    assert len(names["lines"]) == len(lessons)
    first, second = names["lines"][:2]
    assert "■" not in first and "■□" in second and "a1/a1.ipynb" in second
    assert sum(row.endswith("✓ |") for row in names["rows"]) == 1


def test_a_known_mistake_gets_its_own_hint_and_the_input_is_shown_at_once(cell, monkeypatch):
    lessons = checks.lessons()
    mistakes = (
        Mistake("The result is rounded up.", "-(-(size + 2 * padding - kernel) // stride) + 1"),
        Mistake("Padding is on both sides.", "size + padding", "size + 2 * padding"),
        Mistake("One window always fits.", "return (size + 2 * padding - kernel) // stride"),
    )
    item = replace(lessons.items["output_size"], mistakes=mistakes)
    monkeypatch.setitem(lessons.items, "output_size", item)
    one_sided = cell(RIGHT.replace("2 * padding", "padding"))
    lessons.misses.clear()
    first, second, third = (refusal(one_sided) for _ in range(3))
    assert re.search(r"size \d+, kernel \d+, stride \d+, padding \d+: ", first)
    assert "Hint: Padding is on both sides." in second
    assert "Hint: Padding is" not in third and "Hint:" in third
    lessons.misses.clear()
    refusal(one_sided)
    another = refusal(cell(RIGHT.replace(" + 1", "")))
    assert "Hint: One window always fits." in another


def test_an_answer_that_cannot_be_compared_is_not_tried_against_the_mistakes(cell, monkeypatch):
    monkeypatch.setattr(Lessons, "hint_for_mistake", lambda *_: "a known mistake")
    unusable = cell(RIGHT.replace("//", "/"))
    refusal(unusable)
    assert "a known mistake" not in refusal(unusable)
    checks.lessons().misses.clear()
    wrong = cell(RIGHT.replace(" + 1", ""))
    refusal(wrong)
    assert "a known mistake" in refusal(wrong)


UNCOMPARABLE = {
    "no end": "def output_size(size, kernel, stride, padding):\n    while True: pass",
    "no whole number": "def output_size(size, kernel, stride, padding):\n    return 0.5",
    "other arguments": "def output_size(n):\n    return n",
    "a changed argument": """
def scale_and_shift(gamma, beta, mu, variance, eps):
    a = gamma / (variance + eps) ** 0.5
    c = beta - a * mu
    mu.zero_()
    return a, c
""",
}


def test_an_answer_that_only_changes_an_argument_gets_a_hint_about_copies_alone(folder):
    names = {}
    exec(UNCOMPARABLE["a changed argument"], names)
    checks.lessons().misses.clear()
    refusals = [refusal(names["scale_and_shift"]) for _ in range(3)]
    assert all("right, but it changes its argument mu" in told for told in refusals)
    hints = {told.splitlines()[-1] for told in refusals[1:]}
    assert len(hints) == 1 and "Hint: Begin with a copy, x.clone()" in hints.pop()


@pytest.mark.parametrize("kind", UNCOMPARABLE)
def test_no_mistake_is_the_same_where_nothing_can_be_compared(folder, kind):
    names = {}
    exec(UNCOMPARABLE[kind], names)
    name = next(name for name in names if name in checks.lessons().items)
    item = replace(checks.lessons().items[name], seconds=0.3)
    assert first_failure(item, names[name]) is not None
    assert not trying.same_mistake(item, names[name], names[name])


def test_other_words_of_the_same_kind_of_error_are_another_mistake(cell):
    item = checks.lessons().items["output_size"]
    one = cell("def output_size(size, kernel, stride, padding):\n    return {}[size]")
    other = cell("def output_size(size, kernel, stride, padding):\n    return {}[-size]")
    assert trying.same_mistake(item, one, one)
    assert not trying.same_mistake(item, one, other)


def test_what_a_mistake_changes_stands_once_in_the_solution():
    mistake = Mistake("Padding is on both sides.", wrong="pad", right="padding")
    with pytest.raises(ValueError, match="once"):
        changed_solution("2 * padding + padding", "output_size", mistake)


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        ({"x": torch.tensor([1.0, 0.123456]), "n": 3}, " (x=[1, 0.1235], n=3)"),
        ({"x": torch.zeros(100), "n": 3}, " (x=..., n=3)"),
        ({"name": "features.1.10.weight"}, " (name='features.1.10.weight')"),
        ({}, ""),
        ({f"argument_{number}": "x" * 60 for number in range(3)}, ""),
    ],
)
def test_inputs_are_shown_when_they_are_small(inputs, shown):
    assert trying.in_words(inputs) == shown


def test_a_time_limit_leaves_no_alarm_behind():
    before = signal.getsignal(signal.SIGALRM)
    with trying.time_limit(5):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_run_without_a_learner_starts_no_process(folder, monkeypatch):
    monkeypatch.setenv("COURSE_HEADLESS", "1")
    checks.use(folder / "exercises" / "lesson_01.py")
    assert checks.lessons().spare.process is None


def test_a_process_waits_before_the_first_answer_is_right_and_ends_with_the_lessons(folder):
    spare = checks.lessons().spare
    waiting = spare.process
    assert waiting.poll() is None
    checks.use(folder / "exercises" / "lesson_01.py")
    assert waiting.poll() is not None
    assert checks.lessons().spare.process.poll() is None


def test_what_reads_names_of_other_cells_is_no_part_of_an_answer():
    cell = "results['mine'] = 1\ng = lambda v: v * scale\nK = scale + 1\nA = 2"
    assert [*definitions_in(cell)] == ["g = lambda v: v * scale", "A = 2"]
    own = ["L = [2**i for i in range(4)]", "S = sorted(L, key=lambda v: -v)"]
    others = ["M = [scale * i for i in range(4)]", "T = sorted(L, key=lambda v: v * scale)"]
    others += ["X = [i for i in L] + [i]", "Z = [i for i in i]", "V = max(a, key=lambda a: a[0])"]
    assert [*definitions_in("\n".join(own + others))] == own


def test_code_of_ones_own_above_the_first_answer_stays(tmp_path):
    lessons = Lessons(NOTEBOOKS / "exercises")
    lessons.mine = tmp_path / "mine.py"
    own = "# ---- my own helpers ----\n\nA = 2"
    lessons.mine.write_text(f"{own}\n\n# ---- old ----\n\nB = 3\n")
    assert lessons.text_of({"new": "C = 4\n"}) == f"{own}\n\n# ---- new ----\n\nC = 4\n"
