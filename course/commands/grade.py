"""`python -m course grade ...`: release, collect, run, feedback, export, stats, similarity, item, demo."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from course.commands import options
from course.grading import answers, collect, course, export, feedback, release, runner, similarity, stats
from course.grading.classroom import DEFAULT, Classroom, ClassroomError

DEMO = Path("build/demo")
GRADING = {
    "--workers": (int, "submissions at a time, by default one per core"),
    "--scheduler": (str, "grade on the workers of this Dask scheduler, tcp://HOST:PORT"),
    "--unsafe": (False, "grade without the box; stamps every result"),
}
PSEUDONYMS = {"--pseudonyms": (False, "replace the students' names")}
COMMANDS = {
    "release": ("make the student bundles", {"--edition": (False, "the whole course, without what is secret")}),
    "collect": ("bring in what was handed in", {"--source": (Path, "where the hand-ins are, if not in incoming/")}),
    "run": ("grade what is new or changed", GRADING),
    "feedback": ("write a page for each student", {}),
    "export": (
        "write the marks as CSV",
        PSEUDONYMS | {"--for": (str, "write what this system reads", ("moodle", "canvas", "gradescope"))},
    ),
    "stats": ("draw how the class did", PSEUDONYMS),
    "similarity": ("show hand-ins that resemble each other", {"--threshold": (0.6, "share in common")}),
    "item": ("grade one item again for everybody", GRADING),
    "demo": ("make a small class, then do all of the above with it", GRADING),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands of `grade` to a parser."""
    menu = parser.add_subparsers(dest="grade_command", required=True)
    for name, (explanation, settings) in COMMANDS.items():
        command = menu.add_parser(name, help=explanation)
        default = DEMO if name == "demo" else DEFAULT
        command.add_argument("--folder", type=Path, default=default, help="the class folder (default %(default)s)")
        options.add(command, settings | {"--new": (False, "make the class folder if it is not there yet")})
        if name == "item":
            command.add_argument("assignment", nargs=1, help="for example a1")
            command.add_argument("item", help="name of the item")
        elif name == "demo":
            command.set_defaults(assignment=["a1"])
        else:
            command.add_argument("assignment", nargs="*", help="which assignments (default: all)")


def run(args: argparse.Namespace) -> int:
    """Carry out one sub-command. Returns the exit status."""
    room = _open(args)
    with room.locked():
        globals()[f"_{args.grade_command.replace('item', 'run')}"](room, args)
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


def _exercises(room: Classroom, args: argparse.Namespace) -> list[course.Exercise]:
    """Those that were named; else all, which after the release means all that were released."""
    if args.assignment:
        names = args.assignment
    elif args.grade_command == "release":
        names = course.names()
    else:
        names = [name for name in course.names() if (room.folder / "released" / name).is_dir()]
    return [course.load(name) for name in names]


def _release(room: Classroom, args: argparse.Namespace) -> None:
    exercises = _exercises(room, args)
    if getattr(args, "edition", False):
        print(release.edition(room, exercises))
    else:
        print(*(f"{release.release(room, exercise)}.zip" for exercise in exercises), sep="\n")


def _collect(room: Classroom, args: argparse.Namespace) -> None:
    for exercise in _exercises(room, args):
        name = exercise.assignment.name
        hand_ins = collect.collect(room, name, args.source)
        for remark in collect.remarks(room, name):
            print(remark)
        renamed = sum(one.student not in ("", one.path.name, one.path.stem) for one in hand_ins)
        new = sum(one.became == "collected" for one in hand_ins)
        names = f", {renamed} under names made of theirs" if renamed else ""
        print(f"{name}: {new} collected{names}, {len(room.students(name))} in all; see collected/{name}.csv")


def _run(room: Classroom, args: argparse.Namespace) -> None:
    item = getattr(args, "item", None)
    for exercise in _exercises(room, args):
        counts = runner.run(room, exercise, args.workers, not args.unsafe, item, args.scheduler)
        what = f"{exercise.assignment.name} {item}" if item else exercise.assignment.name
        print(f"{what}: {counts['graded']} graded, {counts['kept']} unchanged")
        _print_noteworthy(room, exercise)


def _print_noteworthy(room: Classroom, exercise: course.Exercise) -> None:
    if lines := runner.noteworthy(room, exercise):
        print("Please look at these before the marks go out:", *lines, sep="\n  ")


def _feedback(room: Classroom, args: argparse.Namespace) -> None:
    for exercise in _exercises(room, args):
        pages = feedback.write_all(room, exercise)
        print(f"{exercise.assignment.name}: {len(pages)} pages in {room.folder / 'feedback'}")
        _print_noteworthy(room, exercise)


def _export(room: Classroom, args: argparse.Namespace) -> None:
    exercises, remarks, system = _exercises(room, args), [], getattr(args, "for", None)
    if system:
        files, remarks = export.export_for(system, room, exercises)
    else:
        files = export.export(room, [exercise.assignment.name for exercise in exercises], args.pseudonyms)
    print(*files, *remarks, sep="\n")


def _stats(room: Classroom, args: argparse.Namespace) -> None:
    for exercise in _exercises(room, args):
        print(*stats.draw(room, exercise), *stats.draw_leaderboard(room, exercise, args.pseudonyms), sep="\n")


def _similarity(room: Classroom, args: argparse.Namespace) -> None:
    for exercise in _exercises(room, args):
        path, count = similarity.write_report(room, exercise, args.threshold)
        print(f"{path}: {count} pairs")


def _demo(room: Classroom, args: argparse.Namespace) -> None:
    args.pseudonyms, args.source = False, None
    (room.folder / "demo").touch()
    _release(room, args)
    answers.make_class(room, course.load("a1"))
    for action in (_collect, _run, _feedback, _export, _stats):
        action(room, args)
