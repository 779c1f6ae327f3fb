"""Where pages are written: into the folder that is named, and over nothing else."""

import pytest

from course.__main__ import main
from course.commands import pages
from course.publish import site


def touched(target, *_):
    """In place of what writes a page."""
    target.touch(exist_ok=False)
    return target


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(pages.demo, "write_demo", touched)
    monkeypatch.setattr(pages.steps, "write_steps", touched)
    monkeypatch.setattr(pages.report, "write_report", lambda _, target: touched(target))
    return tmp_path


@pytest.mark.parametrize(("command", "also"), [("demo", []), ("report", ["report.html"])])
def test_output_is_a_folder_in_which_each_page_has_its_own_name(command, also, folder, capsys):
    (folder / "out").mkdir()
    assert main([command, "--output", str(folder / "out")]) == 0
    assert {path.name for path in (folder / "out").iterdir()} == {*also, "demo.html", "passes.html"}
    with pytest.raises(SystemExit):
        main([command, "--output", str(folder / "page.html")])
    assert "page.html is a page; name the folder that it goes to" in capsys.readouterr().err


OURS = f"# Sphinx inventory version 2\n# Project: {site.SETTINGS['project']}\n"


class Builder:
    """In place of Sphinx: it says all is well, warns, or is stopped."""

    ends = 0

    def __init__(self, source, _, made, *words, **choices):
        self.statuscode = self.ends
        self.made = made

    def build(self, force_all):
        self.made.mkdir()
        if self.ends is KeyboardInterrupt:
            raise self.ends
        files = {"index.html": "new", "objects.inv": OURS, ".buildinfo": "", ".DS_Store": ""}
        for name, text in files.items():
            (self.made / name).write_text(text, encoding="utf-8")


def test_a_site_comes_whole_or_not_at_all_and_its_neighbours_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "Sphinx", Builder)
    monkeypatch.setattr(site, "write_source", lambda source, pages: source.mkdir())
    (tmp_path / "site-source").mkdir()
    for ends, error in ((KeyboardInterrupt, KeyboardInterrupt), (1, RuntimeError)):
        monkeypatch.setattr(Builder, "ends", ends)
        with pytest.raises(error):
            site.write_site(tmp_path / "site", [])
        assert [path.name for path in tmp_path.iterdir()] == ["site-source"]
    monkeypatch.setattr(Builder, "ends", 0)
    for _ in range(2):
        page = site.write_site(tmp_path / "site", [])
        assert page == tmp_path / "site" / "index.html" and page.read_text("utf-8") == "new"
        assert {path.name for path in tmp_path.iterdir()} == {"site", "site-source"}
    monkeypatch.setattr(site, "move", lambda *_: (_ for _ in ()).throw(PermissionError("open")))
    with pytest.raises(PermissionError):
        site.write_site(tmp_path / "site", [])
    assert page.read_text("utf-8") == "new"
    for name in (".git", "CNAME"):  # of a site that is kept elsewhere, too
        (tmp_path / "site" / name).touch()
        with pytest.raises(FileExistsError, match=name):
            site.write_site(tmp_path / "site", [])
        (tmp_path / "site" / name).unlink()
    (tmp_path / "site" / "objects.inv").write_text(OURS.replace("int8", "C"), encoding="utf-8")
    with pytest.raises(FileExistsError, match="holds other files"):
        site.write_site(tmp_path / "site", [])


def test_an_index_of_something_else_is_not_written_over_by_slides(tmp_path, capsys):
    (tmp_path / "index.html").write_text("<title>My page</title>", encoding="utf-8")
    assert main(["slides", "--output", str(tmp_path)]) == 1
    assert "is no index of slides: name another folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


def test_an_edition_without_guides_says_that_it_makes_no_website(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(site, "ASSIGNMENTS", tmp_path)
    assert main(["site", "--output", str(tmp_path / "site")]) == 1
    assert "guides that this edition of the course lacks" in capsys.readouterr().err
