"""What teachers ask for: a class list, marks for other systems, similar hand-ins, the class in words."""

import csv
import json
from datetime import UTC, datetime

import pytest

from course.grading import answers, export, record, roster, similarity, stats
from course.grading.classroom import Classroom, ClassroomError
from tests.course.grading.test_record import enter

HEADER = "student,id,name,section,group,extra_days,extra_days_a1\n"


def write_list(room, text):
    roster.path_of(room).write_text(text)


def test_the_class_list_says_who_has_more_time(room):
    write_list(room, HEADER + "ada,1001,Ada Lovelace,A,1,2,\nben,1002,,B,,1,7\ncy,1003,,,,,\n")
    people = roster.read(room)
    assert [people[s].extension("a1") for s in ("ada", "ben", "cy")] == [2, 7, 0]
    assert people["ben"].extension("a2") == 1 and people["ada"].name == "Ada Lovelace"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name,id\nAda,1\n", "the columns are name, id"),
        ("student,extra\nada,1\n", "the columns are student, extra"),
        ("student,id\nada,1\nada,2\n", "line 3: ada stands there twice"),
        ("student,id\n../ada,1\n", "cannot name a student"),
        ("student,id\n,1\n", "cannot name a student"),
        ("student,extra_days\nada,soon\n", "could not convert"),
        ("student,extra_days\nada,-1\n", "ada: extra_days is -1"),
    ],
)
def test_a_list_that_cannot_be_read_is_named_with_its_line(room, text, problem):
    write_list(room, text)
    with pytest.raises(ClassroomError, match=r"class_list\.csv cannot be read") as error:
        roster.read(room)
    assert problem in str(error.value)


def test_more_time_moves_the_deadline_of_one_student(room):
    room.settings.write_text("late_percent_per_day = 10\nlate_days = 5\n[due]\na1 = 2030-01-01T00:00:00Z\n")
    late = datetime(2030, 1, 3, tzinfo=UTC)
    assert [room.rules.penalty("a1", late, 100, extra) for extra in (0, 1, 2)] == [20, 10, 0]


def test_pseudonyms_are_stable_and_differ_between_classes(tmp_path):
    one, other = Classroom.open(tmp_path / "a"), Classroom.open(tmp_path / "b")
    ada = export.pseudonym(one, "ada")
    assert export.pseudonym(one, "ada") == ada and "ada" not in ada
    assert len({ada, export.pseudonym(other, "ada"), export.pseudonym(one, "ben")}) == 3


@pytest.fixture
def graded(room, skeleton, hand_in):
    """Ada has everything but a written answer that waits, ben crashed the grader, cy handed in nothing."""
    write_list(room, HEADER + 'ada,1001,"Lovelace, Ada",A,,,\ncy,1003,=cy(),A,,,\n')
    enter(room, answers.fill(skeleton, {"padding_answer": "because"}), {"fold_conv": 10.0})
    for student in ("ada", "ben"):
        hand_in(student, {})
    result = {"notes": ["a note"], "items": {"fold_conv": {"message": "a sign"}}}
    path = room.result_path("a1", "ada")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    return room


def rows(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_moodle_and_canvas_leave_empty_what_is_not_settled(graded, a1):
    path, *remarks = export.export_for("moodle", graded, [a1])
    assert rows(path) == [
        ["ID number", "Full name", "a1"],
        ["1001", "Lovelace, Ada", ""],
        ["1003", "'=cy()", ""],
        ["", "ben", ""],
    ]
    assert remarks[0] == "a1: ben handed in and does not stand on the class list"
    assert remarks[1].startswith("a1: ada is left empty, for padding_answer")
    path, *_ = export.export_for("canvas", graded, [a1])
    header, possible, ada, *_ = rows(path)
    assert header == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "a1"]
    assert possible[0].strip() == "Points Possible" and possible[-1] == "100"
    assert ada == ["Lovelace, Ada", "1001", "", "ada", "A", ""]


def test_points_come_out_when_everything_is_read(graded, a1):
    with record.Gradebook(graded.database) as book:
        for name in ("padding_answer", "rounding_answer"):
            grade = book.find_grade(name, "a1", "a1", "ada")
            grade.manual_score, grade.needs_manual_grade = 5, False
        book.db.commit()
    path, *remarks = export.export_for("moodle", graded, [a1])
    assert rows(path)[1] == ["1001", "Lovelace, Ada", "20"]
    assert not any("ada" in remark for remark in remarks)


def test_gradescope_gets_a_result_even_of_a_crash(graded, a1):
    files = export.export_for("gradescope", graded, [a1])
    ada, ben = (json.loads(path.read_text()) for path in files[:2])
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


def test_renaming_and_layout_hide_nothing_and_own_work_is_not_alike():
    sources = {"ada": [COPIED], "ben": [RENAMED], **{f"own{i}": [text] for i, text in enumerate(OTHERS)}}
    assert [(one, other) for _, one, other in similarity.similar(sources, [], 0.6)] == [("ada", "ben")]


def test_what_was_released_and_what_everybody_shares_do_not_count():
    same = {student: [COPIED] for student in ("ada", "ben")}
    assert similarity.similar(same, [COPIED], 0.1) == []
    usual = {f"student{i}": [COPIED] for i in range(8)}
    assert similarity.similar(usual, [], 0.1) == []


def test_broken_code_is_compared_as_far_as_it_goes():
    assert similarity.tokens_of("a = (1") == ["name", "=", "(", "1"]


def test_the_report_shows_pairs_side_by_side_and_nothing_runs_in_it(room, hand_in, a1):
    hostile = "\n# <script>alert(1)</script>"
    for student, text in {"ada": COPIED + hostile, "ben": RENAMED, "zora": OTHERS[0], "dot": OTHERS[1]}.items():
        hand_in(student, {"fold_conv_solution": text})
    path, count = similarity.write_report(room, a1)
    text = path.read_text()
    assert count == 1 and "ada and ben" in text and "zora" not in text
    assert "<script>" not in text and "&lt;script&gt;" in text


@pytest.mark.parametrize(
    ("number", "words"), [(1.0, "nearly everybody"), (0.5, "some"), (float("nan"), "not read yet")]
)
def test_difficulty_in_words(number, words):
    assert stats.in_words(number, stats.EARNED) == words
