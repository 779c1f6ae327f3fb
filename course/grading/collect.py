"""Bring in what the learning-management system delivered: one folder, notebook or zip file per
student.

incoming/a1/<student>/a1.ipynb        incoming/a1/<student>.ipynb        incoming/a1/<student>.zip

Whatever lies there, the rest is still collected, and it can always be done again. collected/a1.csv
says what became of each hand-in: under which name its student is known, what was left out of it and
what to do about that.
"""

import csv
import os
import shutil
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from course.grading import arrivals, machine, roster
from course.grading.arrivals import IN_TIME, LATE, is_worthless
from course.grading.classroom import (
    Classroom,
    ClassroomError,
    NotReadyError,
    write,
    write_table,
)
from course.grading.handed_in import (
    NOT_HANDED_IN,
    OF_SEVERAL,
    UNREADABLE,
    IntakeError,
    cells_of,
    files_below,
    files_of,
    require_answers,
    shown,
)

GRADESCOPES_LIST = "submission_metadata.yml"  # lies in its export, beside the folders of students


@dataclass
class HandIn:
    """One entry of the incoming folder, or several that go together, and what became of them."""

    paths: list[Path]
    entry: str
    student: str = ""
    arrived: datetime | None = None
    became: str = "left out"
    remark: str = ""
    damage: str = ""  # why nothing of its notebook can be graded

    @property
    def canvas_says(self) -> str:
        """IN_TIME or LATE, or nothing if it did not come from Canvas, whose files have the date of
        the download.
        """
        named = [roster.CANVAS.fullmatch(path.name) for path in self.paths]
        if None in named:
            return ""
        return LATE if any(match["late"] for match in named) else IN_TIME

    @property
    def in_time(self) -> bool:
        """Whether Canvas calls it in time."""
        return self.canvas_says == IN_TIME


def collect(room: Classroom, assignment: str, source: Path | None = None) -> list[HandIn]:
    """Copy submissions into the class, by its rule of resubmission.

    Returns every entry, with what became of it.
    """
    machine.require(boxed=False)
    source = source or room.folder / "incoming" / assignment
    if not source.is_dir():
        raise NotReadyError(
            f"{source} is not a folder; put one folder, notebook or zip file per student there"
        )
    people = roster.read(room)
    found = _hand_ins(source, assignment, people)
    first = room.rules.resubmission == "first"
    for student in dict.fromkeys(hand_in.student for hand_in in found if hand_in.student):
        several = [hand_in for hand_in in found if hand_in.student == student]
        _settle(room, assignment, several, people.get(student) or roster.Listed(student), first)
    dates = [f"{one.arrived:%Y-%m-%d %H:%M:%S}" if one.student else "" for one in found]
    rows = [
        [one.entry, one.student, date, one.became, one.remark]
        for one, date in zip(found, dates, strict=True)
    ]
    header = ["entry", "student", "arrived (UTC)", "became", "remark"]
    write_table(room.folder / "collected" / f"{assignment}.csv", header, rows, "utf-8-sig")
    return found


def _hand_ins(source: Path, assignment: str, people: dict[str, roster.Listed]) -> list[HandIn]:
    """Everything in a folder, files of one student's hand-in together."""
    entries = [
        path
        for path in source.iterdir()
        if not NOT_HANDED_IN.search(path.name) and path.name != GRADESCOPES_LIST
    ]
    named = roster.students(entries, people)
    age = {path: path.lstat().st_mtime for path in entries}
    parts: dict[Path | str, dict[str, Path]] = {}
    lost = {}
    # Of two files of one name the newer counts; Canvas calls it a1-1.ipynb, the next a1-2.ipynb.
    for path in sorted(entries, key=lambda path: (age[path], roster.attempt(path), path.name)):
        group = parts.setdefault(named[path][0] if roster.is_part(path) else path, {})
        name = roster.own_name(path)
        # Of one download, so it is no second hand-in; but a notebook is needed only once.
        together = name in group and age[path] - age[group[name]] < 60
        if together and name != f"{assignment}.ipynb":
            lost[named[path][0]] = (
                f"{path.name} counts, and {group[name].name} does not. If both are needed, rename"
                " one; if the other one is meant, delete this one; then collect again"
            )
        group[name] = path
    hand_ins = sorted(sorted(group.values()) for group in parts.values())
    found = [_look_at(assignment, paths, people, *named[paths[0]]) for paths in hand_ins]
    for hand_in in (one for one in found if one.student in lost):
        hand_in.remark = _joined(hand_in.remark, lost[hand_in.student])
    return found


def _settle(
    room: Classroom, assignment: str, several: list[HandIn], person: roster.Listed, first: bool
) -> None:
    """Take the one of a student's hand-ins that counts, and say so of the others."""
    several.sort(key=lambda hand_in: hand_in.arrived, reverse=not first)
    # One that earns nothing counts where there is no other.
    several.sort(
        key=lambda one: (
            bool(one.damage),
            is_worthless(room, assignment, person, one.arrived, one.in_time),
        )
    )
    for counts in several:
        _take(room, assignment, counts, person, first)
        if counts.became in ("collected", "unchanged"):
            break
    for other in several:
        if other is counts or other.remark:
            continue
        target = room.submission(counts.student, assignment)
        if _holds(target, files_of(other.paths, assignment)[0]):
            # The same work: its earliest date counts.
            _take(room, assignment, other, person, first)
            continue
        words = "what was collected before counts"
        if _holds(target, files_of(counts.paths, assignment)[0]):
            words = f"{counts.entry} is by the same student and counts"
        other.remark = _joined(other.damage, words)


def _look_at(
    assignment: str, paths: list[Path], people: dict[str, roster.Listed], student: str, remark: str
) -> HandIn:
    """When a hand-in came, and whether it can be graded; without its student where it is none."""
    hand_in, path = (
        HandIn(paths, ", ".join(shown(path.name, 255) for path in paths), remark=remark),
        paths[0],
    )
    try:
        is_folder = stat.S_ISDIR(path.lstat().st_mode)
        usable = is_folder or roster.is_part(path) or path.suffix.lower() in (".ipynb", ".zip")
        if path.is_symlink() or not usable:
            hand_in.remark = (
                "only folders, notebooks and zip files named like a student are collected, no links"
            )
            return hand_in
        if (path / GRADESCOPES_LIST).exists():
            if any(part.is_dir() for part in path.iterdir()):
                where = path.parent
                hand_in.remark = (
                    f"it is Gradescope's export: move the folders in it to {where}, and give each"
                    " its student's name"
                )
            return hand_in
        # Whoever looks into a folder changes its own date, and may leave a checkpoint there.
        inside = [
            file
            for file in files_below(path)
            if not NOT_HANDED_IN.search(file.relative_to(path).as_posix())
        ]
        times = [part.lstat().st_mtime for part in inside or paths]
        hand_in.arrived = datetime.fromtimestamp(max(times), UTC)
        files, problems = files_of(paths, assignment)
        # What a system, or the class list, says is somebody's stays so, whatever lies in it.
        is_owned = roster.is_part(path) or "_assignsubmission_" in path.name or student in people
        if OF_SEVERAL in problems and not is_owned:
            hand_in.remark = OF_SEVERAL
        elif student == assignment:
            hand_in.remark = "it is named like the assignment: give it the name of its student"
        else:
            hand_in.student, hand_in.damage = student, _damage(files, assignment)
    except (OSError, ValueError, OverflowError, RecursionError) as problem:
        hand_in.remark = f"it cannot be read ({problem}); correct its permissions or its date"
    return hand_in


def _joined(*remarks: str) -> str:
    return "; ".join(filter(None, remarks))


def _take(
    room: Classroom, assignment: str, hand_in: HandIn, person: roster.Listed, first: bool
) -> None:
    """Copy a hand-in, unless what is there already counts."""
    target = room.submission(hand_in.student, assignment)
    if match := roster.CANVAS.fullmatch(hand_in.paths[0].name):
        # By this the class list finds the student.
        write(target.parent / f"{roster.NUMBER}{match['number']}", "")
    files, problems = files_of(hand_in.paths, assignment)
    is_readable = f"{assignment}.ipynb" in files
    one_is_there = any(target.glob("*.ipynb"))
    that_is_sound = one_is_there and not _damage(files_of([target], assignment)[0], assignment)
    if one_is_there:
        hand_in.became = "unchanged"
        if _holds(target, files):
            hand_in.remark = _joined(*problems, hand_in.damage, hand_in.remark)
            _keep_first_date(target, hand_in)
            return
        if that_is_sound or hand_in.damage:
            why = _why_the_other_counts(room, assignment, hand_in, person, first, that_is_sound)
            if why:
                hand_in.remark = _joined(hand_in.remark, why)
                return
        hand_in.became = "left out"
    hand_in.remark = _joined(*problems, hand_in.damage * is_readable, hand_in.remark)
    if one_is_there and (not is_readable or (hand_in.damage and that_is_sound)):
        hand_in.remark += "; the hand-in before it still counts"
        return
    hand_in.became = "collected" if is_readable else "unreadable"
    if not is_readable:  # the other files are of no use, and the student's page says why
        files = {UNREADABLE: "; ".join(problems).encode("utf-8", "replace")}
    _replace(target, files, hand_in.arrived)
    arrivals.note(target, hand_in.arrived, hand_in.canvas_says)
    room.log(
        "collected",
        assignment=assignment,
        student=hand_in.student,
        arrived=hand_in.arrived.isoformat(),
        files=sorted(files),
    )


def _keep_first_date(target: Path, hand_in: HandIn) -> None:
    """Of a hand-in that lies there already, the first of its dates counts."""
    before, said = arrivals.noted(target)
    says = said if said == IN_TIME else hand_in.canvas_says
    arrivals.note(target, min(before, hand_in.arrived), says)


def _why_the_other_counts(
    room: Classroom,
    assignment: str,
    hand_in: HandIn,
    person: roster.Listed,
    first: bool,
    other_is_sound: bool,
) -> str:
    """Why what was collected before counts, and not this; empty if this one does."""
    target = room.submission(hand_in.student, assignment)
    before, said = arrivals.noted(target)
    days_are_unknown = hand_in.canvas_says == LATE and person.lateness(assignment)[1] == 0
    if days_are_unknown and said == IN_TIME and not first and other_is_sound:
        return (
            f"Canvas says late: write the days into late_days_{assignment}, then collect again;"
            " until then what was collected before counts"
        )
    earns_nothing = is_worthless(room, assignment, person, hand_in.arrived, hand_in.in_time)
    other_earns = not is_worthless(room, assignment, person, before, said == IN_TIME)
    if first and hand_in.arrived >= before:
        why = "it came first"
    elif not first and hand_in.arrived <= before:
        why = "it is no older"
    elif earns_nothing and other_earns:
        why = "this one is so late that it earns nothing"
    else:
        return ""
    how = f"if this one should count, delete {target.relative_to(room.folder)} and collect again"
    return f"what was collected before counts, for {why}; {how}"


def _holds(target: Path, files: dict[str, bytes]) -> bool:
    """Whether just these files lie there; what whoever looked into it left does not count."""
    paths = {str(path.relative_to(target)): path for path in target.rglob("*")}
    there = {
        name: path
        for name, path in paths.items()
        if not NOT_HANDED_IN.search(name) and (path.is_symlink() or not path.is_dir())
    }
    return there.keys() == files.keys() and all(
        p.is_file() and p.read_bytes() == files[n] for n, p in there.items()
    )


def _replace(target: Path, files: dict[str, bytes], arrived: datetime) -> None:
    """Put a folder with these files, as old as the hand-in, in the place of the present one."""
    new = target.parent / f".{target.name}.new"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for name, data in files.items():
        write(new / name, data)
    # For `arrivals.noted`, should this be killed before it is noted.
    os.utime(new, (arrived.timestamp(), arrived.timestamp()))
    arrivals.forget(target)
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)


def remarks(room: Classroom, assignment: str, told: dict[str, str] | None = None) -> list[str]:
    """What the last `collect` had to say about hand-ins that it could not take as they were, but
    for what was told of their students already.
    """
    rows = _table(room, assignment)
    became = {"collected": "was collected, but", "unchanged": "is the same as before:"}
    return [
        f"{row['entry']} {became.get(row['became'], 'was ' + row['became'] + ':')} {row['remark']}"
        for row in rows
        if row["remark"] and row["remark"] not in (told or {}).get(row["student"], "")
    ]


def moodle_folders(room: Classroom, assignment: str) -> dict[str, str]:
    """By student, the folder in Moodle's download in which the hand-in that counts lay."""
    return {
        row["student"]: row["entry"]
        for row in _table(room, assignment)
        if row["became"] in ("collected", "unchanged", "unreadable")
        and (match := roster.MOODLE.fullmatch(row["entry"]))
        and not match["file"]
    }


def _table(room: Classroom, assignment: str) -> list[dict[str, str]]:
    """What the last `collect` wrote, a row for each entry."""
    path = room.folder / "collected" / f"{assignment}.csv"
    if not path.exists():
        return []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        lines = ["?"]
    # A spreadsheet may have written it again.
    rows = csv.DictReader(lines, delimiter=";" if ";" in "".join(lines[:1]) else ",")
    if lines and not {"entry", "student", "became", "remark"} <= {*rows.fieldnames}:
        again = f"delete it, then `grade collect {assignment}` again"
        raise ClassroomError(f"{path} cannot be read: {again}")
    return [*rows]


def _damage(files: dict[str, bytes], assignment: str) -> str:
    """Why a hand-in with these files cannot be graded; empty if it can."""
    if (notebook := files.get(f"{assignment}.ipynb")) is None:
        return "no notebook in it can be read"
    try:
        require_answers(cells_of(notebook), assignment)
    except IntakeError as problem:
        return str(problem)
    return ""
