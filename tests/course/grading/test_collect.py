import csv
import io
import os
import random
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


def _collected(room, student):
    return {path.name: path.read_bytes() for path in room.submission(student, "a1").iterdir()}


def _sentences(room):
    collect(room, "a1")
    return remarks(room, "a1")


def _zip(method=zipfile.ZIP_DEFLATED, **parts):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in (parts or {"a1.ipynb": "good" * 100}).items():
            archive.writestr(name, content)
    return data.getvalue()


def test_folders_notebooks_and_zips_are_taken(room, incoming):
    (incoming / "ada").mkdir()
    (incoming / "ada" / "a1.ipynb").write_text("A")
    (incoming / "ben.ipynb").write_text("B")
    with zipfile.ZipFile(incoming / "cleo.zip", "w") as archive:
        archive.writestr("deep/../../a1/a1.ipynb", "C")
        archive.writestr("model.safetensors", "M")
    assert _sentences(room) == []
    assert _collected(room, "ada") == {"a1.ipynb": b"A"} and _collected(room, "ben") == {"a1.ipynb": b"B"}
    assert _collected(room, "cleo") == {"a1.ipynb": b"C", "model.safetensors": b"M"}
    assert room.students("a1") == ["ada", "ben", "cleo"]


def test_bombs_links_and_odd_names_are_left_out(room, incoming):
    with zipfile.ZipFile(incoming / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a1.ipynb", "fine")
        archive.writestr("zeros", bytes(MOST_FILES_BYTES + 1))
    with zipfile.ZipFile(incoming / "many.zip", "w") as archive:
        archive.writestr("z/a1.ipynb", "fine")
        for index in range(1000):
            archive.writestr(f"f{index}", "x")
    (incoming / "torn.zip").write_bytes(b"PK\x03\x04 no zip")
    (incoming / "link").symlink_to("/etc")
    (incoming / "eve").mkdir()
    (incoming / "eve" / "a1.ipynb").symlink_to("/etc/passwd")
    with open(incoming / "huge.ipynb", "wb") as file:
        file.truncate(500 * 2**20)
    words = " ".join(_sentences(room))
    for says in (
        "too large",
        "more than 20 files",
        "cannot be unpacked",
        "link was left",
        "eve was unreadable",
        "huge",
    ):
        assert says in words
    assert _collected(room, "bomb") == {"a1.ipynb": b"fine"} and len(_collected(room, "many")) == 20
    assert _collected(room, "eve") == {} and _collected(room, "torn") == {}
    assert "link" not in room.students("a1")


@pytest.mark.parametrize(("rule", "kept"), [("last", b"new"), ("first", b"old")])
def test_the_resubmission_rule_decides(room, incoming, rule, kept):
    room.settings.write_text(f'resubmission = "{rule}"')
    path = incoming / "ada.ipynb"
    for text, when in (("old", 1_000_000), ("new", 2_000_000)):
        path.write_text(text)
        os.utime(path, (when, when))
        collect(room, "a1")
    assert _collected(room, "ada") == {"a1.ipynb": kept}


def test_an_older_hand_in_does_not_replace_a_newer_one(room, incoming):
    path = incoming / "ada.ipynb"
    for text, when in (("new", 2_000_000), ("old", 1_000_000)):
        path.write_text(text)
        os.utime(path, (when, when))
        collect(room, "a1")
    assert _collected(room, "ada") == {"a1.ipynb": b"new"}


def test_a_collect_that_is_killed_makes_nobody_late(room, incoming, monkeypatch):
    (incoming / "ada.ipynb").write_text("A")
    os.utime(incoming / "ada.ipynb", (1_000_000, 1_000_000))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("course.grading.collect.write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        collect(room, "a1")
    collect(room, "a1")
    assert arrival(room.submission("ada", "a1")).timestamp() == 1_000_000 and _collected(room, "ada")


def _damaged():
    """Zip files as they come: torn, encrypted, packed in odd ways, with one byte changed anywhere."""
    whole, rng = _zip(), random.Random(0)
    yield whole[:60] + bytes(60) + whole[120:]
    yield whole[: len(whole) // 2]
    yield b""
    yield _zip(zipfile.ZIP_LZMA)[:40] + bytes(60) + _zip(zipfile.ZIP_LZMA)[100:]
    encrypted = bytearray(whole)
    encrypted[6] |= 1
    encrypted[whole.index(b"PK\x01\x02") + 8] |= 1
    yield bytes(encrypted)
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_STORED):
        for _ in range(20):
            data = bytearray(_zip(method))
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            yield bytes(data)


def test_no_damage_stops_the_others_and_all_of_it_is_told(room, incoming):
    for index, data in enumerate(_damaged()):
        (incoming / f"d{index:03}.zip").write_bytes(data)
    for index in range(90):
        (incoming / f"s{index:03}.ipynb").write_text("fine")
    found = {one.path.stem: one for one in collect(room, "a1")}
    assert all(found[f"s{index:03}"].became == "collected" for index in range(90))
    for index in range(5):
        assert found[f"d{index:03}"].became == "unreadable" and "ask for it again" in found[f"d{index:03}"].remark
    for one in found.values():
        assert one.became == "collected" or one.remark
    assert {one.became for one in collect(room, "a1") if one.path.stem.startswith("s")} == {"unchanged"}
    (incoming / "d000.zip").write_bytes(_zip())
    os.utime(incoming / "d000.zip", (1_000_000, 1_000_000))  # an old date does not matter where nothing could be read
    assert next(one for one in collect(room, "a1") if one.path.stem == "d000").became == "collected"


def test_what_cannot_be_read_does_not_replace_what_can(room, incoming):
    (incoming / "ada.ipynb").write_text("good")
    os.utime(incoming / "ada.ipynb", (1_000_000, 1_000_000))
    collect(room, "a1")
    (incoming / "ada.ipynb").rename(incoming / "ada.zip")
    os.utime(incoming / "ada.zip", (2_000_000, 2_000_000))
    assert "the hand-in before it still counts" in _sentences(room)[0]
    assert _collected(room, "ada") == {"a1.ipynb": b"good"}


def test_what_is_no_hand_in_is_named_and_left(room, incoming):
    (incoming / "bob.ipynb").write_text("B")
    for name in ("bob.pdf", "README.txt", "Thumbs.db", "roster"):
        (incoming / name).write_text("x")
    (incoming / ".DS_Store").write_text("x")
    (incoming / "carl.ZIP").write_bytes(_zip(**{"A1.IPYNB": "C", "__MACOSX/._a1.ipynb": "x", "Thumbs.db": "x",
                                                 ".ipynb_checkpoints/a1-checkpoint.ipynb": "old"}))  # fmt: skip
    (incoming / "dora.IPYNB").write_text("D")
    (incoming / "emil" / "deep" / "er").mkdir(parents=True)
    (incoming / "emil" / "deep" / "er" / "my a1.ipynb").write_text("E")
    assert len(_sentences(room)) == 4
    assert room.students("a1") == ["bob", "carl", "dora", "emil"]
    for student, text in (("bob", b"B"), ("carl", b"C"), ("dora", b"D"), ("emil", b"E")):
        assert _collected(room, student) == {"a1.ipynb": text}


def test_a_name_is_no_formula_and_a_link_in_a_zip_file_no_link(room, incoming):
    (incoming / '=HYPERLINK("x").ipynb').write_text("A")
    link = zipfile.ZipInfo("..\\..\\a1.ipynb")
    link.create_system, link.external_attr = 3, 0o120777 << 16
    (incoming / "ada.zip").write_bytes(_zip(**{"model.bin": "B"}))
    with zipfile.ZipFile(incoming / "ada.zip", "a") as archive:
        archive.writestr(link, "/etc/passwd")
    collect(room, "a1")
    assert _collected(room, "ada") == {"a1.ipynb": b"/etc/passwd", "model.bin": b"B"}
    assert not any(path.is_symlink() for path in room.folder.rglob("*"))
    table = csv.reader((room.folder / "collected" / "a1.csv").read_text().splitlines())
    assert not [cell for row in table for cell in row if cell.startswith("=")]


def test_two_notebooks_are_asked_about_and_none_is_taken_by_chance(room, incoming):
    (incoming / "two.zip").write_bytes(_zip(**{"x/a1.ipynb": "1", "y/a1.ipynb": "2"}))
    (incoming / "other.zip").write_bytes(_zip(**{"draft.ipynb": "1", "final.ipynb": "2"}))
    (incoming / "clear.zip").write_bytes(_zip(**{"draft.ipynb": "1", "a1.ipynb": "2", "x/model.bin": "far",
                                                 "model.bin": "near"}))  # fmt: skip
    words = " ".join(_sentences(room))
    assert "x/a1.ipynb, y/a1.ipynb" in words and "draft.ipynb, final.ipynb" in words and "collect again" in words
    assert _collected(room, "two") == _collected(room, "other") == {}
    assert _collected(room, "clear") == {"a1.ipynb": b"2", "model.bin": b"near"}


def test_thousands_of_bombs_in_one_file_cost_little(room, incoming):
    with zipfile.ZipFile(incoming / "ada.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a1.ipynb", "fine")
        archive.writestr("0", bytes(MOST_FILES_BYTES + 1))
        entry = archive.infolist()[-1]
        for index in range(1, 5000):  # the same bytes under many names
            copied = zipfile.ZipInfo(str(index))
            for name in ("header_offset", "file_size", "compress_size", "CRC", "compress_type"):
                setattr(copied, name, getattr(entry, name))
            copied.file_size = 1
            archive.filelist.append(copied)
    start = time.monotonic()
    collect(room, "a1")
    assert time.monotonic() - start < 60 and _collected(room, "ada")["a1.ipynb"] == b"fine"


def test_any_name_is_mapped_and_the_table_says_to_what(room, incoming):
    names = ["Jürgen O'Neil", "a+b", "b d", "李雷", "x" * 120, "tab\tname", "ada"]
    for name in names:
        (incoming / f"{name}.ipynb").write_text(name)
    assert _sentences(room) == [] and len(room.students("a1")) == len(names)
    table = list(csv.DictReader((room.folder / "collected" / "a1.csv").read_text().splitlines()))
    for row in table:
        assert room.submission(row["student"], "a1").is_dir()
    assert name_of("Ju\u0308rgen") == name_of("Jürgen") != name_of("Jurgen") == "Jurgen"
    assert [one.became for one in collect(room, "a1")] == ["unchanged"] * len(names)


def test_long_names_inside_and_control_characters_do_no_harm(room, incoming):
    (incoming / "ada.zip").write_bytes(_zip(**{"a1.ipynb": "A", "n" * 300: "x", "\x1b[31mred.bin": "y"}))
    words = " ".join(_sentences(room))
    assert "too long" in words and "\x1b" not in words
    assert "a1.ipynb" in _collected(room, "ada")


@pytest.mark.parametrize(("rule", "kept"), [("last", b"zip"), ("first", b"folder")])
def test_of_two_hand_ins_of_a_student_the_rule_and_not_the_alphabet_decides(room, incoming, rule, kept):
    room.settings.write_text(f'resubmission = "{rule}"')
    (incoming / "ada.zip").write_bytes(_zip(**{"a1.ipynb": "zip"}))
    (incoming / "ada").mkdir()
    (incoming / "ada" / "a1.ipynb").write_text("folder")
    for path, when in ((incoming / "ada.zip", 2_000_000), (incoming / "ada" / "a1.ipynb", 10), (incoming / "ada", 10)):
        os.utime(path, (when, when))
    (sentence,) = _sentences(room)
    assert "is by the same student and counts" in sentence and _collected(room, "ada") == {"a1.ipynb": kept}
    assert len(remarks(room, "a1")) == 1


def test_an_ordinary_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "a").write_bytes(b"123")
    assert read_regular(tmp_path / "a", most=3) == b"123"
    with pytest.raises(IntakeError, match="a has 3 bytes; 2 are allowed"):
        read_regular(tmp_path / "a", most=2)


def test_nothing_else_is_read_or_waited_for(tmp_path):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, says in (
        ("link", "links are not followed"),
        ("folder", "not an ordinary"),
        ("pipe", "not an ordinary"),
        ("none", "cannot be read"),
    ):
        with pytest.raises(IntakeError, match=says):
            read_regular(tmp_path / name, most=100)


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
    assert len(seen) == 5
