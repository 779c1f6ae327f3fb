"""The class folder: where one class's released, submitted and graded work lives, never committed.

released/<assignment>/      what students get, and <assignment>.zip
incoming/                   what the learning-management system delivered, before `collect`
collected/<assignment>.csv  what became of each hand-in, and under which name its student is known
submitted/<student>/<assignment>/      collected, untouched
checked/, autograded/       nbgrader's folders: rebuilt notebooks before and after grading
results/<assignment>/<student>.json    points and messages per item
feedback/<assignment>/<student>.html
gradebook.db, secret, class.toml, class_list.csv (if there is one, see roster.py), log.jsonl
"""

import csv
import hashlib
import hmac
import io
import json
import math
import os
import re
import secrets
import socket
import sys
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from course.grading import course
from helpers.files import write_atomically

DEFAULT = Path("build/grading")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")

SETTINGS = """\
# Rules of this class. Z means UTC; write your own offset, such as +01:00, in its place. An
# assignment without a line below [due] has no deadline.
resubmission = "last"        # which of several hand-ins counts: "last" or "first"
late_percent_per_day = 10    # taken from the points earned, for each day begun
late_days = 5                # later than this nothing is earned
anonymous = false            # true: markers see no names; set before the first `run`

[due]
# a1 = 2030-01-31T23:59:00Z
"""
DEFAULTS = tomllib.loads(SETTINGS)


class ClassroomError(ValueError):
    """The class folder, its settings or a name in it cannot be used."""


class NotReadyError(ClassroomError):
    """An assignment has nothing to work on yet."""


@dataclass(frozen=True)
class Rules:
    """Late and resubmission rules from class.toml."""

    resubmission: str
    late_percent_per_day: float
    late_days: float
    due: dict[str, datetime]
    anonymous: bool = False

    def days_late(
        self,
        assignment: str,
        arrived: datetime,
        extra_days: float = 0.0,
        late_days: float | None = None,
    ) -> int:
        """Days begun after the deadline; `late_days`, if given, counts instead of dates; the
        first `extra_days` cost nothing in either case.
        """
        if late_days is None:
            due = self.due.get(assignment, arrived)
            late_days = (arrived - due) / timedelta(days=1)
        charged = round(late_days - extra_days, 9)  # 4.4 - 1.4 is a little more than 3
        return max(0, math.ceil(charged))

    def penalty(
        self, assignment: str, arrived: datetime, points: float, *lateness: float | None
    ) -> float:
        """Points lost by arriving late."""
        days = self.days_late(assignment, arrived, *lateness)
        return round(
            points
            * (1.0 if days > self.late_days else min(1.0, days * self.late_percent_per_day / 100)),
            2,
        )


@dataclass(frozen=True)
class Classroom:
    """Paths and files of one class."""

    folder: Path

    @classmethod
    def open(cls, folder: str | Path = DEFAULT) -> "Classroom":
        """Open a class folder; make it, with settings and a secret, if it is not there yet."""
        room = cls(Path(folder).resolve())
        if re.search("[?%[]", str(room.folder)):
            raise ClassroomError(
                f"{room.folder}: a gradebook cannot lie below a name with ?, % or [; choose another"
                " --folder"
            )
        # Marks and hand-ins are for nobody else's eyes. A folder that is there may be shared.
        room.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("released", "incoming", "submitted", "results"):
            (room.folder / name).mkdir(exist_ok=True)
        if not room.settings.exists():
            write(room.settings, SETTINGS)
        if not room.exists:
            write_private(room.folder / "secret", secrets.token_hex(32))
        return room

    @property
    def exists(self) -> bool:
        """Whether there is a class in the folder."""
        return (self.folder / "secret").exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the class for this process; raise `ClassroomError` where another one works on it."""
        if sys.platform == "win32":  # where bundles and tables can be made, but nothing is graded
            yield
            return
        import fcntl

        with open(self.folder / ".lock", "a+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip()
                raise ClassroomError(
                    f"{self.folder} is in use by {holder}: wait until it has finished"
                ) from None
            file.truncate(0)
            file.write(
                f"process {os.getpid()} on {socket.gethostname()}, since"
                f" {datetime.now(UTC):%H:%M:%S} UTC"
            )
            file.flush()
            for part in self.folder.rglob(
                "*.part"
            ):  # begun by a command that was killed, or a download of the user's
                ours = re.fullmatch(r".+\.\d+\.part", part.name)
                if ours and part.relative_to(self.folder).parts[0] not in ("incoming", "submitted"):
                    part.unlink()
            yield

    @property
    def settings(self) -> Path:
        """The file with the rules of this class."""
        return self.folder / "class.toml"

    @property
    def secret(self) -> str:
        """From which the hidden inputs are drawn. Whoever knows it knows them."""
        return (self.folder / "secret").read_text(encoding="utf-8").strip()

    @property
    def gradebook(self) -> Path:
        """nbgrader's, a database of SQLite."""
        return self.folder / "gradebook.db"

    @property
    def rules(self) -> Rules:
        """Read class.toml."""
        try:
            values = DEFAULTS | tomllib.loads(self.settings.read_text(encoding="utf-8-sig"))
            for kind, given, known in (
                ("setting", values, DEFAULTS),
                ("assignment", values["due"], course.names()),
            ):
                if unknown := given.keys() - known:
                    names = ", ".join(sorted(unknown))
                    raise ValueError(
                        f"there is no {kind} called {names}; there are {', '.join(known)}"
                    )
            if values["resubmission"] not in ("last", "first"):
                raise ValueError(
                    f'resubmission is {values["resubmission"]!r}; use "last" or "first"'
                )
            if not isinstance(values["anonymous"], bool):
                raise ValueError(f"anonymous is {values['anonymous']!r}; use true or false")
            due = {name: _moment(when) for name, when in values["due"].items()}
            late = [float(values[name]) for name in ("late_percent_per_day", "late_days")]
            if not all(number >= 0 for number in late):
                raise ValueError("late_percent_per_day and late_days must be 0 or more")
            return Rules(values["resubmission"], *late, due, values["anonymous"])
        except (
            AttributeError,
            TypeError,
            ValueError,
        ) as problem:  # of which TOMLDecodeError is one
            raise ClassroomError(f"{self.settings} cannot be used: {problem}") from problem

    def submission(self, student: str, assignment: str) -> Path:
        """Folder of one submission."""
        return self.folder / "submitted" / checked_name(student) / assignment

    def students(self, assignment: str) -> list[str]:
        """Everybody who handed in this assignment and carries a usable name."""
        found = (path.parent.name for path in (self.folder / "submitted").glob(f"*/{assignment}"))
        return sorted(name for name in found if NAME.fullmatch(name))

    def result_path(self, assignment: str, student: str) -> Path:
        """Where the result of one submission is kept."""
        return self.folder / "results" / assignment / f"{checked_name(student)}.json"

    def result(self, assignment: str, student: str) -> dict | None:
        """Read a result, or None if there is none yet."""
        path = self.result_path(assignment, student)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def log(self, event: str, **details: Any) -> None:
        """Append one line to the log; nothing in it is ever changed."""
        line = json.dumps(
            {"time": datetime.now(UTC).isoformat(timespec="seconds"), "event": event, **details}
        )
        with open(self.folder / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(line + "\n")


def _moment(when: Any) -> datetime:
    """A deadline: a time with its offset from UTC, or a day, which means its end in UTC."""
    if isinstance(when, datetime) and when.tzinfo:
        return when
    if isinstance(when, datetime) or not isinstance(when, date):
        raise ValueError(
            f"{when!s} is no deadline; write 2030-01-31T23:59:00Z (Z for UTC, or your own +01:00),"
            " without quotes"
        )
    return datetime.combine(when, time(23, 59, 59), UTC)


def checked_name(student: str) -> str:
    """Return a student's name if it is safe as a folder's name, else raise `ClassroomError`."""
    if not NAME.fullmatch(student):
        raise ClassroomError(
            f"{student[:80]!r} cannot name a student; use letters, digits and . _ - @ (64 at most)"
        )
    return student


def pseudonym(room: Classroom, student: str) -> str:
    """A name that stays the same in one class and that nobody without its secret can trace back."""
    return "p" + hmac.new(room.secret.encode(), student.encode(), hashlib.sha256).hexdigest()[:10]


def name_of(words: str) -> str:
    """The name under which a student is known: the given one where a folder can have it, else a
    plain form of it with a digest.
    """
    words = unicodedata.normalize("NFC", words)
    if NAME.fullmatch(words):
        return words
    plain = unicodedata.normalize("NFKD", words).encode("ascii", "ignore").decode()
    digest = hashlib.sha256(words.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return f"{re.sub('[^A-Za-z0-9]+', '_', plain).strip('_')[:50] or 'student'}-{digest}"


def write_table(
    path: Path, header: list[str], rows: Iterable[Iterable], encoding: str = "utf-8"
) -> Path:
    """Write a CSV file in which no spreadsheet takes a cell for a formula.

    Excel reads "utf-8-sig" best.
    """
    text = io.StringIO()
    for row in [header, *rows]:
        cells = [
            f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@") else cell
            for cell in row
        ]
        csv.writer(text, lineterminator="\r\n").writerow(cells)
    write(path, text.getvalue().encode(encoding, "backslashreplace"))
    return path


def write_private(path: Path, text: str | bytes) -> None:
    """Write a file that nobody else can read, not even while it is written."""
    before = os.umask(0o077)
    try:
        write(path, text)
    finally:
        os.umask(before)


def write(path: Path, text: str | bytes) -> None:
    """Write a file whole or not at all, whatever half characters it holds."""
    write_atomically(
        path, text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
    )
