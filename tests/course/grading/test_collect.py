"""Whatever lies in incoming/: the rest is collected, each entry is told of, and nothing that is good is lost."""

import csv
import io
import os
import random
import subprocess
import time
import zipfile

import pytest

from course.grading.classroom import Classroom
from course.grading.collect import (
    MOST_FILES_BYTES,
    IntakeError,
    arrival,
    collect,
    fingerprint,
    name_of,
    read_regular,
    remarks,
)


@pytest.fixture
def room(tmp_path):
    room = Classroom.open(tmp_path / "class")
    (room.folder / "incoming" / "a1").mkdir()
    return room


@pytest.fixture
def incoming(room):
    return room.folder / "incoming" / "a1"


def collected(room, student):
    return {path.name: path.read_bytes() for path in room.submission(student, "a1").iterdir()}


def became(room):
    return {one.path.stem: one.became for one in collect(room, "a1")}


def sentences(room):
    collect(room, "a1")
    return remarks(room, "a1")


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
            (path / name).symlink_to(content[0]) if isinstance(content, list) else (path / name).write_text(content)

    return write


def place(path, content):
    if callable(content):
        content(path)
    else:
        path.write_bytes(content)


# What an entry holds, and what is collected of it.
TAKEN = {
    "folder": (folder(**{"a1.ipynb": "A"}), {"a1.ipynb": b"A"}),
    "notebook.ipynb": (b"B", {"a1.ipynb": b"B"}),
    "upper.IPYNB": (b"D", {"a1.ipynb": b"D"}),
    "paths.zip": (zipped(**{"deep/../../a1/a1.ipynb": "C", "model.safetensors": "M"}),
                  {"a1.ipynb": b"C", "model.safetensors": b"M"}),
    "rubbish.ZIP": (zipped(**{"A1.IPYNB": "C", "__MACOSX/._a1.ipynb": "x", "Thumbs.db": "x",
                              ".ipynb_checkpoints/a1-checkpoint.ipynb": "old"}), {"a1.ipynb": b"C"}),
    "deep": (folder(**{"er/still/my a1.ipynb": "E", "er/b.bin": "b"}), {"a1.ipynb": b"E", "b.bin": b"b"}),
}  # fmt: skip


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
    """Thousands of names for the same bytes, which unpack to more than is allowed and say that they do not."""
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


FINE = {"a1.ipynb": b"fine"}
# What an entry holds, what is said of it, and what is collected (None: not even a folder; a number: so many files).
HOSTILE = {
    "bomb.zip": (zipped(**{"a1.ipynb": "fine", "zeros": bytes(MOST_FILES_BYTES + 1)}), "zeros is too large", FINE),
    "bombs.zip": (many_bombs, "more than 20 files", FINE),
    "many.zip": (zipped(**{"z/a1.ipynb": "fine"} | {f"f{i}": "x" for i in range(1000)}), "more than 20 files", 20),
    "torn.zip": (b"PK\x03\x04 no zip", "cannot be unpacked", {}),
    "names.zip": (zipped(**{"a1.ipynb": "fine", "n" * 300: "x", "\x1b[31mred.bin": "y"}), "too long", 2),
    "linked": (folder(**{"a1.ipynb": ["/etc/passwd"]}), "links are not followed", {}),
    "loop": (folder(**{"a1.ipynb": "fine", "round": [".."]}), "", FINE),
    "link": (lambda path: path.symlink_to("/etc"), "no links", None),
    "inner.zip": (link_in_zip, "", {"a1.ipynb": b"/etc/passwd", "model.bin": b"B"}),
    "huge.ipynb": (huge, "524,288,000 bytes", {}),
    "pdf": (folder(**{"report.pdf": "x"}), "there is no notebook in it: a1.ipynb is missing", {}),
    "drafts.zip": (
        zipped(**{"draft.ipynb": "1", "a1.ipynb": "fine", "x/model.bin": "far", "model.bin": "near"}),
        "the name of x/model.bin is too long or there twice",
        FINE | {"model.bin": b"near"},
    ),
    "two.zip": (zipped(**{"x/a1.ipynb": "1", "y/a1.ipynb": "2"}), "x/a1.ipynb, y/a1.ipynb? Delete the others", {}),
    "other.zip": (zipped(**{"draft.ipynb": "1", "final.ipynb": "2"}), "draft.ipynb, final.ipynb? Delete", {}),
    "abyss": (lambda path: subprocess.run(["mkdir", "-p", f"{path}{'/d' * 1500}"], check=True), "cannot be read", None),
    "README.txt": (b"x", "only folders, notebooks and zip files", None),
    ".DS_Store": (b"x", "", None),
    '=HYPERLINK("x").ipynb': (b"fine", "", None),  # under a name that is made of it
}


def test_hostile_and_odd_entries_are_told_of_and_do_no_harm(room, incoming):
    for name, (content, _, _) in HOSTILE.items():
        place(incoming / name, content)
    start = time.monotonic()
    said = sentences(room)
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
    subprocess.run(["rm", "-r", incoming / "abyss"], check=True)
    assert "\x1b" not in " ".join(said) and not any(
        path.is_symlink() for path in (room.folder / "submitted").rglob("*")
    )
    table = csv.reader((room.folder / "collected" / "a1.csv").read_text().splitlines())
    assert not [cell for row in table for cell in row if cell.startswith("=")]


@pytest.mark.parametrize(("rule", "kept"), [("last", b"new"), ("first", b"old")])
@pytest.mark.parametrize("order", [("old", "new"), ("new", "old")])
def test_the_resubmission_rule_and_not_the_order_or_the_alphabet_decides(room, incoming, rule, kept, order):
    room.settings.write_text(f'resubmission = "{rule}"')
    times = {"old": 1_000_000, "new": 2_000_000}
    for text in order if rule == "last" else ("old", "new"):
        (incoming / "ada.ipynb").write_text(text)
        os.utime(incoming / "ada.ipynb", (times[text],) * 2)
        collect(room, "a1")
    assert collected(room, "ada") == {"a1.ipynb": kept}
    for text, form in zip(order, ("zip", "folder"), strict=True):  # both at once
        place(incoming / f"ben{'.zip' if form == 'zip' else ''}",
              zipped(**{"a1.ipynb": text}) if form == "zip" else folder(**{"a1.ipynb": text}))  # fmt: skip
        for path in (incoming / "ben.zip",) if form == "zip" else (incoming / "ben" / "a1.ipynb", incoming / "ben"):
            os.utime(path, (times[text],) * 2)
    (sentence,) = sentences(room)
    assert "is by the same student and counts" in sentence and collected(room, "ben") == {"a1.ipynb": kept}


def test_a_collect_that_is_killed_makes_nobody_late(room, incoming, monkeypatch):
    (incoming / "ada.ipynb").write_text("A")
    os.utime(incoming / "ada.ipynb", (1_000_000, 1_000_000))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(room.__class__, "log", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        collect(room, "a1")
    (incoming.parent.parent / "submitted" / "ada" / ".a1.arrived").unlink()
    collect(room, "a1")
    assert arrival(room.submission("ada", "a1")).timestamp() == 1_000_000 and collected(room, "ada")


def test_looking_into_a_hand_in_makes_nobody_late(room, incoming):
    place(incoming / "ada", folder(**{"a1.ipynb": "A", ".ipynb_checkpoints/a1-checkpoint.ipynb": "A"}))
    os.utime(incoming / "ada" / "a1.ipynb", (1_000_000, 1_000_000))
    collect(room, "a1")
    assert arrival(room.submission("ada", "a1")).timestamp() == 1_000_000


def damaged():
    """Zip files as they come: torn, encrypted, packed in odd ways, with one byte changed anywhere."""
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
    found = {one.path.stem: one for one in collect(room, "a1")}
    assert all(found[f"s{index:03}"].became == "collected" for index in range(30))
    for index in range(5):
        assert found[f"d{index:03}"].became == "unreadable" and "ask for it again" in found[f"d{index:03}"].remark
    assert all(one.became == "collected" or one.remark for one in found.values())
    assert {what for student, what in became(room).items() if student.startswith("s")} == {"unchanged"}
    (incoming / "d000.zip").write_bytes(zipped())
    os.utime(incoming / "d000.zip", (1_000_000, 1_000_000))  # an old date does not matter where nothing could be read
    assert became(room)["d000"] == "collected"


def test_what_cannot_be_read_does_not_replace_what_can(room, incoming):
    (incoming / "ada.ipynb").write_text("good")
    os.utime(incoming / "ada.ipynb", (1_000_000, 1_000_000))
    collect(room, "a1")
    (incoming / "ada.ipynb").rename(incoming / "ada.zip")
    os.utime(incoming / "ada.zip", (2_000_000, 2_000_000))
    assert "the hand-in before it still counts" in sentences(room)[0]
    assert collected(room, "ada") == {"a1.ipynb": b"good"}


def test_any_name_is_mapped_and_the_table_says_to_what(room, incoming):
    names = ["Jürgen O'Neil", "a+b", "b d", "李雷", "x" * 120, "tab\tname", "ada"]
    for name in names:
        (incoming / f"{name}.ipynb").write_text(name)
    assert sentences(room) == [] and len(room.students("a1")) == len(names)
    table = list(csv.DictReader((room.folder / "collected" / "a1.csv").read_text().splitlines()))
    assert all(room.submission(row["student"], "a1").is_dir() for row in table)
    assert name_of("Ju\u0308rgen") == name_of("Jürgen") != name_of("Jurgen") == "Jurgen"
    assert set(became(room).values()) == {"unchanged"}


def test_an_ordinary_file_is_read_up_to_its_limit_and_nothing_else_is_waited_for(tmp_path):
    (tmp_path / "a").write_bytes(b"123")
    assert read_regular(tmp_path / "a", most=3) == b"123"
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    refused = {"a": "a has 3 bytes; 2 are allowed", "link": "links are not followed", "folder": "not an ordinary",
               "pipe": "not an ordinary", "none": "cannot be read"}  # fmt: skip
    for name, says in refused.items():
        with pytest.raises(IntakeError, match=says):
            read_regular(tmp_path / name, most=2)


def test_the_fingerprint_sees_every_change(tmp_path):
    seen = {fingerprint(tmp_path)}
    for content in ("1", "2"):
        (tmp_path / "b").write_text(content)
        seen.add(fingerprint(tmp_path))
        assert fingerprint(tmp_path) in seen
    (tmp_path / "b").rename(tmp_path / "c")
    seen.add(fingerprint(tmp_path))
    (tmp_path / "c").unlink()
    (tmp_path / "c").symlink_to("/etc/passwd")
    seen.add(fingerprint(tmp_path))
    place(tmp_path / "deep", folder(er="x"))
    assert len({*seen, fingerprint(tmp_path)}) == 6
