import os

import pytest

from helpers.files import write_atomically


def test_a_failure_keeps_the_old_and_leaves_nothing_else(tmp_path, monkeypatch):
    path = write_atomically(tmp_path / "file", "old")

    def fail(*_):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
