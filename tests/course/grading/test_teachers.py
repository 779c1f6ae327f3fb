"""What teachers ask for: a class list, marks for other systems, similar hand-ins, the class in words."""

import csv
import json

import pytest

from course.grading import answers, export, roster, similarity, stats
from course.grading.classroom import Classroom, ClassroomError, write
from tests.course.grading.test_record import enter, give_by_hand

HEADER = "student,id,name,section,group,extra_days,extra_days_a1\n"


def test_the_class_list_says_who_has_more_time(tmp_path):
    room = Classroom.open(tmp_path)
    text = HEADER + "ada,1001,Ada Lovelace,A,1,2,\nben,1002,,B,,1,7\ncy,1003,,,,,\n"
    roster.path_of(room).write_text(text)
    people = roster.read(room)
    assert [people[s].extension("a1") for s in ("ada", "ben", "cy")] == [2, 7, 0]
    assert people["ben"].extension("a2") == 1 and people["ada"].name == "Ada Lovelace"


WRONG_LISTS = {
    "name,id\nAda,1\n": "the columns are name, id",
    "student,extra\nada,1\n": "the columns are student, extra",
    "student,id\nada,1\nada,2\n": "line 3: ada stands there twice",
    "student,id\n../ada,1\n": "cannot name a student",
    "student,id\n,1\n": "cannot name a student",
    "student,extra_days\nada,soon\n": "could not convert",
    "student,extra_days\nada,-1\n": "ada: extra_days is -1",
}


@pytest.mark.parametrize("text", WRONG_LISTS)
def test_a_list_that_cannot_be_read_is_named_with_its_line(tmp_path, text):
    room = Classroom.open(tmp_path)
    roster.path_of(room).write_text(text)
    with pytest.raises(ClassroomError, match=rf"class_list\.csv cannot be read.*{WRONG_LISTS[text]}"):
        roster.read(room)


def test_pseudonyms_are_stable_and_differ_between_classes(tmp_path):
    one, other = Classroom.open(tmp_path / "a"), Classroom.open(tmp_path / "b")
    ada = export.pseudonym(one, "ada")
    assert export.pseudonym(one, "ada") == ada and "ada" not in ada
    assert len({ada, export.pseudonym(other, "ada"), export.pseudonym(one, "ben")}) == 3


@pytest.fixture
def graded(room, skeleton, hand_in):
    """Ada has everything but a written answer that waits, ben crashed the grader, cy handed in nothing."""
    roster.path_of(room).write_text(HEADER + 'ada,1001,"Lovelace, Ada",A,,,\ncy,1003,=cy(),A,,,\n')
    enter(room, answers.fill(skeleton, {"padding_answer": "because"}), {"fold_conv": 10.0})
    for student in ("ada", "ben"):
        hand_in(student, {})
    result = {"notes": ["a note"], "items": {"fold_conv": {"message": "a sign"}}}
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
    assert remarks[1] == "a1: left empty until their written answers have been read: ada"
    path, *_ = export.export_for("canvas", graded, [a1])
    header, possible, ada, *_ = rows(path)
    assert header == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "a1"]
    assert possible[0].strip() == "Points Possible" and possible[-1] == "100"
    assert ada == ["Lovelace, Ada", "1001", "", "ada", "A", ""]
    give_by_hand(graded, 5, "padding_answer", "rounding_answer")
    path, *remarks = export.export_for("moodle", graded, [a1])
    assert rows(path)[1] == ["1001", "Lovelace, Ada", "20"]
    assert not any("ada" in remark for remark in remarks)


def test_gradescope_gets_a_result_even_of_a_crash(graded, a1):
    summary, *remarks = export.export_for("gradescope", graded, [a1])
    assert "2 files" in summary and "a1: nothing could be graded, so they get 0 points: ben" in remarks
    ada, ben = (json.loads(path.read_text()) for path in sorted(graded.folder.glob("export/gradescope/a1/*/*.json")))
    assert ada["score"] == 10 and ada["output"] == "a note"
    test = next(test for test in ada["tests"] if test["name"] == "fold_conv")
    assert (test["score"], test["output"]) == (10, "a sign")
    assert ben["score"] == 0 and ben["tests"] == [] and "has not been graded" in ben["output"]


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
    "def fold(w, b, s, t):\n    k = s * (t + 1e-5) ** -0.5\n    return w * k[:, None, None, None], b * k - t * k",
    "def fold(w, b, s, t):\n    k = s.div(t.sqrt())\n    w = torch.einsum('o...,o->o...', w, k)\n    return w, k * b",
    "fold = lambda w, b, s, t: (w * (s / t).view(-1, 1, 1, 1), torch.zeros_like(b) + s - t)",
]


def test_renaming_layout_and_broken_code_hide_nothing_and_what_is_own_released_or_usual_does_not_count():
    sources = {"ada": [COPIED], "ben": [f"{RENAMED}\na = (1"], **{f"own{i}": [o] for i, o in enumerate(OTHERS)}}
    assert [(one, other) for _, one, other in similarity.similar(sources, [], 0.6)] == [("ada", "ben")]
    assert similarity.similar({"ada": [COPIED], "ben": [COPIED]}, [COPIED], 0.1) == []
    assert similarity.similar({f"student{i}": [COPIED] for i in range(8)}, [], 0.1) == []


def test_the_report_shows_pairs_side_by_side_and_nothing_runs_in_it(room, hand_in, a1):
    hostile = "\n# <script>alert(1)</script>"
    for student, text in {"ada": COPIED + hostile, "ben": RENAMED, "zora": OTHERS[0], "dot": OTHERS[1]}.items():
        hand_in(student, {"fold_conv_solution": text})
    path, count = similarity.write_report(room, a1)
    text = path.read_text()
    assert count == 1 and "ada and ben" in text and "zora" not in text
    assert "<script>" not in text and "&lt;script&gt;" in text


def test_difficulty_in_words():
    words = [stats.in_words(number, stats.EARNED) for number in (1.0, 0.5, float("nan"))]
    assert words == ["nearly everybody", "some", "not read yet"]
