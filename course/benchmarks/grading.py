"""How long a class of assignment 1 takes to grade, how much memory the grader needs, and what a kill costs.

python -m course.benchmarks.grading                      classes of 10 and 100, then 100 killed half-way
python -m course.benchmarks.grading --students 10        a quick look

The class is made from the shipped right and wrong answers. Each class is graded by a process of its own, whose peak
memory is read from /proc; the boxes are other processes and are not counted.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import nbformat

from course.grading import answers, course, release, runner
from course.grading.classroom import Classroom

ASSIGNMENT = "a1"


def make_class(folder: Path, students: int) -> Classroom:
    """Release the assignment and hand in a random choice of answers for each student."""
    room, exercise, choice = Classroom.open(folder), course.load(ASSIGNMENT), random.Random(0)
    release.release(room, exercise)
    skeleton, every = runner.skeleton_of(room, exercise), answers.read(exercise)
    for index in range(students):
        sources = {}
        for item in exercise.assignment.items:
            of_item = [answer for answer in every if answer.item == item.name]
            sources[f"{item.name}_solution"] = choice.choice(of_item).code
        target = room.submission(f"student-{index:03}", ASSIGNMENT)
        target.mkdir(parents=True)
        nbformat.write(answers.fill(skeleton, sources), target / exercise.notebook.name)
    return room


def grader(room: Classroom, workers: int) -> subprocess.Popen:
    """Start a process that grades the class."""
    words = [sys.executable, "-m", "course.benchmarks.grading", "--grade", str(room.folder), "--workers", str(workers)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def grade(folder: Path, workers: int) -> None:
    """Grade a class here, then print what it took."""
    room, start = Classroom.open(folder), time.monotonic()
    counts = runner.run(room, course.load(ASSIGNMENT), workers)
    seconds = time.monotonic() - start
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    print(json.dumps(counts | {"seconds": seconds, "peak_mib": peak / 1024}))


def measure(students: int, workers: int) -> dict:
    """Grade a fresh class from beginning to end."""
    with tempfile.TemporaryDirectory() as folder:
        process = grader(make_class(Path(folder), students), workers)
        return json.loads(process.communicate()[0])


def graded(room: Classroom) -> Counter:
    """How often each student's work was graded, as the log has it."""
    lines = [json.loads(line) for line in (room.folder / "log.jsonl").read_text().splitlines()]
    return Counter(line["student"] for line in lines if line["event"] == "graded")


def kill_half_way(students: int, workers: int) -> dict:
    """Kill the grader when half of the results are there, start it again, and count."""
    with tempfile.TemporaryDirectory() as folder:
        room = make_class(Path(folder), students)
        process = grader(room, workers)
        results = room.result_path(ASSIGNMENT, "anybody").parent
        while process.poll() is None and len(list(results.glob("[!.]*.json"))) < students // 2:
            time.sleep(0.05)
        process.kill()
        process.communicate()
        before = {path.stem: path.read_bytes() for path in results.glob("[!.]*.json")}
        counts = json.loads(grader(room, workers).communicate()[0])
        after = {path.stem: path.read_bytes() for path in results.glob("[!.]*.json")}
        return {
            "results before the kill": len(before),
            "kept": counts["kept"],
            "graded after it": counts["graded"],
            "lost": students - len(after),
            "changed": sum(after[student] != data for student, data in before.items()),
            "graded twice": sum(count > 1 for count in graded(room).values()),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--students", type=int, nargs="+", default=[10, 100], help="sizes of the classes")
    parser.add_argument("--workers", type=int, default=2, help="submissions at a time (default: %(default)s)")
    parser.add_argument("--grade", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.grade:
        grade(arguments.grade, arguments.workers)
        return
    for students in arguments.students:
        result = measure(students, arguments.workers)
        each = result["seconds"] / students
        print(f"{students} students, {arguments.workers} at a time: {each:.2f} s each, "
              f"the grader's peak memory is {result['peak_mib']:.0f} MiB", flush=True)  # fmt: skip
    counts = kill_half_way(max(arguments.students), arguments.workers)
    print("killed half-way: " + ", ".join(f"{value} {name}" for name, value in counts.items()))


if __name__ == "__main__":
    main()
