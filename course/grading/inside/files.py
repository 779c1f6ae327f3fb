"""What shell lines do with files, without a shell, as no program may start where one could help."""

import re
import shlex
import shutil
from glob import glob
from pathlib import Path

INSTALLS_NOTHING = "grading installs nothing"


def do(line):
    """Do what `mkdir`, `cp`, `mv`, `rm`, `touch` and `unzip` do; others do nothing."""
    for part in re.split(r"&&|\|\||;|\n", line):
        try:
            name, *words = shlex.split(part) or [""]
            if action := ACTIONS.get(name):
                action([word for pattern in words for word in glob(pattern) or [pattern]])
            elif "install" in words:
                print(f"{INSTALLS_NOTHING}, so this was left out: {part.strip()}")
        except (OSError, ValueError) as problem:  # also a quote or a name that is missing
            print(problem)


def _names(words):
    return [Path(word).expanduser() for word in words if not word.startswith("-")]


def _mkdir(words):
    for path in _names(words):
        path.mkdir(parents=True, exist_ok=True)


def _touch(words):
    for path in _names(words):
        path.touch()


def _rm(words):
    for path in _names(words):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _cp(words):
    *sources, target = _names(words)
    for source in sources:
        if source.is_dir():
            place = target / source.name if target.is_dir() else target
            shutil.copytree(source, place, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)


def _mv(words):
    *sources, target = _names(words)
    for source in sources:
        shutil.move(source, target)


def _unzip(words):
    folder = "."
    if "-d" in words:
        place = words.index("-d")
        _, folder = words[place : place + 2]
        words = words[:place] + words[place + 2 :]
    for archive in _names(words):
        shutil.unpack_archive(archive, folder, "zip")


ACTIONS = {"mkdir": _mkdir, "cp": _cp, "mv": _mv, "rm": _rm, "touch": _touch, "unzip": _unzip}
