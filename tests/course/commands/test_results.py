from course.__main__ import main
from course.reference import readme


def test_check_agrees_with_the_readme(capsys, monkeypatch):
    assert main(["results", "--check"]) == (1 if readme.stale() else 0)
    monkeypatch.setattr(readme, "stale", lambda: ["README.md is old"])
    assert main(["results", "--check"]) == 1
    assert "README.md is old" in capsys.readouterr().out
