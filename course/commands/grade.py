"""`python -m course grade ...`: release, collect, run, feedback, export, stats, similarity, item, demo."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from time import monotonic

from course.commands import add
from course.grading import answers, collect, course, export, feedback, release, runner, similarity, stats
from course.grading.classroom import DEFAULT, Classroom, ClassroomError
from course.grading.course import Exercise

DEMO = Path("build/demo")
GRADING = {
    "--workers": (int, "submissions at a time, by default one per core"),
    "--scheduler": (str, "grade on the workers of this Dask scheduler, tcp://HOST:PORT"),
    "--unsafe": (False, "grade without the box; stamps every result"),
}
PSEUDONYMS = {"--pseudonyms": (False, "replace the students' names")}
SYSTEMS = {"--for": (str, "write what this system reads", ("moodle", "canvas", "gradescope"))}
COMMANDS = {
    "release": ("make the student bundles", {"--edition": (False, "the whole course, without what is secret")}),
    "collect": ("bring in what was handed in", {"--source": (Path, "where the hand-ins are, if not in incoming/")}),
    "run": ("grade what is new or changed", GRADING),
    "feedback": ("write a page for each student", {}),
    "export": ("write the marks as CSV", PSEUDONYMS | SYSTEMS),
    "stats": ("draw how the class did", PSEUDONYMS),
    "similarity": ("show hand-ins that resemble each other", {"--threshold": (0.6, "share in common")}),
    "item": ("grade one item again for everybody", GRADING),
    "demo": ("make a small class, then do most of the above with it", GRADING),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands of `grade` to a parser."""
    menu = parser.add_subparsers(dest="grade_command", required=True)
    for name, (explanation, settings) in COMMANDS.items():
        command = menu.add_parser(name, help=explanation)
        folder = {"--folder": (DEMO if name == "demo" else DEFAULT, "the class folder")}
        add(command, folder | settings | {"--new": (False, "make the class folder if it is not there yet")})
        if name == "item":
            command.add_argument("assignment", nargs=1, help="for example a1")
            command.add_argument("item", help="name of the item")
        elif name == "demo":
            command.set_defaults(assignment=["a1"], pseudonyms=False, source=None, edition=False)
        else:
            command.add_argument("assignment", nargs="*", help="which assignments (default: all)")


def run(args: argparse.Namespace) -> int:
    """Carry out one sub-command. Returns the exit status."""
    room = _open(args)
    with room.locked():
        for line in _do(args.grade_command, room, args):
            print(line)
    return 0


def _open(args: argparse.Namespace) -> Classroom:
    """Open the class; a new one is made only on purpose, for a mistyped name would mean another secret."""
    room = Classroom(args.folder.resolve())
    if args.grade_command == "demo":
        if room.exists and not (room.folder / "demo").exists():
            raise ClassroomError(f"{room.folder} is a real class; give the demonstration a --folder of its own")
    elif not room.exists and not args.new:
        question = f"There is no class in {room.folder}."
        if not sys.stdin.isatty():
            raise ClassroomError(f"{question} Correct --folder, or add --new to make one")
        if input(f"{question} Make a new one? [y/N] ").strip().lower() not in ("y", "yes"):
            raise ClassroomError("nothing was done")
    return Classroom.open(args.folder)


def _do(name: str, room: Classroom, args: argparse.Namespace) -> Iterable:
    """Do one thing for the assignments that were named; else for all, which after the release means those released."""
    every = [one for one in course.names() if name == "release" or (room.folder / "released" / one).is_dir()]
    exercises = [course.load(one) for one in args.assignment or every]
    return globals()[f"_{name.replace('item', 'run')}"](room, args, exercises)


def _demo(room: Classroom, args: argparse.Namespace, exercises: list[Exercise]) -> Iterable:
    (room.folder / "demo").touch()
    yield from _do("release", room, args)
    answers.make_class(room, *exercises)
    for name in ("collect", "run", "feedback", "export", "stats"):
        yield from _do(name, room, args)


def _release(room: Classroom, args: argparse.Namespace, exercises: list[Exercise]) -> Iterable:
    if args.edition:
        return [release.edition(room, exercises)]
    return (f"{release.release(room, exercise)}.zip" for exercise in exercises)


def _collect(room: Classroom, args: argparse.Namespace, exercises: list[Exercise]) -> Iterable:
    for name in (exercise.assignment.name for exercise in exercises):
        new = sum(one.became == "collected" for one in collect.collect(room, name, args.source))
        yield from collect.remarks(room, name)
        students = room.students(name)
        late = sum(room.rules.penalty(name, collect.arrival(room.submission(one, name)), 1) > 0 for one in students)
        yield f"{name}: {new} collected, {len(students)} in all, {late} late by their dates; see collected/{name}.csv"


def _run(room: Classroom, args: argparse.Namespace, exercises: list[Exercise]) -> Iterable:
    item = getattr(args, "item", None)
    for exercise in exercises:
        start = monotonic()
        counts = runner.run(room, exercise, args.workers, not args.unsafe, item, args.scheduler)
        each = f"{(monotonic() - start) / max(1, counts['graded']):.1f} s each"
        words = f"{exercise.assignment.name} {item or ''}".strip()
        yield f"{words}: {counts['graded']} graded ({each}), {counts['kept']} unchanged"
        yield from runner.noteworthy(room, exercise)


def _feedback(room: Classroom, args: argparse.Namespace, exercises: list[Exercise]) -> Iterable:
    for exercise in exercises:
        pages = feedback.write_all(room, exercise)
        yield f"{exercise.assignment.name}: {len(pages)} pages in {room.folder / 'feedback'}"
        yield from runner.noteworthy(room, exercise)


def _export(room: Classroom, args: argparse.Namespace, exercises: list[Exercise]) -> Iterable:
    if system := getattr(args, "for", None):
        return export.export_for(system, room, exercises)
    return export.export(room, [exercise.assignment.name for exercise in exercises], args.pseudonyms)


def _stats(room: Classroom, args: argparse.Namespace, exercises: list[Exercise]) -> Iterable:
    for exercise in exercises:
        yield from stats.draw(room, exercise)
        yield from stats.draw_leaderboard(room, exercise, args.pseudonyms)


def _similarity(room: Classroom, args: argparse.Namespace, exercises: list[Exercise]) -> Iterable:
    return ("{}: {} pairs".format(*similarity.write_report(room, one, args.threshold)) for one in exercises)
