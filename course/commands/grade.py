"""`python -m course grade ...`: release, collect, run, feedback, export, stats, similarity, item, demo."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from course.grading import course
from course.grading.classroom import DEFAULT, Classroom, ClassroomError

DEMO = Path("build/demo")
SYSTEMS = ("moodle", "canvas", "gradescope")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands of `grade` to a parser."""
    commands = parser.add_subparsers(dest="grade_command", required=True)
    words = {
        "release": "make the student bundles",
        "collect": "bring in what was handed in",
        "run": "grade what is new or changed",
        "feedback": "write a page for each student",
        "export": "write the marks as CSV",
        "stats": "draw how the class did",
        "similarity": "show hand-ins that resemble each other",
        "item": "grade one item again for everybody",
        "demo": "make a small class, then do all of the above with it",
    }
    for name, explanation in words.items():
        command = commands.add_parser(name, help=explanation)
        default = DEMO if name == "demo" else DEFAULT
        command.add_argument("--folder", type=Path, default=default, help="the class folder (default %(default)s)")
        command.add_argument("--new", action="store_true", help="make the class folder if it is not there yet")
        if name == "item":
            command.add_argument("assignment", help="for example a1")
            command.add_argument("item", help="name of the item")
        elif name == "demo":
            command.set_defaults(assignment=["a1"])
        else:
            command.add_argument("assignment", nargs="*", help="which assignments (default: all)")
        if name in ("run", "item", "demo"):
            command.add_argument("--workers", type=int, help="submissions at a time (default: one per core)")
            command.add_argument("--scheduler", help="grade on the workers of this Dask scheduler, tcp://HOST:PORT")
            command.add_argument("--unsafe", action="store_true", help="grade without the box; stamps every result")
        if name == "release":
            command.add_argument("--edition", action="store_true", help="also the whole course, without what is secret")
        if name == "collect":
            command.add_argument("--source", type=Path, help="where the hand-ins are (default: incoming/<assignment>)")
        if name == "export":
            command.add_argument("--for", dest="system", choices=SYSTEMS, help="write what this system reads")
        if name == "similarity":
            command.add_argument("--threshold", type=float, default=0.6, help="share in common (default %(default)s)")
        if name in ("export", "stats"):
            command.add_argument("--pseudonyms", action="store_true", help="replace the students' names")


def run(args: argparse.Namespace) -> int:
    """Carry out one sub-command. Returns the exit status."""
    room = _open(args)
    with room.locked():
        globals()[f"_{args.grade_command}"](room, args)
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
    from course.grading.release import edition, release

    if getattr(args, "edition", False):
        print(edition(room, _exercises(room, args)))
        return
    for exercise in _exercises(room, args):
        print(f"{release(room, exercise)}.zip")


def _collect(room: Classroom, args: argparse.Namespace) -> None:
    from course.grading.collect import collect, remarks

    for exercise in _exercises(room, args):
        name = exercise.assignment.name
        hand_ins = collect(room, name, args.source)
        for remark in remarks(room, name):
            print(remark)
        renamed = sum(one.student not in ("", one.path.name, one.path.stem) for one in hand_ins)
        new = sum(one.became == "collected" for one in hand_ins)
        names = f", {renamed} under names made of theirs" if renamed else ""
        print(f"{name}: {new} collected{names}, {len(room.students(name))} in all; see collected/{name}.csv")


def _run(room: Classroom, args: argparse.Namespace) -> None:
    from course.grading import runner

    for exercise in _exercises(room, args):
        counts = runner.run(room, exercise, args.workers, not args.unsafe, scheduler=args.scheduler)
        print(f"{exercise.assignment.name}: {counts['graded']} graded, {counts['kept']} unchanged")
        _print_noteworthy(room, exercise)


def _print_noteworthy(room: Classroom, exercise: course.Exercise) -> None:
    from course.grading.runner import noteworthy

    if lines := noteworthy(room, exercise):
        print("Please look at these before the marks go out:", *lines, sep="\n  ")


def _item(room: Classroom, args: argparse.Namespace) -> None:
    from course.grading import runner

    exercise = course.load(args.assignment)
    counts = runner.run(room, exercise, args.workers, not args.unsafe, args.item, args.scheduler)
    print(f"{args.assignment} {args.item}: {counts['graded']} graded")


def _feedback(room: Classroom, args: argparse.Namespace) -> None:
    from course.grading.feedback import write_all

    for exercise in _exercises(room, args):
        pages = write_all(room, exercise)
        print(f"{exercise.assignment.name}: {len(pages)} pages in {room.folder / 'feedback'}")
        _print_noteworthy(room, exercise)


def _export(room: Classroom, args: argparse.Namespace) -> None:
    from course.grading import export, systems

    exercises, remarks = _exercises(room, args), []
    if args.system:
        files, remarks = systems.export_for(args.system, room, exercises)
    else:
        files = export.export(room, [exercise.assignment.name for exercise in exercises], args.pseudonyms)
    print(*files, *remarks, sep="\n")


def _stats(room: Classroom, args: argparse.Namespace) -> None:
    from course.grading import stats

    for exercise in _exercises(room, args):
        print(*stats.draw(room, exercise), *stats.draw_leaderboard(room, exercise, args.pseudonyms), sep="\n")


def _similarity(room: Classroom, args: argparse.Namespace) -> None:
    from course.grading import similarity

    for exercise in _exercises(room, args):
        path, count = similarity.write_report(room, exercise, args.threshold)
        print(f"{path}: {count} pairs")


def _demo(room: Classroom, args: argparse.Namespace) -> None:
    from course.grading.answers import make_class

    args.pseudonyms, args.source, args.system = False, None, None
    (room.folder / "demo").touch()
    _release(room, args)
    make_class(room, course.load("a1"))
    for action in (_collect, _run, _feedback, _export, _stats):
        action(room, args)
