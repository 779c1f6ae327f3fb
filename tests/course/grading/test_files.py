import os

import pytest

from course.grading.files import IntakeError, fingerprint, read_regular


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
