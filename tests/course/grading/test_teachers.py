"""What teachers ask for: points in nbgrader's gradebook, a class list, marks for other systems,
similar hand-ins.
"""

import csv
import json
import math
import shutil
from datetime import UTC, datetime

import nbformat
import pandas as pd
import pytest
import torch
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from course.grading import (
    answers,
    course,
    export,
    feedback,
    record,
    release,
    roster,
    similarity,
    stats,
)
from course.grading.classroom import Classroom, ClassroomError, write
from course.grading.record import AwardPoints
from tests.course.grading.trying import item_of
from tests.course.publish.chromium import NEEDED, launched


def enter(room, skeleton, points, arrived=datetime(2030, 1, 1, tzinfo=UTC)):
    record.enter(room, "a1", "ada", skeleton, points, arrived, same_words=True)


def give_by_hand(room, points, *names, comment=None):
    """What a teacher does in the Formgrader."""
    with record.Gradebook(f"sqlite:///{room.gradebook}") as book:
        for name in names:
            grade = book.find_grade(name, "a1", "a1", "ada")
            grade.manual_score, grade.needs_manual_grade = points, False
            place = name if "answer" in name else f"{name}_solution"
            book.find_comment(place, "a1", "a1", "ada").manual_comment = comment
        book.db.commit()


def points_in_book(room):
    return {name: row["points"] for name, row in record.scores(room, "a1", "ada").items()}


def test_points_are_plain_and_clamped_whatever_was_awarded_and_whatever_a_cell_shows(
    room, a1, skeleton
):
    odd = [-1, float("nan"), float("inf"), True, torch.tensor(2.5), torch.tensor(float("nan")), 1e9]
    items = a1.assignment.items
    assert len(items) >= len(odd)
    forged = answers.fill(skeleton, {})
    for cell in forged.cells:
        if cell.cell_type == "code":
            cell.outputs = [
                new_output("execute_result", {"text/plain": "1000.0"}, execution_count=1)
            ]
    enter(room, forged, {item.name: value for item, value in zip(items, odd, strict=False)})
    found = [points_in_book(room)[item.name] for item in items]
    assert found[: len(odd)] == [0, 0, 0, 1, 2.5, 0, items[len(odd) - 1].points] and not any(
        found[len(odd) :]
    )
    other = new_code_cell(
        "1000.0", outputs=[new_output("execute_result", {"text/plain": "1000.0"})]
    )
    AwardPoints(points={}).preprocess_cell(other, {}, 0)
    assert other.outputs == []


def test_entering_again_replaces_what_was_awarded_and_keeps_what_was_given_by_hand(room, skeleton):
    room.settings.write_text(
        "late_percent_per_day = 10\nlate_days = 5\n[due]\na1 = 2030-01-01T00:00:00Z\n"
    )
    enter(room, skeleton, {"fold_conv": 10.0, "fold_model": 3.0})
    give_by_hand(room, 5, "padding_answer")
    enter(room, skeleton, {"fold_model": 4.5})
    assert not any(
        row["waiting"] for row in record.scores(room, "a1", "ada").values()
    )  # the other is not written
    found = points_in_book(room)
    assert [
        found[name] for name in ("fold_conv", "fold_model", "padding_answer", "late penalty")
    ] == [0, 4.5, 5, 0]
    checked = nbformat.read(room.folder / "checked" / "ada" / "a1" / "a1.ipynb", as_version=4)
    assert len(checked.cells) == len(skeleton.cells)
    enter(room, skeleton, {"fold_model": 5.0}, datetime(2030, 1, 2, 12, tzinfo=UTC))
    assert points_in_book(room)["late penalty"] == -2
    give_by_hand(room, 15, "padding_answer")  # of which a late hand-in loses its share as well
    assert points_in_book(room)["late penalty"] == -4
    checked.cells.append(new_markdown_cell("Products are rounded again."))  # in a cell of one's own
    enter(room, checked, {})
    assert record.scores(room, "a1", "ada")["rounding_answer"]["waiting"]


HEADER = "student,id,name,section,group,extra_days,extra_days_a1\n"


def test_the_class_list_says_who_has_more_time(tmp_path):
    room = Classroom.open(tmp_path)
    text = (
        f"{HEADER[:-1]},late_days_a1\nada,1001,Ada"
        ' Lovelace,A,1,"2,5",,\nben,1002,,B,,1,7,3\ncy,1003,,,,,,\ndot,1004,,,,,5,6\n'
        "eve,1005,,,,,1.3,2.3\n"
    )
    (room.folder / roster.FILE).write_text(text)
    people = roster.read(room)
    assert [people[s].lateness("a1") for s in ("ada", "ben", "cy")] == [(2.5, 0), (7, 3), (0, 0)]
    assert people["ben"].lateness("a2") == (1, None) and people["ada"].name == "Ada Lovelace"
    assert people["eve"].lateness("a1") == (1.3, 2.3)  # which differ by a little less than 1
    shown_of = {"ada": "on time", "ben": "on time", "dot": "1 day late", "eve": "1 day late"}
    for student, shown in shown_of.items():
        assert feedback._when(room, "a1", student) == shown
    # A table with tabs and empty rows, and what spreadsheets write behind the last column.
    for text in ("name\tid\nAda L\t1\n\t\n\t \n", "name;id;\nAda L;1;\n"):
        (room.folder / roster.FILE).write_text(text)
        assert [(one.name, one.id) for one in roster.read(room).values()] == [("Ada L", "1")]


WRONG_LISTS = {
    "id,section\n1,A\n": "the columns are id, section",
    "student,extra\nada,1\n": "the columns are student, extra",
    "student,id\nada,1\nada,2\n": (
        "line 3: ada is listed twice; give each line a `student` of its own"
    ),
    "student;id\nada;1\n;2\n": "line 3: neither",
    "": "the columns are missing; use student, id",
    "name,id\nAda B,1\nAda B,2\n": "line 3: Ada B is listed twice",
    "name,id\nJörg,1\n": r"cannot be read as CSV in UTF-8 \(in Excel: Save As, CSV UTF-8",
    "student,extra_days\nada,1\nben,soon\n": "line 3: extra_days is soon; write a number",
    "student,extra_days\nada,-1\n": "line 2: extra_days is -1",
    "student,extra_days_A3\nada,1\n": (
        "the columns are student, extra_days_A3; not known: extra_days_A3; use student, id"
    ),
    "student,late_days_a33\nada,1\n": ".*; not known: late_days_a33; use",
    "student,name,email\nada,,a@b\n": ".*; not known: email; use",
    "student,id\nada,1\nben,1\n": "line 3: id 1 is ada's as well: correct one of the two",
    "student,moodle\nada,1 2\nben,3 2\n": "line 3: moodle 2 is ada's as well",
    "student,name,id\nada,Lovelace, Ada,1\n": "line 2: it has more cells than there are columns",
}


@pytest.mark.parametrize("text", WRONG_LISTS)
def test_a_list_that_cannot_be_read_is_named_with_its_line(tmp_path, text):
    room = Classroom.open(tmp_path)
    (room.folder / roster.FILE).write_text(text, encoding="latin-1")
    with pytest.raises(ClassroomError, match=rf"class_list\.csv:? {WRONG_LISTS[text]}"):
        roster.read(room)


def test_pseudonyms_are_stable_and_differ_between_classes(tmp_path):
    one, other = Classroom.open(tmp_path / "a"), Classroom.open(tmp_path / "b")
    zoe = export.pseudonym(one, "zoe")  # letters that a hexadecimal number does not have
    assert export.pseudonym(one, "zoe") == zoe and "zoe" not in zoe
    assert len({zoe, export.pseudonym(other, "zoe"), export.pseudonym(one, "ben")}) == 3


class TestInABrowser:
    pytestmark = NEEDED

    def test_no_word_of_the_statistics_is_broken_on_a_telephone(self, graded, a1):
        with launched() as browser:
            shown = browser.new_page(viewport={"width": 390, "height": 800})
            shown.goto(stats.draw(graded, a1)[2].as_uri())
            shown.add_style_tag(content="* { overflow-wrap: normal !important; }")
            assert shown.evaluate("document.documentElement.scrollWidth") == 390


def test_what_a_teacher_gives_and_writes_reaches_the_pages(graded, a1, monkeypatch):
    for points, told in ((1, True), (item_of(a1.assignment, "fold_conv").points, False)):
        give_by_hand(graded, points, "fold_conv", comment="*Well* <b>tried</b>.")
        page = feedback._table(record.scores(graded, "a1", "ada"), graded.result("a1", "ada"), {})
        assert "<em>Well</em> &lt;b&gt;tried&lt;/b&gt;." in page and ("a sign" in page) == told
    assert (
        f"have {points:g} points or more of 94. Written answers that are not"
        in stats.draw(graded, a1)[2].read_text()
    )
    page = stats.draw(graded, a1)[2].read_text()
    assert (
        "\"row\">padding_answer</th><td>not all read yet</td><td class='number'></td><td></td>"
        in page
    )
    monkeypatch.setattr(
        record,
        "scores",
        lambda _, __, student: {"x": dict.fromkeys(("points", "of", "waiting"), 1)},
    )
    monkeypatch.setattr(export, "pseudonym", lambda _, student: {"ada": "p2", "ben": "p1"}[student])
    write(graded.result_path("a1", "ben"), '{"boxed": true}')
    assert export.table(graded, ["a1"], pseudonyms=True)["student"].tolist() == ["p1", "p2"]


def test_a_table_of_nobody_does_not_stay(graded):
    assert graded.folder / "export" / "a1.csv" in export.export(graded, ["a1"])
    shutil.rmtree(graded.folder / "submitted")
    export.export(graded, ["a1"])
    assert not (graded.folder / "export" / "a1.csv").exists()


@pytest.fixture
def graded(room, skeleton, hand_in):
    """Ada has everything but a written answer that waits, ben crashed the grader, cy handed in
    nothing.
    """
    (room.folder / roster.FILE).write_text(
        HEADER + 'ada,1001,"Lovelace, Ada",A,,,\ncy,1003,=cy(),A,,,\n'
    )
    enter(room, answers.fill(skeleton, {"padding_answer": "because"}), {"fold_conv": 10.0})
    for student in ("ada", "ben"):
        hand_in(student, {})
    result = {"boxed": True, "notes": ["a note"], "items": {"fold_conv": {"message": "a sign"}}}
    write(room.result_path("a1", "ada"), json.dumps(result))
    return room


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_moodle_and_canvas_leave_empty_what_is_not_settled(graded, a1):
    path, *remarks = export.export_for("moodle", graded, [a1])
    header, *people = rows(path)
    assert header == ["ID number", "Full name", "a1"]
    assert people == [["1001", "Lovelace, Ada", ""], ["1003", "'=cy()", ""], ["", "ben", ""]]
    assert remarks[0] == "a1: handed in, but not on the class list: ben"
    assert not any("column id" in remark for remark in remarks)
    assert remarks[1] == "a1: left empty until their written answers have been read: ada"
    (path, *_) = export.export_for("canvas", graded, [a1, course.load("a2")])
    header, possible, ada, *_ = rows(path)
    assert header == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "a1"]
    assert possible[0].strip() == "Points Possible" and possible[-1] == "100"
    assert ada == ["Lovelace, Ada", "1001", "", "ada", "A", ""]
    give_by_hand(graded, 5, "padding_answer", "rounding_answer")
    path, *remarks = export.export_for("moodle", graded, [a1])
    assert rows(path)[1] == ["1001", "Lovelace, Ada", "20"]
    assert not any("ada" in remark for remark in remarks)


def test_a_gradebook_that_was_lost_is_named_with_what_to_run(graded, a1):
    write(graded.result_path("a1", "ben"), '{"boxed": true}')
    for _ in range(2):  # it lacks a student, then it is gone
        with pytest.raises(
            RuntimeError,
            match=r"db holds nothing of ben's a1.*delete results/a1/ben\.json, `grade run",
        ):
            record.scores(graded, "a1", "ben")
        graded.gradebook.unlink(missing_ok=True)
    with pytest.raises(RuntimeError, match=r"gradebook\.db holds nothing of a1, .*`grade run a1`"):
        release.require_released_points(graded, a1)
    assert not graded.gradebook.exists()


def test_of_a_failure_of_nbgrader_the_reason_is_told(room, skeleton, monkeypatch):
    monkeypatch.setattr(record.SaveMarks, "preprocess", lambda *_: 1 / 0)
    with pytest.raises(RuntimeError, match="autograde of ada's a1 failed: ZeroDivisionError: div"):
        enter(room, skeleton, {})


COPIED = """
def fold(weight, bias, scale, shift):
    factor = scale / torch.sqrt(shift + 1e-5)
    result = weight * factor.reshape(-1, 1, 1, 1)
    return result, (bias - shift) * factor
"""
RENAMED = """
def fold(w, b, gamma, beta):
    # my own work
    a = gamma / torch.sqrt(beta + 1e-5)
    out = w * a.reshape(-1, 1, 1, 1)

    return out, (b - beta) * a
"""
OTHERS = [
    (
        "def fold(w, b, s, t):\n    k = s * (t + 1e-5) ** -0.5\n    return w * k[:, None, None,"
        " None], b * k - t * k"
    ),
    (
        "def fold(w, b, s, t):\n    k = s.div(t.sqrt())\n    w = torch.einsum('o...,o->o...', w,"
        " k)\n    return w, k * b"
    ),
    "fold = lambda w, b, s, t: (w * (s / t).view(-1, 1, 1, 1), torch.zeros_like(b) + s - t)",
]


def test_renaming_layout_and_broken_code_hide_nothing_and_own_released_and_usual_code_is_free():
    sources = {
        "ada": [COPIED],
        "ben": [f"{RENAMED}\na = (1"],
        **{f"own{i}": [o] for i, o in enumerate(OTHERS)},
    }
    assert [(one, other) for _, one, other in similarity.similar(sources, [], 0.6)] == [
        ("ada", "ben")
    ]
    assert similarity.similar({"ada": [COPIED], "ben": [COPIED]}, [COPIED], 0.1) == []
    assert similarity.similar({f"student{i}": [COPIED] for i in range(8)}, [], 0.1) == []


def test_the_report_shows_pairs_side_by_side_and_nothing_runs_in_it(room, hand_in, a1):
    hostile = "\n# <script>alert(1)</script>"
    for student, text in {
        "ada": COPIED + hostile,
        "ben": RENAMED,
        "zora": OTHERS[0],
        "dot": OTHERS[1],
    }.items():
        hand_in(
            student,
            {"fold_conv_solution": text}
            | ({"own": "mine = 'of ben alone'"} if student == "ben" else {}),
        )
    path, count = similarity.write_report(room, a1)
    text = path.read_text()
    for student in ("eve", "fay"):  # who hand in the same file, and what they were given
        place = hand_in(student, {"own": "from mine import *"})
        write(place / "mine.py", OTHERS[1] + COPIED)
        shutil.copy(room.folder / "released" / "a1" / "guard.py", place)
    for student in ("gus", "hal"):  # who run a notebook that holds it
        place = hand_in(student, {"own": "%run tools.ipynb"})
        cells = [{"cell_type": "code", "source": OTHERS[0] + RENAMED, "metadata": {}}]
        write(place / "tools.ipynb", json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}))
    page = similarity.write_report(room, a1)[0].read_text()
    assert "<h3>mine.py</h3>" in page and "guard.py" not in page
    assert "<h3>tools.ipynb</h3>" in page
    assert count == 1 and "ada and ben" in text and "zora" not in text
    assert "of ben alone" in text and "<script>" not in text and "&lt;script&gt;" in text


def test_an_item_that_the_weak_solve_correlates_negatively_with_all_others():
    points = {"a": (4, 2, 0), "b": (4, 4, 0), "c": (0, 2, 4)}
    rows = [
        (student, item, earned, 4)
        for item, by_student in points.items()
        for student, earned in zip("xyz", by_student, strict=True)
    ]
    marks = pd.DataFrame(rows, columns=["student", "item", "points", "of"])
    found = stats.item_statistics(marks)
    assert found.loc["c", "discrimination"] == pytest.approx(-16 / math.sqrt(8 * 104 / 3))
    assert found["earned"].tolist() == pytest.approx([1 / 2, 2 / 3, 1 / 2])


def test_difficulty_in_words():
    words = [stats.in_words(number, stats.EARNED) for number in (1.0, 0.5, float("nan"))]
    assert words == ["nearly everybody", "some", "not all read yet"]


@pytest.mark.parametrize(
    ("found", "students", "says"),
    [
        (-0.2, 13, "too few hand-ins"),
        (-0.2, 200, "read this item again"),
        (0.4, 13, "too few hand-ins"),
        (0.4, 30, "did well elsewhere"),
        (0.05, 13, "tells nothing"),
        (float("nan"), 13, "everybody has the same points"),
    ],
)
def test_of_a_small_class_no_item_is_said_to_tell_what_chance_may(found, students, says):
    assert says in stats.tells(found, students)


A5 = course.load("a5")
RULE = A5.load_driver()
# accuracy above the least that earns points, and bytes as a share of the most that do
BESIDE_TARGET = {
    "ada": (0.14, 0.30), "bela": (0.11, 0.44), "chen": (0.08, 0.25), "dora": (0.06, 0.62),
    "emil": (0.01, 0.95), "fay": (0.18, 1.40), "gwen": (-0.06, 0.21), "hugo": (0.09, 0.70),
    "kira": (-0.54, 9.00),
}  # fmt: skip
LEAST, MOST = RULE.TARGET_ACCURACY, RULE.TARGET_BYTES
CLASS = {
    name: (round(LEAST + more, 2), int(size * MOST)) for name, (more, size) in BESIDE_TARGET.items()
}


def test_the_best_come_first_and_the_figure_shows_every_network_and_the_rule(tmp_path, monkeypatch):
    contest = Classroom.open(tmp_path / "class")
    networks = {
        student: {
            "points": 30 * RULE.earned(accuracy, size),
            "measured": {"accuracy": accuracy, "bytes": size},
        }
        for student, (accuracy, size) in CLASS.items()
    }
    for student, network in (networks | {"ines": {"points": 0, "measured": {}}}).items():
        contest.submission(student, "a5").mkdir(parents=True)
        items = {
            "network": {"of": 30, "message": ""} | network,
            "front": {"points": 8, "of": 8, "message": ""},
        }
        write(contest.result_path("a5", student), json.dumps({"items": items}))
    contest.submission("jan", "a5").mkdir(parents=True)  # not graded yet
    table = stats.standings(contest, A5)  # of those with equal points, the smaller file comes first
    assert table["student"].tolist() == [
        "ada",
        "bela",
        "chen",
        "hugo",
        "dora",
        "emil",
        "gwen",
        "fay",
        "kira",
    ]
    assert table["share"].is_monotonic_decreasing and table["share"].iloc[:2].tolist() == [1.0, 1.0]
    assert table.set_index("student").loc["emil", ["accuracy", "bytes"]].tolist() == list(
        CLASS["emil"]
    )

    drawn = {}
    monkeypatch.setattr(
        stats.Figure, "savefig", lambda figure, path, **settings: drawn.update({path: figure})
    )
    png, csv = stats.draw_leaderboard(contest, A5)
    (plot,) = drawn[png].axes
    points = [
        tuple(map(float, offset)) for part in plot.collections[-2:] for offset in part.get_offsets()
    ]
    left, right = plot.get_xlim()
    front = next(line for line in plot.lines if line.get_label() == "front").get_xydata()
    assert [tuple(point) for point in front] == [CLASS[name][::-1] for name in ("chen", "ada")]
    inside = [(float(size), accuracy) for accuracy, size in CLASS.values() if accuracy > 0.5]
    assert sorted(points) == sorted(
        [*inside, (right, plot.get_ylim()[0])]
    )  # what is outside lies at the edge
    assert left < min(size for _, size in CLASS.values()) and right > MOST
    assert {"1 ada", "6 emil"} <= {text.get_text() for text in plot.texts}
    assert len(csv.read_text().splitlines()) == 1 + len(CLASS)
    assert stats.draw_leaderboard(contest, course.load("a1")) == []


def test_a_total_has_two_decimals(graded, monkeypatch):
    marks = {name: {"points": points, "of": 1, "waiting": False} for name, points in THIRDS.items()}
    monkeypatch.setattr(record, "scores", lambda *_: marks)
    path = export.export(graded, ["a1"])[1]
    assert rows(path)[1][4] == "0.3"


THIRDS = {"first": 0.1, "second": 0.1, "third": 0.1}
