"""`python -m course COMMAND`: everything the course does, from a shell."""

from __future__ import annotations  # so that an old Python, too, comes to the line about it

import argparse
import importlib.util
import sys
from pathlib import Path

# Each command's module is imported only when it is asked for, so that --help answers at once.
COMMANDS = {
    "lab": ("course.commands.lab", "open the lessons in a working copy of your own"),
    "doctor": (
        "course.commands.doctor",
        "check this machine: one line per requirement, with the remedy",
    ),
    "data": ("course.commands.data", "find or fetch CIFAR-10 and verify it"),
    "train": ("course.commands.train", "train a network from scratch; resumable"),
    "evaluate": (
        "course.commands.evaluate",
        "measure a saved network: accuracy, size, operations, latency",
    ),
    "prune": ("course.commands.prune", "remove channels from a saved network"),
    "finetune": (
        "course.commands.finetune",
        "train a saved network on, with a teacher if you like; resumable",
    ),
    "quantize": ("course.commands.quantize", "turn a saved network into int8 or fewer bits"),
    "compress": (
        "course.commands.compress",
        "prune, fine-tune and quantize in one go, with a table of every stage",
    ),
    "sweep": ("course.commands.sweep", "make a list of networks, each once; resumable"),
    "results": (
        "course.commands.results",
        "bring README, the page of results and the chart up to date",
    ),
    "run": ("course.commands.run", "run the lessons without a screen"),
    "report": ("course.commands.pages", "results, numbers and figures as one page for presenters"),
    "slides": ("course.commands.pages", "a deck of slides per lesson"),
    "demo": ("course.commands.pages", "the networks as one page that computes them in the browser"),
    "hosted": ("course.commands.hosted", "the cell and badges for Colab and Kaggle"),
    "site": ("course.commands.pages", "lessons, guides and results as a website"),
    "grade": ("course.commands.grade", "release, collect and grade assignments"),
}

SPELLINGS = {"quantise": "quantize", "fine-tune": "finetune"}
REMEDY = "`python -m course doctor` says how to install what is missing"
RESUMABLE = ("train", "finetune", "compress", "sweep", "grade")  # given again, they go on
READ = ("checkpoint", "weights", "teacher")
WRITTEN = ("output", "onnx", "log", "state", "handover")
# As in helpers.pipeline, whose import takes long.
STAGES = ("dense", "pruned", "fine-tuned", "quantized")
DERIVED = {"state": ".state", "log": ".csv"}  # beside the output, unless they are named


def refuse_one_file_for_two(arguments: argparse.Namespace) -> None:
    """Refuse to write over a file that the command also reads, or writes under another option."""
    for name, ending in DERIVED.items():
        if getattr(arguments, name, "no such option") is None:
            setattr(arguments, name, arguments.output.with_suffix(ending))
    files = {name: getattr(arguments, name, None) for name in READ + WRITTEN}
    if files["handover"]:
        files["the CSV beside handover"] = files["handover"].with_suffix(".csv")
    if arguments.command == "compress":
        files |= {f"--output's {name}": arguments.output / f"{name}.safetensors" for name in STAGES}
    named: dict[object, str] = {}
    for name, given in files.items():
        for path in (
            one for one in (given if isinstance(given, list) else [given]) if isinstance(one, Path)
        ):
            place = path.resolve()
            # Not by its letters: a Mac's disk takes capitals for small ones.
            key = (place.stat().st_dev, place.stat().st_ino) if place.exists() else place
            other = named.setdefault(key, name)
            if other != name and name not in READ:
                raise ValueError(
                    f"{other} and {name} are one file, {path}: give one of them another name"
                )


def expand_home(arguments: argparse.Namespace) -> None:
    """`~` is the home folder in every path, also where the shell leaves it: in PowerShell, behind
    `--output=`.
    """
    for name, value in vars(arguments).items():
        values = value if isinstance(value, list) else [value]
        whole = [one.expanduser() if isinstance(one, Path) else one for one in values]
        setattr(arguments, name, whole if isinstance(value, list) else whole[0])


def main(words: list[str] | None = None) -> int:
    """Run one command; the exit status is 0, 1 for a failure, 2 for wrong arguments, 130 for
    Ctrl-C.
    """
    words = list(sys.argv[1:] if words is None else words)
    words[:1] = [SPELLINGS.get(word, word) for word in words[:1]]
    if sys.version_info < (3, 11):  # noqa: UP036
        told = "is too old: install 3.11 or newer, delete .venv and set up again, as README says"
        print(f"Python {sys.version.split()[0]} {told}", file=sys.stderr)
        return 1
    try:
        return status_of(words)
    except KeyboardInterrupt:
        trains = any(word.startswith("--qat-epochs") for word in words)
        goes_on = trains or any(word in RESUMABLE for word in words[:1])
        kept = " What was finished is kept; the same command goes on from there." * goes_on
        print(f"\nStopped.{kept}", file=sys.stderr)
        return 130


def status_of(words: list[str]) -> int:
    """Read the words, and do what they ask for."""
    overview = argparse.ArgumentParser(
        prog="python -m course",
        description="From BatchNorm to int8: the course's commands.",
        epilog="python -m course COMMAND --help explains one command.",
    )
    menu = overview.add_subparsers(
        title="commands", metavar="COMMAND", required=True, dest="command"
    )
    for name, (module, summary) in COMMANDS.items():
        if importlib.util.find_spec(module) is None:  # the students' edition leaves some out
            continue
        parser = menu.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        if words[:1] == [name]:
            try:
                command = importlib.import_module(module)
            except (ImportError, OSError) as error:  # it is missing, or its libraries do not load
                parser.exit(1, f"{parser.prog}: {error}; {REMEDY}\n")
            command.add_arguments(parser)
    arguments, unknown = overview.parse_known_args(words)
    if unknown:  # the command, or its own sub-command, says so with its usage
        complain = getattr(arguments, "complain", menu.choices[arguments.command].error)
        complain(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        expand_home(arguments)
        refuse_one_file_for_two(arguments)
        return command.run(arguments) or 0
    except (ValueError, RuntimeError, OSError, ImportError) as error:
        remedy = f"; {REMEDY}" * isinstance(error, ImportError)
        print(f"{overview.prog} {arguments.command}: {error}{remedy}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
