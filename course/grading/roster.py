"""The class list (names, numbers, extra time), and whose each hand-in is.

`class_list.csv` in the class folder. Any learning-management system or spreadsheet can write it.
Each line needs the `student`, as in collected/a1.csv or as hand-ins are called, or else the full
`name`:

    student,id,name,section,group,moodle,extra_days,extra_days_a3,late_days_a1
    ada,1001,Ada Lovelace,A,1,,,,
    ,1002,Benjamin Peirce,A,1,4711 5822,1,7,2

Names of delivered files. Moodle's number differs from one assignment to the next; Canvas's first
number is the student's:

    Ada Lovelace_4711_assignsubmission_file_/a1.ipynb        lovelaceada_LATE_12345_67890_a1-2.ipynb
    (handed in again)
"""

import csv
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from course.grading import course
from course.grading.classroom import Classroom, ClassroomError, name_of

FILE = "class_list.csv"
COLUMNS = (
    "student",
    "id",
    "name",
    "section",
    "moodle",
    "group",
)  # the last is for the teacher alone
MOODLE = re.compile(
    r"(?P<name>[^_]+)_(?P<number>\d+)_assignsubmission_[a-z]+_?(?P<file>.*)(?P<ending>)"
)
CANVAS = re.compile(
    r"(?P<name>[^_]+)_(?P<late>LATE_)?(?P<number>\d+)_\d+_(?P<file>.+?)(-(?P<attempt>\d+))?"
    r"(?P<ending>\.\w+)"
)
# with a student's number, the name of a file that `collect` leaves in the student's folder
NUMBER = ".canvas-"
HIDDEN = "Participant"  # as Moodle in English calls everybody whose names it hides
NAMESAKES = 3  # no class has more: then it is that word in another language
SHOW_NAMES = (
    "Moodle hides whose it is: reveal the identities there and download again; to hide names from"
    " who marks, set anonymous = true in class.toml"
)
# Moodle leaves these characters of a name out of the names of its files.
NOT_IN_MOODLE = re.compile(r"""[&<>"`|':\\/]""")
DAYS = ["extra_days"]
DAYS += [f"{which}_days_{name}" for name in course.names() for which in ("extra", "late")]
NUMBER_OF_DAYS = re.compile(r"(\d{1,3}([.,]\d+)?)?")


@dataclass(frozen=True)
class Listed:
    """One line of the class list; `moodle` holds Moodle's numbers, `days` the columns that speak of
    days.
    """

    student: str
    id: str = ""
    name: str = ""
    section: str = ""
    moodle: str = ""
    days: dict[str, float] = field(default_factory=dict)
    has_name: bool = False  # `student` was chosen, or hand-ins lie under it: Canvas's gives way

    def lateness(self, assignment: str) -> tuple[float, float | None]:
        """How many days later than others this student may hand in, and how many days late the list
        says it was.
        """
        extra = self.days.get(f"extra_days_{assignment}", self.days.get("extra_days", 0.0))
        return extra, self.days.get(f"late_days_{assignment}")


def read(room: Classroom) -> dict[str, Listed]:
    """The class list by student, empty where there is none; a `ClassroomError` names the line and
    what is wrong.
    """
    path = room.folder / FILE
    if not path.exists():
        return {}
    found: dict[str, Listed] = {}
    owners: dict[tuple[str, str], str] = {}
    notes, place = (room.folder / "submitted").glob(f"*/{NUMBER}*"), ""
    by_id = {note.name.removeprefix(NUMBER): note.parent.name for note in notes}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        rows = csv.DictReader(
            lines, delimiter=next((mark for mark in ";\t" if mark in "".join(lines[:1])), ",")
        )
        columns = [(column or "").strip() for column in rows.fieldnames or []]
        # A spreadsheet may write a column without a heading behind the others.
        unknown = [column for column in columns if column not in ("", *COLUMNS, *DAYS)]
        if not {"student", "name"} & {*columns} or unknown:
            right = f"{', '.join(COLUMNS)}, extra_days, extra_days_a1, late_days_a1"
            odd = f"; not known: {', '.join(unknown)}" * bool(unknown)
            raise ValueError(f"the columns are {', '.join(columns) or 'missing'}{odd}; use {right}")
        for row in rows:
            place = f"line {rows.line_num}: "
            if any(cell.strip() for cell in row.get(None) or ()):
                how = 'write a name with a comma in quotation marks, "Lovelace, Ada"'
                raise ValueError(f"it has more cells than there are columns; {how}")
            cells = {key.strip(): (value or "").strip() for key, value in row.items() if key}
            if not any(cells.values()):  # as a spreadsheet writes empty rows
                continue
            if not cells.get("student") and not cells.get("name"):
                raise ValueError("neither `student` nor `name` is given")
            listed = _listed(cells, by_id, room.folder / "submitted")
            if listed.student in found:
                called = cells.get("student") or cells["name"]
                raise ValueError(
                    f"{called} is listed twice; give each line a `student` of its own, such as"
                    f" {listed.student}_2"
                )
            found[listed.student] = listed
            moodle = [("moodle", number) for number in listed.moodle.split()]
            for column, number in [("id", listed.id), *moodle]:
                owner = owners.setdefault((column, number), listed.student)
                if owner != listed.student and re.search(r"\w", number):  # which "-" is not
                    words = f"{column} {number} is {owner}'s as well"
                    raise ValueError(f"{words}: correct one of the two lines")
    except (UnicodeDecodeError, csv.Error) as problem:
        how = "as CSV in UTF-8 (in Excel: Save As, CSV UTF-8)"
        raise ClassroomError(f"{path} cannot be read {how}: {place}{problem}") from problem
    except ValueError as problem:
        raise ClassroomError(f"{path}: {place}{problem}") from problem
    return found


def _listed(row: dict[str, str], by_id: dict[str, str], submitted: Path) -> Listed:
    chosen = row.get("student") or by_id.get(row.get("id") or "-")
    days, student = {}, name_of(chosen or row["name"])
    for column, value in row.items():
        if column in DAYS and (value or column.startswith("late")):  # there, nothing is in time
            if not NUMBER_OF_DAYS.fullmatch(value):
                raise ValueError(f"{column} is {value}; write a number of days, such as 2 or 1.5")
            days[column] = float(value.replace(",", ".") or 0)
    rest = (row.get(column, "") for column in COLUMNS[1:-1])
    return Listed(student, *rest, days, bool(chosen) or (submitted / student).is_dir())


def everybody(room: Classroom, assignment: str) -> dict[str, Listed]:
    """The class list, and after it those who handed in and are not on it."""
    listed = read(room)
    return listed | {
        student: Listed(student) for student in room.students(assignment) if student not in listed
    }


def own_name(path: Path) -> str:
    """What a student called a file."""
    match = CANVAS.fullmatch(path.name) or MOODLE.fullmatch(path.name)
    return (match and match["file"] + match["ending"]) or path.name


def attempt(path: Path) -> int:
    """How many files of this name Canvas has delivered before it."""
    match = CANVAS.fullmatch(path.name)
    return int(match["attempt"] or 0) if match else 0


def is_part(path: Path) -> bool:
    """Whether it is one of a student's files, which were delivered beside those of the others."""
    return own_name(path) != path.name and path.suffix.lower() != ".zip"


def students(paths: list[Path], people: dict[str, Listed]) -> dict[Path, tuple[str, str]]:
    """The student of each path, the same for all assignments, and what is to be said of it."""
    whose = {n: one.student for one in people.values() for n in one.moodle.split()}
    matches = {path: MOODLE.fullmatch(path.name) for path in paths}
    bearers, listed, found = defaultdict(set), defaultdict(list), {}
    for one in people.values():
        listed[name_of(NOT_IN_MOODLE.sub("", one.name))].append(one.student)
    for match in filter(None, matches.values()):
        bearers[name_of(match["name"])].add(match["number"])
    for path in paths:
        student, remark = name_of(path.name if path.is_dir() else path.stem), ""
        if match := matches[path]:
            student, number = name_of(match["name"]), match["number"]
            owners = listed[name_of(NOT_IN_MOODLE.sub("", match["name"]))]
            if number in whose:
                student = whose[number]
            elif match["name"] == HIDDEN or len(bearers[student]) > NAMESAKES:
                student, remark = name_of(f"{student}-{number}"), SHOW_NAMES
            elif len(bearers[student]) > 1 or len(owners) > 1:
                student = name_of(f"{student}-{number}")
                remark = (
                    f"several are called {match['name']}: enter {number} in the column moodle of"
                    f" {FILE}, in the line of the right one"
                )
            else:
                student = next(iter(owners), student)
        elif match := CANVAS.fullmatch(path.name):
            owners = [one for one in people.values() if one.id == match["number"]]
            student = name_of(f"{match['name']}_{match['number']}")
            student = next((one.student for one in owners if one.has_name), student)
            if people and not owners:
                line = f"its line needs {match['number']} in the column id of {FILE}"
                remark = f"{student} is not on the class list: {line}"
        elif student not in people:  # it may bear the name that the class list has for somebody
            full_name = path.name if path.is_dir() else path.stem
            owners = listed[name_of(NOT_IN_MOODLE.sub("", full_name))]
            student = owners[0] if len(owners) == 1 else student
        if people and student not in people and not CANVAS.fullmatch(path.name):
            words = f"{student} is not on the class list: correct {FILE}, or the name of the entry"
            remark = remark or f"{words} (then delete submitted/{student})"
        found[path] = student, remark
    return found
