import ast
import importlib
from pathlib import Path

import pytest
import torch

import course.__main__
from course.__main__ import COMMANDS, main
from course.commands import grade, options
from helpers import data
from helpers.data import REPOSITORY


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "show this help message" in told and (
        name != "run" or "with --publish always one" in told
    )


@pytest.mark.parametrize(
    "words", [[], ["fly"], ["data", "--source", "moon"], ["train", "--epochs", "many"]]
)
def test_wrong_words_exit_with_two_and_one_clear_line(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "error:" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "words",
    [
        (
            "quantize",
            "net.safetensors",
            "--output",
            "int8.safetensors",
            "--onnx",
            "./int8.safetensors",
        ),
        ("finetune", "net.safetensors", "--output", "net.safetensors", "--log", "net.safetensors"),
        ("train", "--output", "net.safetensors", "--state", "net.safetensors"),
        ("train", "--output", "a.safetensors", "--handover", "./a.safetensors"),
        (
            "train",
            "--output",
            "a.safetensors",
            "--handover",
            "b.safetensors",
            "--log",
            "b.csv",
        ),  # to which the rows of the hand-over go
        ("finetune", "net.safetensors", "--output", "net.safetensors"),
        (
            "finetune",
            "other.safetensors",
            "--teacher",
            "net.safetensors",
            "--output",
            "net.safetensors",
        ),
        ("prune", "net.safetensors", "--output", "net.safetensors"),
        ("compress", "fine-tuned.safetensors", "--output", "."),
        ("quantize", "net.safetensors", "--output", "net.safetensors"),
    ],
)
def test_no_file_is_named_for_two_things(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.safetensors").write_bytes(b"the only copy")
    assert main([*words, "--data", "nowhere"]) == 1
    assert "are one file" in capsys.readouterr().err
    assert (tmp_path / "net.safetensors").read_bytes() == b"the only copy"


def test_one_file_under_two_names_is_one_file(tmp_path, capsys):
    path, other = tmp_path / "net.safetensors", tmp_path / "NET.safetensors"
    path.write_bytes(b"the only copy")
    if not other.exists():  # where capitals are not small letters
        other.hardlink_to(path)
    assert main(["prune", str(path), "--output", str(other), "--data", "nowhere"]) == 1
    assert "are one file" in capsys.readouterr().err


def test_the_home_folder_may_be_a_tilde_in_every_path(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "photos").mkdir()
    with pytest.raises(data.DataError, match="photos"):
        options.images("~/photos")
    assert main(["evaluate", "--data=~/photos", "~/none.safetensors"]) == 1
    assert f"{tmp_path / 'none.safetensors'}" in capsys.readouterr().err


TINY = "data/checkpoints/tiny.safetensors"


@pytest.mark.parametrize(
    ("words", "usage", "says"),
    [
        (f"prune {TINY}", "prune", "required: --output"),
        (f"quantize {TINY}", "quantize", "required: --output"),
        (f"finetune {TINY}", "finetune", "required: --output"),
        (f"quantise {TINY}", "quantize", "required: --output"),
        (f"fine-tune {TINY}", "finetune", "required: --output"),
        (f"prune {TINY} --output build/x.safetensors --depth 3", "prune", "arguments: --depth 3"),
        (f"prune {TINY} small.safetensors --output build/x.safetensors", "prune", "small.safe"),
        ("demo --folder there", "demo", "unrecognized arguments: --folder there"),
        ("grade stats --graphs", "grade stats", "unrecognized arguments: --graphs"),
        ("train --distill 0.5", "train", "unrecognized arguments: --distill 0.5"),
        ("sweep tiny --dry build --commit", "sweep", "--commit: not allowed with argument --dry"),
    ],
)
def test_a_command_that_is_not_right_is_explained_with_its_own_usage(words, usage, says, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    told = capsys.readouterr().err
    assert stop.value.code == 2 and says in told
    assert told.startswith(f"usage: python -m course {usage} ")


def test_grade_alone_lists_its_commands(capsys):
    assert main(["grade"]) == 2
    told = capsys.readouterr().out
    for command, (explanation, _) in grade.COMMANDS.items():
        assert command in told.split() and explanation in " ".join(told.split())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("quantize {tiny} --output {folder}/x.safetensors --weight-bits 1", "from 2 to 8"),
        ("quantize {tiny} --output {folder}/x.safetensors --activation-bits 9", "from 2 to 8"),
        ("quantize {tiny} --output {folder}/x.safetensors --file-bytes 9", "the header takes"),
        ("compress {tiny} --output {folder}/x --weight-bits 1", "from 2 to 8"),
    ],
)
def test_impossible_bits_are_refused_before_images_are_looked_for(
    words, says, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(data, "load_cifar10", lambda _: pytest.fail("it would download"))
    tiny = REPOSITORY / TINY
    assert main(words.format(tiny=tiny, folder=tmp_path).split()) == 1
    assert says in capsys.readouterr().err


def without_encoding(path):
    """The calls that read or write text in whatever encoding the machine prefers."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        constants = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        said = "encoding" in [keyword.arg for keyword in node.keywords] or "utf-8" in constants
        binary = any(value in ("rb", "wb", "ab") for value in constants)
        is_open = name == "open" and isinstance(node.func, ast.Name)
        if (name in ("read_text", "write_text") or is_open) and not said and not binary:
            yield ast.unparse(node)


def test_text_is_read_and_written_as_utf_8_on_windows_too():
    files = [path for room in ("course", "helpers") for path in (REPOSITORY / room).rglob("*.py")]
    found = {path.name for path in files if list(without_encoding(path))}
    # What Linux alone has, and a file of an installed package, which Python reads as UTF-8.
    assert found <= {"provenance.py", "doctor.py"}


def test_a_package_that_only_some_commands_need_is_named_with_who_says_the_remedy(
    monkeypatch, capsys
):
    monkeypatch.setitem(COMMANDS, "grade", ("tests.imports_what_nobody_has", "grade"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    with pytest.raises(SystemExit) as stop:
        main(["grade", "demo"])
    told = capsys.readouterr().err
    assert stop.value.code == 1 and told.count("\n") == 1
    assert "No module named 'tests.imports_what_nobody_has'" in told and "course doctor" in told


def raising(problem):
    def raised(*_):
        raise problem

    return raised


def test_an_old_python_is_told_by_every_command(monkeypatch, capsys):
    monkeypatch.setattr("sys.version_info", (3, 10, 13))
    assert main(["doctor"]) == 1
    assert "is too old: install 3.11 or newer" in capsys.readouterr().err


def test_the_line_about_an_old_python_is_reached_by_the_oldest_that_people_have():
    text = Path(course.__main__.__file__).read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 8))
    # Else `list[str] | None` is an error before 3.10, as soon as the module is loaded.
    first = next(node for node in tree.body if not isinstance(node, ast.Expr))
    assert isinstance(first, ast.ImportFrom) and first.module == "__future__"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("quantize", "Stopped.\n"),
        ("quantize --qat-epochs 1", "goes on from there.\n"),
        ("quantize --qat-epochs=1", "goes on from there.\n"),
    ],
)
def test_only_a_training_goes_on_after_ctrl_c(words, says, monkeypatch, capsys):
    monkeypatch.setattr(importlib, "import_module", raising(KeyboardInterrupt()))
    assert main(words.split()) == 130 and capsys.readouterr().err.endswith(says)


@pytest.mark.parametrize(
    ("problem", "status", "says"),
    [
        (ImportError("DLL load failed"), 1, "DLL load failed; `python -m course doctor`"),
        (OSError("[WinError 126]"), 1, "[WinError 126]; `python -m course doctor`"),
        (KeyboardInterrupt(), 130, "Stopped. What was finished is kept"),
    ],
)
def test_what_happens_while_a_command_is_imported_is_told_in_a_line(
    problem, status, says, monkeypatch, capsys
):
    monkeypatch.setattr(importlib, "import_module", raising(problem))
    try:
        found = main(["train"])
    except SystemExit as end:
        found = end.code
    assert found == status and says in capsys.readouterr().err


def test_a_default_with_a_per_cent_sign_is_told(monkeypatch, capsys):
    monkeypatch.setattr("course.publish.runner.BUILD", Path("50% off"))
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert f"(default: {Path('50% off') / 'notebooks'})" in told


BENCHMARKS = [
    importlib.import_module(f"course.benchmarks.{path.stem}")
    for path in (REPOSITORY / "course" / "benchmarks").glob("[a-z]*.py")
]


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--help"], 0, "python -m course.benchmarks."),
        (["--fast"], 2, "unrecognized arguments: --fast"),
    ],
)
def test_every_benchmark_explains_itself_before_it_works(words, status, says, monkeypatch, capsys):
    for work in ((data, "load_cifar10"), (torch, "set_num_threads")):
        monkeypatch.setattr(*work, lambda *_: pytest.fail("it works"))
    monkeypatch.setattr("sys.argv", ["benchmark", *words])
    for module in BENCHMARKS:
        assert module.__doc__
        if hasattr(module, "main"):
            with pytest.raises(SystemExit) as stop:
                module.main()
            assert stop.value.code == status
            told = "".join(capsys.readouterr())
            assert says in told or "required: --package" in told


@pytest.mark.parametrize(
    ("name", "words", "says"),
    [
        ("pruning_networks", "resnet18 resnet_18", "there is no network resnet_18"),
        ("wild", "--package torchvision --only resnet18 resnet_18", "is no network resnet_18"),
        ("step", "--steps 0", "'0' is not a whole number of 1 or more"),
    ],
)
def test_words_that_a_benchmark_cannot_use_leave_no_row(name, words, says, monkeypatch, capsys):
    monkeypatch.setattr("course.benchmarks.common.KnownRows.add", lambda *_: pytest.fail("a row"))
    monkeypatch.setattr("sys.argv", ["benchmark", *words.split()])
    with pytest.raises(SystemExit):
        importlib.import_module(f"course.benchmarks.{name}").main()
    assert says in capsys.readouterr().err
