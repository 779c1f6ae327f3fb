"""`python -m course report`, `slides`, `demo` and `site`: the course as pages that work offline."""

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from course.commands import lab
from course.publish import demo, report, runner, slides, steps
from helpers import data, models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    told = "folder for the pages, which have names of their own (default: in build/)"
    parser.add_argument("--output", type=folder, metavar="FOLDER", help=told)


def folder(word: str) -> Path:
    """Where pages are put: each page links to others by their names."""
    path = Path(word).expanduser().resolve()
    if path.is_file() or path.suffix == ".html":
        raise argparse.ArgumentTypeError(f"{path} is a page; name the folder that it goes to")
    return path


def run(arguments: argparse.Namespace) -> int:
    """Write the pages of the notebooks as they were run last, in full and one at a time; without
    such a run, as they came with the course.
    """
    name, write = PAGES[arguments.command]
    for path in write(arguments.output or runner.BUILD / name):
        print(
            f"{path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser, with or without a"
            " connection"
        )
    return 0


def write_report(folder: Path) -> list[Path]:
    """Results, numbers and figures in one page, with the figures beside it."""
    write_demo(folder)
    print("results, numbers and figures as a page", flush=True)
    notebooks = [*map(runner.executed, runner.lessons())]
    return [report.write_report(notebooks, folder / "report.html")]


def write_slides(folder: Path) -> list[Path]:
    """An index of decks: one for each lesson, and the talk, which shows the networks in a frame."""
    index = folder / "index.html"
    if index.exists() and slides.TITLE not in index.read_text(encoding="utf-8", errors="replace"):
        raise FileExistsError(f"{index} is no index of slides: name another folder with --output")
    slides.reveal("dist/reveal.css")  # if it is missing, that is said before the pages are made
    write_demo(folder)
    notebooks = [runner.executed(path) for path in runner.lessons(talk=True)]
    decks = []
    for notebook in notebooks:
        print(f"slides of {notebook.stem}", flush=True)
        decks.append(slides.write_deck(notebook, folder / f"{notebook.stem}.html"))
    return [slides.write_index(decks, notebooks, index)]


def write_demo(folder: Path, own: dict[str, Path] | None = None) -> list[Path]:
    """The networks, which the page computes, and beside them the passes, with pictures of the
    committed sample.
    """
    print("the networks as a page", flush=True)
    cifar = data.load_cifar10("sample")
    images = data.normalize(cifar.test_images[:8])
    shown = (own or {}) | demo.shipped()
    networks = demo.write_demo(folder / "demo.html", cifar, shown)
    print("the passes as a page: each runs, and its answers are compared", flush=True)
    passes = steps.write_steps(folder / "passes.html", models.pretrained(), images)
    return [networks, passes]


def write_demo_with_own(folder: Path) -> list[Path]:
    """The same page, with what a learner has kept; no page that others will see gets that."""
    folders = [lab.WORK / "mine", runner.NOTEBOOKS / "mine"]
    if "COURSE_MINE" in os.environ:
        folders.insert(0, Path(os.environ["COURSE_MINE"]).with_suffix(""))
    return write_demo(folder, demo.own_networks(folders))


def write_site(folder: Path) -> list[Path]:
    """Lessons, guides and results as a website, which shows the networks on its first page."""
    from course.publish import site  # Sphinx is not installed for those who only study

    if not (site.ASSIGNMENTS / "INSTRUCTOR.md").exists():
        raise FileNotFoundError("the website holds guides that this edition of the course lacks")
    with TemporaryDirectory() as made:
        return [site.write_site(folder, write_demo(Path(made)))]


PAGES = {
    "report": ("", write_report),
    "slides": ("slides", write_slides),
    "demo": ("", write_demo_with_own),
    "site": ("site", write_site),
}
