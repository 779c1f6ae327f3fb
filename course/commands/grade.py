"""`python -m course grade ...`: all that is done with assignments, by its sub-commands."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from course.commands import add, options
from course.grading import (
    answers,
    arrivals,
    collect,
    course,
    export,
    feedback,
    gradescope,
    release,
    roster,
    runner,
    similarity,
    stats,
)
from course.grading.classroom import DEFAULT, Classroom, ClassroomError, NotReadyError
from course.grading.course import Exercise
from course.grading.noteworthy import late_or_not, noteworthy, strays, unsettled


def share(word: str) -> float:
    """A number from 0 to 1, such as 0.6, which is 60 percent."""
    if not 0 <= float(word) <= 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number from 0 to 1")
    return float(word)


GRADING = {
    "--workers": (options.positive, "submissions at a time, by default one per core"),
    "--unsafe": (False, "run students' code without the box; every result is stamped"),
    "--scheduler": (str, "grade on the workers of the Dask cluster at this address"),
}
ONE_ITEM = {"--item": (str, "grade this item alone again; the marks of the others stay")}
NEW = {"--new": (False, "make the class folder if it is not there yet")}
PSEUDONYMS = {"--pseudonyms": (False, "replace the students' names")}
SYSTEMS = {"--for": (str, "write what this system reads", ("moodle", "canvas"))}
COMMANDS = {
    "release": (
        "make the student bundles",
        {"--edition": (False, "one zip file of the whole course, without solutions and graders")},
    ),
    "collect": (
        "bring in what was handed in",
        {"--source": (Path, "where the hand-ins are, if not in incoming/")},
    ),
    "run": ("grade what is new or changed", GRADING | ONE_ITEM),
    "feedback": ("write a page for each student", PSEUDONYMS),
    "export": ("write the marks as CSV", PSEUDONYMS | SYSTEMS),
    "stats": ("draw how the class did", PSEUDONYMS),
    "similarity": (
        "show hand-ins that resemble each other",
        {"--threshold": ((share, 0.6), "share in common, from 0 to 1")},
    ),
    "gradescope": ("make an autograder for Gradescope", {}),
    "demo": ("try most of the above on a made-up class", GRADING),
}
TOGETHER = (
    "release",
    "export",
    "demo",
)  # take all assignments at once, the others one after the other


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands of `grade` to a parser."""
    menu = parser.add_subparsers(title="commands", metavar="COMMAND", dest="grade_command")
    parser.set_defaults(explain=parser.print_help)
    for name, (explanation, settings) in COMMANDS.items():
        command = menu.add_parser(name, help=explanation)
        command.set_defaults(complain=command.error)
        folder = {
            "--folder": (Path("build/demo") if name == "demo" else DEFAULT, "the class folder")
        }
        add(
            command,
            folder | settings | (NEW if name in ("release", "collect") else {}),
        )
        if name == "demo":
            command.set_defaults(
                assignment=["a1"], pseudonyms=False, source=None, edition=False, item=None
            )
        else:
            command.add_argument("assignment", nargs="*", help="which assignments (default: all)")


def run(args: argparse.Namespace) -> int:
    """Carry out one sub-command, or list them. Returns the exit status."""
    if args.grade_command is None:
        args.explain()
        return 2
    room = _open(args)
    with room.locked():
        for line in _do(args.grade_command, room, args):
            print(line)
    return 0


def _open(args: argparse.Namespace) -> Classroom:
    """Open the class; only --new makes one: a mistyped folder would get another secret, and so
    other hidden inputs.
    """
    room = Classroom(args.folder.resolve())
    if args.grade_command == "demo":
        if room.exists and not (room.folder / "demo").exists():
            raise ClassroomError(
                f"{room.folder} is a real class; give the demonstration a --folder of its own"
            )
    elif not room.exists and room.gradebook.exists():
        raise ClassroomError(
            f"{room.folder}/secret is missing: restore it from your backup; with another one"
            " everybody would be graded on other inputs"
        )
    elif not room.exists and not getattr(args, "new", False):
        raise ClassroomError(
            f"there is no class in {room.folder}. Correct --folder; `grade release --new` makes one"
        )
    Classroom.open(args.folder)
    if args.grade_command == "demo":
        (room.folder / "demo").touch()
    return room


def _do(name: str, room: Classroom, args: argparse.Namespace) -> Iterable:
    """Carry out a command for the named assignments; without names for those released, or, as
    `release`, for all.
    """
    every = [
        one
        for one in course.names()
        if name == "release" or (room.folder / "released" / one).is_dir()
    ]
    names, source = args.assignment or every, getattr(args, "source", None)
    if getattr(args, "item", None) and len(names) != 1:
        raise ClassroomError(
            "--item is for one assignment: name it, such as `grade run a1 --item ...`"
        )
    if not names:
        raise ClassroomError(f"nothing was released to {room.folder}: run `grade release` first")
    if source and len(names) > 1:
        raise ClassroomError(
            f"--source holds one assignment: name it, such as `grade collect {names[0]} --source"
            " ...`"
        )
    exercises, work = [course.load(one) for one in names], globals()[f"_{name}"]
    for some in [exercises] if name in TOGETHER else [[one] for one in exercises]:
        try:
            yield from work(room, args, *some)
        except NotReadyError as problem:
            if args.assignment or source:
                raise
            yield f"{some[0].assignment.name} was left out: {problem}"


def _demo(room: Classroom, args: argparse.Namespace, *exercises: Exercise) -> Iterable:
    yield from _do("release", room, args)
    answers.make_class(room, *exercises)
    told: list = []
    for name in ("collect", "run", "feedback", "export", "stats"):
        for line in _do(name, room, args):
            if line not in told:  # `run` and `feedback` name the same hand-ins
                yield line
            told.append(line)


def _release(room: Classroom, args: argparse.Namespace, *exercises: Exercise) -> Iterable:
    bundles = (f"{release.release(room, exercise)}.zip" for exercise in exercises)
    return [release.edition(room, [*exercises])] if args.edition else bundles


def _collect(room: Classroom, args: argparse.Namespace, exercise: Exercise) -> Iterable:
    name, rules = exercise.assignment.name, room.rules
    new = sum(one.became == "collected" for one in collect.collect(room, name, args.source))
    told = collect.remarks(room, name)
    yield from told + strays(room, name, told) + late_or_not(room, name)
    students, people = room.students(name), roster.everybody(room, name)
    late = [
        s
        for s in students
        if rules.days_late(
            name, arrivals.arrival(room, name, s), *arrivals.lateness(room, name, s, people[s])
        )
    ]
    who = f" ({', '.join(late[:10])}{', ...' * (len(late) > 10)})" * bool(late)
    yield (
        f"{name}: {new} collected, {len(students)} in all, {len(late)} late{who}; see"
        f" collected/{name}.csv"
    )


def _run(room: Classroom, args: argparse.Namespace, exercise: Exercise) -> Iterable:
    start, changed = monotonic(), []
    counts = runner.run(
        room, exercise, args.workers, not args.unsafe, args.scheduler, args.item, changed
    )
    name, graded = exercise.assignment.name, counts["graded"]
    each = f" ({(monotonic() - start) / graded:.1f} s each)" if graded else ""
    yield f"{name}: {graded} graded{each}, {counts['kept']} unchanged"
    yield from sorted(changed)
    yield from runner.pending(room, exercise)  # what --item leaves to a whole run
    yield from noteworthy(room, exercise)


def _feedback(room: Classroom, args: argparse.Namespace, exercise: Exercise) -> Iterable:
    pages = feedback.write_all(room, exercise, args.pseudonyms)
    folder = pages[0].parent if pages else room.folder / "feedback"
    yield f"{exercise.assignment.name}: {len(pages)} page{'s' * (len(pages) != 1)} in {folder}"
    if not args.pseudonyms and (bundle := feedback.write_for_moodle(room, exercise)):
        within = collect.moodle_folders(room, exercise.assignment.name)
        others = [page.stem for page in pages if page.stem not in within]
        words = f", without those that came in another way: {', '.join(others)}" * bool(others)
        yield f"for Moodle, in its folders: {bundle}{words}"
    yield from runner.pending(room, exercise)
    yield from noteworthy(room, exercise)


def _export(room: Classroom, args: argparse.Namespace, *exercises: Exercise) -> Iterable:
    if system := getattr(args, "for", None):
        if args.pseudonyms:
            raise ClassroomError(
                f"{system} needs the students' names: leave --pseudonyms or --for out"
            )
        yield from export.export_for(system, room, [*exercises])
    else:
        yield from export.export(
            room, [exercise.assignment.name for exercise in exercises], args.pseudonyms
        )
        for exercise in exercises:
            name = exercise.assignment.name
            if not room.students(name):
                yield f"{name}: nobody handed it in"
            yield from (f"{name}: {line}" for line in unsettled(room, name))
    for exercise in exercises:
        yield from runner.pending(room, exercise)


def _gradescope(room: Classroom, args: argparse.Namespace, exercise: Exercise) -> Iterable:
    return [gradescope.pack(room, exercise)]


def _stats(room: Classroom, args: argparse.Namespace, exercise: Exercise) -> Iterable:
    files = stats.draw(room, exercise) + stats.draw_leaderboard(room, exercise, args.pseudonyms)
    return files + runner.pending(room, exercise)


def _similarity(room: Classroom, args: argparse.Namespace, exercise: Exercise) -> Iterable:
    found = similarity.write_report(room, exercise, args.threshold)
    return ["{}: pairs that resemble each other: {}".format(*found)]
