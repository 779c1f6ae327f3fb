"""Other versions of the libraries: each set begins with an empty environment."""

from course import versions


def test_an_environment_that_was_left_half_made_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "REPOSITORY", tmp_path)
    left = tmp_path / "build" / "versions" / "newest" / "half-made"
    left.mkdir(parents=True)
    ran = []
    monkeypatch.setattr(versions, "passed", lambda name, step, command: ran.append(command) or 1)
    monkeypatch.setattr(versions.venv.EnvBuilder, "_setup_pip", lambda *_: None)
    assert versions.check("newest", {}, short=True) == "ok"
    assert not left.exists() and len(ran) == 4
