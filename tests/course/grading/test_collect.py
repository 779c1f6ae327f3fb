"""Whatever lies in incoming/: the rest is collected, each entry is told of, and nothing that is
good is lost.
"""

import csv
import io
import os
import random
import re
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

import nbformat
import pytest

from course.grading import arrivals, feedback, intake, roster
from course.grading.arrivals import arrival
from course.grading.classroom import Classroom, ClassroomError, name_of, write
from course.grading.collect import UNREADABLE, collect, remarks
from course.grading.handed_in import MOST_FILES_BYTES, fingerprint
from course.grading.noteworthy import late_or_not


@pytest.fixture
def room(tmp_path):
    return Classroom.open(tmp_path / "class")


@pytest.fixture
def incoming(room):
    (room.folder / "incoming" / "a1").mkdir()
    return room.folder / "incoming" / "a1"


def collected(room, student):
    folder = room.submission(student, "a1")
    paths = [path for path in folder.rglob("*") if path.name != UNREADABLE and path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def sentences(room):
    collect(room, "a1")
    return [
        one
        for one in remarks(room, "a1")
        if not re.search(
            "(was collected, but|is the same as before:) the (notebook|file) is not[^;]*$", one
        )
    ]


def zipped(method=zipfile.ZIP_DEFLATED, **parts):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in (parts or {"a1.ipynb": "good" * 100}).items():
            archive.writestr(name, content)
    return data.getvalue()


def folder(**files):
    """Writes files of a folder, by a function of its path; a link is a text in a list."""

    def write(path):
        for name, content in files.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            data = content if isinstance(content, bytes | list) else content.encode()
            (
                (path / name).symlink_to(data[0])
                if isinstance(data, list)
                else (path / name).write_bytes(data)
            )

    return write


def place(path, content, time=None):
    content(path) if callable(content) else path.write_bytes(content)
    for each in [] if time is None else [path, *path.rglob("*")]:
        os.utime(each, (time, time))


def with_a_name_that_is_no_utf_8(path):
    path.mkdir()
    (path / "a1.ipynb").write_bytes(b"F")
    Path(os.fsdecode(os.fsencode(path) + b"/caf\xe9.txt")).write_bytes(b"x")


# What an entry holds, and what is collected of it.
TAKEN = {
    "folder": (folder(**{"a1.ipynb": "A"}), {"a1.ipynb": b"A"}),
    "upper.IPYNB": (b"D", {"a1.ipynb": b"D"}),
    "paths.zip": (
        zipped(**{"deep/../../a1/a1.ipynb": "C", "model.safetensors": "M"}),
        {"a1.ipynb": b"C", "model.safetensors": b"M"},
    ),
    "rubbish.ZIP": (
        zipped(
            **{
                "A1.IPYNB": "C",
                "__MACOSX/._a1.ipynb": "x",
                "Thumbs.db": "x",
                "x/__pycache__/a": "x",
                ".ipynb_checkpoints/a1-checkpoint.ipynb": "old",
                "wire.pyc": "x",
            }
        ),
        {"a1.ipynb": b"C"},
    ),
    "packed": (
        folder(**{"Hand in.ZIP": zipped(**{"x/a1.ipynb": "P"}), "Thumbs.db": "x", "net": "n"}),
        {"a1.ipynb": b"P", "net": b"n"},
    ),
    "deep": (
        folder(**{"er/still/my a1.ipynb": "E", "er/b.bin": "b"}),
        {"a1.ipynb": b"E", "b.bin": b"b"},
    ),
    "bytes": (with_a_name_that_is_no_utf_8, {"a1.ipynb": b"F", "caf\ufffd.txt": b"x"}),
}


def test_hand_ins_are_taken_in_every_form(room, incoming):
    for name, (content, _) in TAKEN.items():
        place(incoming / name, content)
    assert sentences(room) == []
    for name, (_, files) in TAKEN.items():
        assert collected(room, name.partition(".")[0]) == files, name


def huge(path):
    with open(path, "wb") as file:
        file.truncate(500 * 2**20)


def many_bombs(path):
    """Thousands of names for the same bytes, which unpack to more than is allowed and say that they
    do not.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a1.ipynb", "fine")
        archive.writestr("0", bytes(MOST_FILES_BYTES + 1))
        entry = archive.infolist()[-1]
        for index in range(1, 5000):
            copied = zipfile.ZipInfo(str(index))
            for name in ("header_offset", "file_size", "compress_size", "CRC", "compress_type"):
                setattr(copied, name, getattr(entry, name))
            copied.file_size = 1
            archive.filelist.append(copied)


def link_in_zip(path):
    link = zipfile.ZipInfo("..\\..\\a1.ipynb")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.bin", "B")
        archive.writestr(link, "/etc/passwd")


FINE, HALF = {"a1.ipynb": b"fine"}, bytes(MOST_FILES_BYTES // 2 + 1)
# What an entry holds, what is said of it, and what is collected (None: not even a folder; a number:
# so many files).
HOSTILE = {
    "bomb.zip": (
        zipped(**{"a1.ipynb": "fine", "zeros": bytes(MOST_FILES_BYTES + 1)}),
        "zeros is too large",
        FINE,
    ),
    "bombs.zip": (many_bombs, "it holds 5,001 files, more than 20", FINE),
    "many.zip": (
        zipped(**{f"f{i}": "x" for i in range(6000)} | {"z/a1.ipynb": "fine"}),
        (
            "it holds 6,001 files, more than 20: f1014 and others were left out; "
            "hand in again with only"
        ),
        20,
    ),
    "torn.zip": (b"PK\x03\x04 no zip", "cannot be unpacked", {}),
    "names.zip": (
        zipped(**{"a1.ipynb": "fine", "n" * 300: "x", "\x1b[31mred.bin": "y"}),
        "too long",
        2,
    ),
    "up.zip": (
        zipped(**{"a1.ipynb": "fine", "x/..": "1", "\\": "2"}),
        "x/.. is not a usable file name",
        FINE,
    ),
    "linked": (folder(**{"a1.ipynb": ["/etc/passwd"]}), "links are not followed", {}),
    "loop": (folder(**{"a1.ipynb": "fine", "round": [".."]}), "", FINE),
    "link": (lambda path: path.symlink_to("/etc"), "no links", None),
    "inner.zip": (link_in_zip, "", {"a1.ipynb": b"/etc/passwd", "model.bin": b"B"}),
    "huge.ipynb": (huge, "524,288,000 bytes", {}),
    "pdf": (folder(**{"report.pdf": "x"}), "there is no notebook in it: a1.ipynb is missing", {}),
    "drafts.zip": (
        zipped(
            **{"draft.ipynb": "1", "a1.ipynb": "fine", "x/model.bin": "far", "model.bin": "near"}
        ),
        "a1.ipynb is graded, and draft.ipynb is not",
        FINE | {"draft.ipynb": b"1", "x/model.bin": b"far", "model.bin": b"near"},
    ),
    "two.zip": (
        zipped(**{"x/a1.ipynb": "1", "y/a1.ipynb": "2"}),
        "(x/a1.ipynb, y/a1.ipynb): hand in only",
        {},
    ),
    "other.zip": (
        zipped(**{"draft.ipynb": "1", "final.ipynb": "2"}),
        "(draft.ipynb, final.ipynb): hand in",
        {},
    ),
    "copies": (
        folder(**{"a1.ipynb": "1", "a1 (1).ipynb": "2"}),
        "(a1 (1).ipynb, a1.ipynb): hand in only",
        {},
    ),
    "abyss": (
        lambda path: subprocess.run(["mkdir", "-p", f"{path}{'/d' * 1500}"], check=True),
        "read",
        None,
    ),
    "heavy": (folder(**FINE, a=HALF, b=HALF), "b has 16,777,217 bytes", FINE | {"a": HALF}),
    "__MACOSX": (folder(**{"._a1.ipynb": "x"}), "", None),
    "README.txt": (b"x", "only folders, notebooks and zip files", None),
    ".DS_Store": (b"x", "", None),
    '=HYPERLINK("x").ipynb': (b"fine", "", None),  # under a name that is made of it
}


def test_hostile_and_odd_entries_are_told_of_and_do_no_harm(room, incoming):
    for name, (content, _, _) in HOSTILE.items():
        place(incoming / name, content)
    start = time.monotonic()
    said = sentences(room)
    subprocess.run(["rm", "-r", incoming / "abyss"], check=True)  # pytest cannot
    assert time.monotonic() - start < 60
    for name, (_, words, files) in HOSTILE.items():
        of_it = "; ".join(sentence for sentence in said if sentence.startswith(f"{name} was "))
        assert words in of_it and bool(words) == bool(of_it), (name, of_it)
        student = name.partition(".")[0]
        if files is None:
            assert student not in room.students("a1")
        else:
            found = collected(room, student)
            assert (len(found) if isinstance(files, int) else found) == files, name
    assert collected(room, name_of('=HYPERLINK("x")')) == FINE
    links = [path for path in (room.folder / "submitted").rglob("*") if path.is_symlink()]
    assert "\x1b" not in " ".join(said) and links == []
    table = csv.reader((room.folder / "collected" / "a1.csv").read_text().splitlines())
    assert not [cell for row in table for cell in row if cell.startswith("=")]


@pytest.mark.parametrize(("rule", "kept"), [("last", b"new"), ("first", b"old")])
@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_the_resubmission_rule_and_not_the_order_or_the_alphabet_decides(
    room, incoming, rule, kept, order
):
    room.settings.write_text(f'resubmission = "{rule}"')
    times = {"old": 1_000_000, "new": 2_000_000}
    for text in order:
        place(incoming / "ada.ipynb", text.encode(), times[text])
        collect(room, "a1")
    assert collected(room, "ada") == {"a1.ipynb": kept}
    if order[-1] != kept.decode():  # none is passed over in silence
        (sentence,) = sentences(room)
        assert "counts, for it" in sentence and "delete submitted/ada/a1 and" in sentence
    (incoming / "ada.ipynb").unlink()
    for text, name, form in zip(
        order, ("ben.zip", "ben"), (zipped, folder), strict=True
    ):  # both at once
        place(incoming / name, form(**{"a1.ipynb": text}), times[text])
    (sentence,) = sentences(room)
    assert "is by the same student and counts" in sentence and collected(room, "ben") == {
        "a1.ipynb": kept
    }


def test_the_same_work_in_a_second_download_is_no_news(room, incoming):
    place(incoming / "ada.ipynb", b"A", 1_000_000)
    collect(room, "a1")
    place(incoming / "ada", folder(**{"a1.ipynb": "A"}), 2_000_000)
    assert sentences(room) == []
    assert [one.became for one in collect(room, "a1")] == ["unchanged", "unchanged"]


def test_of_the_same_work_twice_in_one_download_the_first_date_counts(room, incoming):
    place(incoming / "ada.ipynb", b"A", 1_000_000)
    place(incoming / "ada", folder(**{"a1.ipynb": "A"}), 2_000_000)
    assert sentences(room) == [] and collected(room, "ada") == {"a1.ipynb": b"A"}
    assert arrival(room, "a1", "ada").timestamp() == 1_000_000


def test_two_damaged_hand_ins_of_one_student_are_both_named(room, incoming):
    place(incoming / "ada.zip", b"no zip", 1_000_000)
    place(incoming / "ada", folder(**{"notes.txt": "A"}), 2_000_000)
    said = " ".join(sentences(room))
    assert "damaged" in said and "there is no notebook in it" in said


def test_a_zip_file_beside_the_notebook_is_named(room, incoming):
    place(incoming / "ada", folder(**{"a1.ipynb": "A", "all.zip": zipped()}))
    (sentence,) = sentences(room)
    assert "all.zip was not unpacked, because" in sentence


@pytest.mark.parametrize("names", [("a1.ipynb", "z", "z/y"), ("a1.ipynb", "z/y", "z")])
def test_a_name_that_is_a_file_and_a_folder_stops_nobody_else(room, incoming, names):
    place(incoming / "ada.zip", zipped(**dict.fromkeys(names, "A")))
    place(incoming / "ben.ipynb", b"B")
    assert "occurs twice" in " ".join(sentences(room))
    assert collected(room, "ada") and collected(room, "ben")


def test_gradescopes_export_as_a_whole_is_no_hand_in(room, incoming):
    inner = {"submission_1/a1.ipynb": "A", "submission_metadata.yml": "list"}
    place(incoming / "assignment_9_export", folder(**inner))
    (sentence,) = sentences(room)
    assert f"move the folders in it to {incoming}" in sentence
    assert not (room.folder / "submitted" / "assignment_9_export").exists()
    shutil.rmtree(incoming / "assignment_9_export" / "submission_1")  # moved, and the list is left
    place(incoming / "submission_metadata.yml", b"list")
    assert sentences(room) == [] == room.students("a1")


def test_a_folder_with_the_name_of_the_class_list_is_its_students(room, incoming):
    (room.folder / roster.FILE).write_text("name,student\nÄnne Öhl,aenne\nBo Li,bo\nBo Li,bo_2\n")
    place(incoming / "Änne Öhl", folder(**{"a1.ipynb": "A"}))
    place(incoming / "Bo Li", folder(**{"a1.ipynb": "B"}))
    (sentence,) = sentences(room)  # which of the two, only the teacher knows
    assert "is not on the class list" in sentence and "Bo_Li" in sentence
    assert collected(room, "aenne")


def test_a_student_keeps_the_name_that_the_first_hand_in_or_the_class_list_gave(room, incoming):
    listed = room.folder / roster.FILE
    listed.write_text("student,name,id\n,Lena Novak,112\nben,Ben Carter,113\n,Fatima Khan,\n")
    place(incoming / "Lena Novak", folder(**{"a1.ipynb": "A"}))
    assert sentences(room) == []
    (lena,) = room.students("a1")
    for name in ("novaklena_LATE_112_5099_a1.ipynb", "carterben_113_5100_a1.ipynb"):
        place(incoming / name, b"B", 2_000_000_000)
    place(incoming / "khanfatima_114_5101_a1.ipynb", b"C")
    (remark,) = [one for one in sentences(room) if "Lena Novak was" not in one]
    assert "khanfatima_114 is not on the class list: its line needs 114 in the column id" in remark
    assert {*roster.read(room)} - {*room.students("a1")} == {name_of("Fatima Khan")}
    assert collected(room, lena) == collected(room, "ben") == {"a1.ipynb": b"B"}
    listed.write_text(f"student,name,id\n{lena},Lena Novak,112\n")  # as Set up says
    assert lena in roster.read(room)


def test_neither_a_killed_collect_nor_looking_into_a_hand_in_makes_anybody_late(
    room, incoming, monkeypatch
):
    place(incoming / "ada.ipynb", b"A", 1_000_000)
    place(incoming / "ben", folder(**{"a1.ipynb": "A"}), 1_000_000)
    place(incoming / "ben" / ".ipynb_checkpoints", folder(**{"a1-checkpoint.ipynb": "A"}))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(
            room.__class__, "log", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        collect(room, "a1")
    (room.folder / "submitted" / "ada" / ".a1.arrived").unlink()
    collect(room, "a1")
    for student in ("ada", "ben"):
        assert arrival(room, "a1", student).timestamp() == 1_000_000 and collected(room, student)


def damaged():
    """Zip files as they come: torn, encrypted, packed in odd ways, one byte changed anywhere."""
    whole, rng = zipped(), random.Random(0)
    yield whole[:60] + bytes(60) + whole[120:]
    yield whole[: len(whole) // 2]
    yield b""
    yield zipped(zipfile.ZIP_LZMA)[:40] + bytes(60) + zipped(zipfile.ZIP_LZMA)[100:]
    encrypted = bytearray(whole)
    encrypted[6] |= 1
    encrypted[whole.index(b"PK\x01\x02") + 8] |= 1
    yield bytes(encrypted)
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_STORED):
        for _ in range(20):
            data = bytearray(zipped(method))
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            yield bytes(data)


def test_no_damage_stops_the_others_and_all_of_it_is_told(room, incoming):
    for index, data in enumerate(damaged()):
        (incoming / f"d{index:03}.zip").write_bytes(data)
    for index in range(30):
        (incoming / f"s{index:03}.ipynb").write_text("fine")
    found = {one.paths[0].stem: one for one in collect(room, "a1")}
    assert all(found[f"s{index:03}"].became == "collected" for index in range(30))
    for index in range(5):
        assert (
            found[f"d{index:03}"].became == "unreadable"
            and "hand it in again" in found[f"d{index:03}"].remark
        )
        told = intake.read(
            room.submission(f"d{index:03}", "a1"), "a1.ipynb", nbformat.v4.new_notebook()
        ).notes
        assert told == [f"Nothing could be graded: {found[f'd{index:03}'].remark}."]
    assert all(one.became == "collected" or one.remark for one in found.values())
    place(
        incoming / "d000.zip", zipped(), 1_000_000
    )  # an old date does not matter where nothing could be read
    again = {one.paths[0].stem: one.became for one in collect(room, "a1")}
    assert again["d000"] == "collected" and all(
        again[f"s{index:03}"] == "unchanged" for index in range(30)
    )
    place(
        incoming / "s000.zip", b"torn", time.time() + 9
    )  # what cannot be read does not replace what can
    assert any(
        "s000.zip" in told and "hand-in before it still counts" in told for told in sentences(room)
    )
    assert collected(room, "s000") == {"a1.ipynb": b"fine"}


MARKED = (
    b'{"nbformat": 4, "cells": [{"cell_type": "code", "metadata": {"nbgrader": {"grade_id":'
    b' "%s_solution"}}}]}'
)
GOOD, BARE = MARKED % b"fold_conv", b'{"nbformat": 4, "cells": []}'
WORTH = {GOOD[:-9]: "not valid JSON", MARKED % b"quantize": "the notebook of a4", BARE: ""}


@pytest.mark.parametrize("data", WORTH)
def test_a_torn_or_foreign_notebook_counts_only_where_there_is_no_other(room, incoming, data):
    place(incoming / "ben.ipynb", data, 86400 * 2)
    place(incoming / "ben.zip", zipped(**{"a1.ipynb": GOOD}), 86400)  # both at once
    for day, ada, cy in ((1, GOOD, data), (2, data, GOOD)):
        place(incoming / "ada.ipynb", ada, 86400 * day)
        place(incoming / "cy.ipynb", cy, -86400 * day)
        said = " ".join(sentences(room))
    assert WORTH[data] in said and ("hand-in before it still counts" in said) == bool(WORTH[data])
    assert [collected(room, s)["a1.ipynb"] for s in ("ada", "ben", "cy")] == [
        GOOD if WORTH[data] else data
    ] * 3


def test_any_name_is_mapped_and_the_table_says_to_what(room, incoming):
    names = ["Jürgen O'Neil", "a+b", "b d", "林平", "高静", "x" * 120, "tab\tname", "ada"]
    for name in names:
        (incoming / f"{name}.ipynb").write_text(name)
    assert sentences(room) == [] and len(room.students("a1")) == len(names)
    table = list(
        csv.DictReader((room.folder / "collected" / "a1.csv").read_text("utf-8").splitlines())
    )
    assert {"\ufeffentry", "arrived (UTC)"} < table[0].keys()  # Excel needs the mark in front
    assert all(room.submission(row["student"], "a1").is_dir() for row in table)
    assert name_of("Ju\u0308rgen") == name_of("Jürgen") != name_of("Jurgen") == "Jurgen"
    assert {one.became for one in collect(room, "a1")} == {"unchanged"}


def test_moodle_calls_a_student_the_same_in_every_assignment_and_namesakes_stay_two(room):
    entry, anna = "{}_{}_assignsubmission_file_", "Anna Maria Müller"
    for number, a in ((11, "a1"), (12, "a1"), (13, "a1"), (24, "a2"), (22, "a2")):
        name = entry.format("Ada L" if number == 11 else anna, number)
        place(room.folder / "incoming" / a / name, folder(**{f"{a}.ipynb": str(number)}))
    assert ["several are called Anna Maria Müller" in sentence for sentence in sentences(room)] == [
        True,
        True,
    ]
    assert name_of("Ada L") in room.students("a1") and len(room.students("a1")) == 3
    (room.folder / roster.FILE).write_text(
        f"name;student;moodle\nAda L;;\n{anna};anna;12 22\n{anna};mia;13 24\n"
    )
    assert sentences(room) == [] and {one.student for one in collect(room, "a2")} == {"anna", "mia"}
    paths = [
        room.submission(student, a) / f"{a}.ipynb"
        for student in ("anna", "mia")
        for a in ("a1", "a2")
    ]
    assert [path.read_text() for path in paths] == ["12", "22", "13", "24"]
    place(
        room.folder / "incoming" / "a1" / f"{entry.format('Bob', 14)}a1.ipynb", b"B"
    )  # Moodle without folders
    assert ["Bob is not on the class list" in sentence for sentence in sentences(room)] == [True]


@pytest.mark.parametrize(("word", "count"), [("Participant", 2), ("Teilnehmerin", 4)])
def test_hidden_names_are_told_from_namesakes(word, count, room, incoming):
    for number in range(21, 21 + count):
        entry = incoming / f"{word}_{number}_assignsubmission_file_"
        place(entry, folder(**{"a1.ipynb": str(number)}))
    told = [sentence for sentence in sentences(room) if "reveal the identities" in sentence]
    assert len(told) == len(room.students("a1")) == count


def test_pages_go_back_in_the_folders_that_moodle_made_and_nothing_else_does(room, incoming, a1):
    entry = "{}_{}_assignsubmission_file_"
    former = room.folder / "feedback" / "a1_moodle.zip"
    write(former, b"of an earlier download")
    assert collect(room, "a1") == [] and feedback.write_for_moodle(room, a1) is None
    assert not former.exists()
    persian = "\u0639\u0644\u06cc\u200c\u0631\u0636\u0627"
    for number, name in enumerate(("Ada L", "Zoë " + "Z" * 90, "Not Graded", persian), 11):
        place(incoming / entry.format(name, number), folder(**{"a1.ipynb": name}))
    place(incoming / "eve.ipynb", b"E")
    place(incoming / f"{entry.format('Flat', 15)}a1.ipynb", b"F")
    online = "Kim_16_assignsubmission_onlinetext_"  # its page says why nothing was graded
    place(incoming / online, folder(**{"onlinetext.html": "K"}))
    for hand_in in collect(room, "a1"):
        if not hand_in.entry.startswith("Not"):
            write(room.folder / "feedback" / "a1" / f"{hand_in.student}.html", hand_in.entry)
    with zipfile.ZipFile(feedback.write_for_moodle(room, a1)) as archive:
        pages = {name: archive.read(name).decode() for name in archive.namelist()}
    folders = [entry.format("Ada L", 11), entry.format("Zoë " + "Z" * 90, 12), online]
    folders.append(entry.format(persian, 14))
    assert pages == {f"{one}/a1.html": one for one in folders}


@pytest.mark.parametrize("count", [1, 2])
def test_moodles_download_that_was_not_unpacked_is_no_student(room, incoming, count):
    names = [f"Ada L_{number}_assignsubmission_file_/a1.ipynb" for number in range(count)]
    place(incoming / "Course-a1-4711.zip", zipped(**dict.fromkeys(names, "A")))
    (sentence,) = sentences(room)
    assert "hand-ins of several students: move these, unpacked, to where it lies" in sentence
    assert room.students("a1") == []


def test_a_full_name_finds_its_student_also_without_what_moodle_leaves_out(room, incoming):
    names = {"Ada L": "ada", "David O'Neill": "david", "Bob": ""}
    (room.folder / roster.FILE).write_text(
        "name,student\n" + "".join(f"{name},{student}\n" for name, student in names.items())
    )
    for number, name in enumerate(("Ada L", "David ONeill", "Bob")):
        place(incoming / f"{name}_{number}_assignsubmission_file_", folder(**{"a1.ipynb": "1"}))
    assert sentences(room) == []
    assert {one.student for one in collect(room, "a1")} == {"ada", "david", "Bob"}


def test_files_that_canvas_delivers_one_by_one_are_one_hand_in_and_late_only_if_marked(
    room, incoming
):
    room.settings.write_text("[due]\na1 = 2019-01-01T00:00:00Z")
    files = (
        "mary_12_61_a1.ipynb mary_12_71_a1-1.ipynb mary_12_72_net-1.bin love_LATE_13_73_a1.ipynb"
        " bob_14_74_all.zip"
    )
    for day, name in enumerate(files.split()):
        place(
            incoming / name,
            zipped() if name.endswith("zip") else name.encode(),
            1_600_000_000 + 86400 * day,
        )
    (room.folder / roster.FILE).write_text(
        "id,name,student\n12,Mary,\n13,Ada,ada\n14,Bob,\n1,Zoe,\n"
    )
    assert sentences(room) == []
    assert {one.became for one in collect(room, "a1")} == {"unchanged"}  # the same download again
    assert collected(room, "mary_12") == {
        "a1.ipynb": b"mary_12_71_a1-1.ipynb",
        "net.bin": b"mary_12_72_net-1.bin",
    }
    room.submission("team_1", "a2").mkdir(parents=True)  # no name of Canvas's: Zoe is another one
    late = {student: arrival(room, "a1", student).year > 2019 for student in room.students("a1")}
    assert late == {"mary_12": False, "ada": True, "bob_14": False} and {*late, "Zoe"} == {
        *roster.read(room)
    }
    before = (room.folder / roster.FILE).read_text()
    listed = "student,late_days_a1\nmary_12,\nada,{}\nbob_14,\n"
    for days, known in (("", ["ada"]), ("2", [])):
        (room.folder / roster.FILE).write_text(listed.format(days))
        assert [line.partition(":")[0] for line in late_or_not(room, "a1")] == known
    (room.folder / roster.FILE).write_text(before)
    place(incoming / "mary_12_81_a1-2.ipynb", b"newer")
    assert sentences(room) == [] and collected(room, "mary_12")["a1.ipynb"] == b"newer"
    for number in (1, 2):  # her own names, in one download
        place(incoming / f"mary_12_9{number}_part-{number}.py", b"x", 1_700_000_000)
    (remark,) = sentences(room)
    assert "mary_12_92_part-2.py counts, and mary_12_91_part-1.py does not." in remark
    for name in ("eva_15_95_a1.ipynb", "eva_15_96_a1-1.ipynb", "eva_15_97_a1-10.ipynb"):
        place(incoming / name, name.encode(), 1_700_000_000)  # of one date, in Canvas's order
    assert not any("a1-10.ipynb counts" in one for one in sentences(room))
    assert collected(room, "eva_15") == {"a1.ipynb": b"eva_15_97_a1-10.ipynb"}


def test_what_canvas_calls_in_time_is_so_whatever_the_class_list_says_of_a_late_one(room, incoming):
    room.settings.write_text("late_days = 5\n[due]\na1 = 2020-01-01T00:00:00Z")
    later = GOOD + b"\n"
    listed = "student,id,late_days_a1\nada,13,{}\n"
    place(incoming / "ada_13_60_a1.ipynb", GOOD)
    (room.folder / roster.FILE).write_text(listed.format(""))
    assert sentences(room) == []
    (incoming / "ada_13_60_a1.ipynb").unlink()
    place(incoming / "ada_LATE_13_73_a1-1.ipynb", later)
    (remark,) = sentences(room)
    assert "Canvas says late: write the days into late_days_a1, then collect again" in remark
    (room.folder / roster.FILE).write_text(listed.format("8"))
    (remark,) = sentences(room)
    assert "so late that it earns nothing" in remark
    assert collected(room, "ada") == {"a1.ipynb": GOOD}
    person = roster.read(room)["ada"]
    assert arrivals.lateness(room, "a1", "ada", person) == (0, None)
    (room.folder / roster.FILE).write_text(listed.format("3"))
    assert sentences(room) == [] and collected(room, "ada") == {"a1.ipynb": later}
    assert arrivals.lateness(room, "a1", "ada", person) == (0, 8)


def test_a_late_file_beside_those_of_an_earlier_download_is_late(room, incoming):
    room.settings.write_text("[due]\na1 = 2019-01-01T00:00:00Z")
    for name in ("mary_12_61_a1.ipynb", "mary_12_62_net.bin", "mary_LATE_12_71_a1-1.ipynb"):
        place(incoming / name, name.encode(), 1_600_000_000 + 100 * len(name))
    collect(room, "a1")
    assert collected(room, "mary_12")["a1.ipynb"] == b"mary_LATE_12_71_a1-1.ipynb"
    assert arrivals.came_late(room, "a1", "mary_12")


def test_who_hands_in_otherwise_is_not_called_late_by_canvas(room, incoming):
    room.settings.write_text("[due]\na1 = 2020-01-01T00:00:00Z")
    write(room.folder / "submitted" / "ada" / f"{roster.NUMBER}13", "")
    place(incoming / "ada", folder(**{"a1.ipynb": "A"}), 1_500_000_000)
    assert sentences(room) == [] and late_or_not(room, "a1") == []


def test_what_became_of_hand_ins_is_read_as_a_spreadsheet_writes_it(room, incoming):
    place(incoming / "eve.txt", b"E")
    collect(room, "a1")
    path = room.folder / "collected" / "a1.csv"
    path.write_text(path.read_text().replace(",", ";").replace("folders; note", "folders, note"))
    assert remarks(room, "a1")[0].startswith("eve.txt was left out: only folders")
    path.write_bytes("entrée,student\n".encode("cp1252"))
    with pytest.raises(ClassroomError, match=r"a1\.csv cannot be read: delete it, then"):
        remarks(room, "a1")


def test_dates_and_deadlines_may_be_corrected_after_collecting(room, incoming):
    place(incoming / "bob_14_74_a1.ipynb", b"B", 1_600_000_000)
    place(incoming / "ada.ipynb", b"A", 1_600_000_000)
    collect(room, "a1")
    room.settings.write_text("[due]\na1 = 2019-01-01T00:00:00+05:00")
    assert (
        arrival(room, "a1", "bob_14").isoformat() == "2018-12-31T19:00:00+00:00"
    )  # Canvas: not marked late
    assert arrival(room, "a1", "ada").timestamp() == 1_600_000_000
    (room.submission("ada", "a1") / ".ipynb_checkpoints").mkdir()  # somebody looked into it
    for date in (
        1_500_000_000,
        1_700_000_000,
    ):  # the same file, unpacked with its date, and downloaded once more
        place(incoming / "ada.ipynb", b"A", date)
        assert {one.became for one in collect(room, "a1")} == {"unchanged"}
        assert arrival(room, "a1", "ada").timestamp() == 1_500_000_000
    room.settings.write_text("")
    assert arrival(room, "a1", "bob_14").isoformat() == "2020-09-13T12:26:40+00:00"


def test_a_collect_that_was_killed_takes_no_date_of_what_was_there_before(
    room, incoming, monkeypatch
):
    place(incoming / "ada.ipynb", b"old", 1_000_000)
    collect(room, "a1")
    place(incoming / "ada.ipynb", b"new", 2_000_000)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(arrivals, "note", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        collect(room, "a1")
    collect(room, "a1")
    assert (
        collected(room, "ada") == {"a1.ipynb": b"new"}
        and arrival(room, "a1", "ada").timestamp() == 2_000_000
    )


def test_the_fingerprint_sees_every_change(tmp_path):
    b, c = tmp_path / "b", tmp_path / "c"
    seen = [fingerprint(tmp_path)]
    for change in (
        lambda: b.write_text("1"),
        lambda: b.write_text("2"),
        lambda: b.rename(c),
        c.unlink,
        lambda: c.symlink_to("/etc/passwd"),
        lambda: place(tmp_path / "deep", folder(er="x")),
    ):
        change()
        seen.append(fingerprint(tmp_path))
    assert seen[4] == seen[0] and len(set(seen)) == 6


def test_looking_into_a_hand_in_or_restoring_it_changes_nothing(tmp_path):
    place(tmp_path / "a1", folder(**{"a1.ipynb": "A", "net/b.bin": "b"}))
    before = fingerprint(tmp_path / "a1")
    (tmp_path / "a1" / "a1.ipynb").chmod(0o600)
    place(tmp_path / "a1" / ".ipynb_checkpoints", folder(**{"a1-checkpoint.ipynb": "A"}))
    place(tmp_path / "a1" / ".DS_Store", b"x")
    assert fingerprint(tmp_path / "a1") == before
    reasons = set()
    for reason in (b"torn", b"empty"):  # which the student's page says
        place(tmp_path / "a1" / UNREADABLE, reason)
        reasons.add(fingerprint(tmp_path / "a1"))
    assert len({before, *reasons}) == 3


def test_of_many_notebooks_few_are_named(room, incoming):
    others = {f"x{number}.ipynb": "x" for number in range(2000)}
    place(incoming / "ada.zip", zipped(**others | {"a1.ipynb": "A"}))
    (sentence,) = sentences(room)
    assert "it holds 2,001 files" in sentence and 15 < sentence.count("is graded, and") <= 20


def test_of_a_hand_in_whose_notebook_cannot_be_read_no_other_one_is_taken(room, incoming):
    large = b'{"nbformat": 4' + b" " * MOST_FILES_BYTES + b"}"
    place(incoming / "ada", folder(**{"a1.ipynb": large, "tools.ipynb": BARE, "x.bin": "x"}))
    (sentence,) = sentences(room)
    assert "clear the outputs of a notebook" in sentence and "is graded" not in sentence
    assert collected(room, "ada") == {}


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("CS101-a1-9999", "{}_{}_assignsubmission_file_/a1.ipynb"),
        ("submissions", "{}_{}_5000_a1.ipynb"),
    ],
)
def test_a_download_that_was_unpacked_into_a_folder_is_no_student(room, incoming, name, inner):
    files = {inner.format(student, number): "A" for number, student in enumerate(("ada", "ben"))}
    place(incoming / name, folder(**files))
    (sentence,) = sentences(room)
    assert f"{name} was left out: it holds the hand-ins of several students" in sentence
    assert room.students("a1") == []


def test_what_is_named_like_the_assignment_is_no_student(room, incoming):
    place(incoming / "a1.ipynb", GOOD)
    place(incoming / "Thumbs.db", b"x")
    assert sentences(room) == [
        "a1.ipynb was left out: it is named like the assignment: give it the name of its student"
    ]


@pytest.mark.parametrize("together", [True, False])
def test_a_hand_in_that_is_too_late_to_earn_anything_replaces_none_in_time(
    room, incoming, together
):
    room.settings.write_text("late_days = 5\n[due]\na1 = 2020-01-01T00:00:00Z")
    due = 1_577_836_800
    for day, name in ((-1, "ada.ipynb"), (3, "ada.zip"), (9, "ada")):
        data = {"a1.ipynb": f"{day}".encode() * 9}
        place(
            incoming / name,
            {"ada.ipynb": data["a1.ipynb"], "ada.zip": zipped(**data)}.get(name, folder(**data)),
            due + 86400 * day,
        )
        if not together:
            said = sentences(room)
            (incoming / name).unlink() if name != "ada" else None
    if together:
        said = sentences(room)
        assert "ada.zip is by the same student and counts" in " ".join(said)
    else:
        assert "for this one is so late that it earns nothing; if this" in said[0]
    assert collected(room, "ada") == {"a1.ipynb": b"333333333"}
    (room.folder / roster.FILE).write_text("student,late_days_a1\nada,1\n")  # the dates are wrong
    collect(room, "a1")
    assert collected(room, "ada") == {"a1.ipynb": b"999999999"}


def test_what_a_system_calls_somebody_s_stays_so_whatever_lies_in_it(room, incoming):
    forged = incoming / "Eve Moore_7_assignsubmission_file_"
    write(forged / "a1.zip", zipped(**{"Ada Hill_8_assignsubmission_file_/a1.ipynb": "good"}))
    (sentence,) = sentences(room)
    assert "was left out" not in sentence
    assert [path.name for path in (room.folder / "submitted").iterdir()] == [name_of("Eve Moore")]


def test_the_class_list_is_read_once_for_all_hand_ins(room, incoming, monkeypatch):
    for name in ("ada", "bob", "eve"):
        write(incoming / name / "a1.ipynb", GOOD)
    calls = []
    listed = roster.read
    monkeypatch.setattr(roster, "read", lambda room: calls.append(room) or listed(room))
    collect(room, "a1")
    assert len(calls) == 1
