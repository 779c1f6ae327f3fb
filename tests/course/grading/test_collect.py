import os
import zipfile

import pytest

from course.grading.classroom import Classroom
from course.grading.collect import collect
from course.grading.files import MOST_FILES_BYTES


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


def test_folders_notebooks_and_zips_are_taken(room, incoming):
    (incoming / "ada").mkdir()
    (incoming / "ada" / "a1.ipynb").write_text("A")
    (incoming / "ben.ipynb").write_text("B")
    with zipfile.ZipFile(incoming / "cleo.zip", "w") as archive:
        archive.writestr("deep/../../a1/a1.ipynb", "C")
        archive.writestr("model.safetensors", "M")
    assert collect(room, "a1") == []
    assert _collected(room, "ada") == {"a1.ipynb": b"A"} and _collected(room, "ben") == {"a1.ipynb": b"B"}
    assert _collected(room, "cleo") == {"a1.ipynb": b"C", "model.safetensors": b"M"}
    assert room.students("a1") == ["ada", "ben", "cleo"]


def test_bombs_links_and_odd_names_are_left_out(room, incoming):
    with zipfile.ZipFile(incoming / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a1.ipynb", "fine")
        archive.writestr("zeros", bytes(MOST_FILES_BYTES + 1))
    with zipfile.ZipFile(incoming / "many.zip", "w") as archive:
        for index in range(1000):
            archive.writestr(f"f{index}", "x")
    (incoming / "torn.zip").write_bytes(b"PK\x03\x04 no zip")
    (incoming / "link").symlink_to("/etc")
    (incoming / "b d.ipynb").write_text("x")
    (incoming / "eve").mkdir()
    (incoming / "eve" / "a1.ipynb").symlink_to("/etc/passwd")
    with open(incoming / "huge.ipynb", "wb") as file:
        file.truncate(500 * 2**20)
    words = " ".join(collect(room, "a1"))
    for expected in ("too large", "more than 20 files", "cannot be unpacked", "'link'", "'b d.ipynb'", "eve:", "huge"):
        assert expected in words
    assert _collected(room, "bomb") == {"a1.ipynb": b"fine"} and len(_collected(room, "many")) == 20
    assert _collected(room, "eve") == {} and _collected(room, "torn") == {}
    assert "link" not in room.students("a1")


@pytest.mark.parametrize(("rule", "kept"), [("last", b"new"), ("first", b"old")])
def test_the_resubmission_rule_decides(room, incoming, rule, kept):
    room.settings.write_text(f'resubmission = "{rule}"')
    path = incoming / "ada.ipynb"
    for text, time in (("old", 1_000_000), ("new", 2_000_000)):
        path.write_text(text)
        os.utime(path, (time, time))
        collect(room, "a1")
    assert _collected(room, "ada") == {"a1.ipynb": kept}


def test_an_older_hand_in_does_not_replace_a_newer_one(room, incoming):
    path = incoming / "ada.ipynb"
    for text, time in (("new", 2_000_000), ("old", 1_000_000)):
        path.write_text(text)
        os.utime(path, (time, time))
        collect(room, "a1")
    assert _collected(room, "ada") == {"a1.ipynb": b"new"}
