"""Commands through the shell's door: train, evaluate, fine-tune and others on the sample, run,
sweep, doctor.
"""

import importlib.abc
import importlib.metadata
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import torch
import torchvision
from nbformat.v4 import new_markdown_cell, new_notebook

from course import hosted, reference
from course.__main__ import main
from course.commands import doctor
from course.commands.lab import COPIED
from course.commands.train import device, saving
from course.gpu import name_of_gpu
from course.publish import runner
from helpers import allocator, data, models, training
from helpers.quantization import Recipe, kernels
from tests.course.reference.small import rows_of, small_sweep

FAST = ["--data", "sample", "--epochs", "1", "--image-sizes", "8", "--batch-size", "300"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "trained.safetensors"
    assert main(["train", *FAST, "--width", "0.1", "--output", str(path)]) == 0
    return path


def test_train_writes_checkpoint_and_log_and_evaluate_finds_what_the_file_states(
    trained, capsys, monkeypatch
):
    spec, metadata = models.read_header(trained)
    assert spec.arguments["width_mult"] == 0.1
    assert (metadata["metrics"]["test_images"], metadata["provenance"]["seed"]) == (1000, 0)
    assert len(pd.read_csv(trained.with_suffix(".csv"))) == 1
    sample = data.load_cifar10("sample")
    monkeypatch.setattr(data, "load_cifar10", lambda _: sample)
    assert main(["data"]) == 1  # all images were asked for
    assert (
        main(["data", "--source", "sample"])
        == main(["evaluate", str(trained), "--data", "sample"])
        == 0
    )
    stated, out = metadata["metrics"]["test_accuracy"], capsys.readouterr().out
    assert f"test accuracy {stated:.2%}" in out and f"the file states {stated:.2%}" in out
    assert "1,000 training + 1,000 test images" in out


@pytest.mark.slow
@pytest.mark.ci
def test_a_quantized_network_is_written_in_two_forms_and_evaluated_in_integers(
    trained, tmp_path, capsys
):
    quantized, onnx = tmp_path / "q.safetensors", tmp_path / "q.onnx"
    words = (
        "--images 32 --weight-bits 4 --bias-correction empirical --equalize --per-tensor --data"
        " sample --onnx"
    )
    assert (
        main(["quantize", str(trained), "--output", str(quantized), *words.split(), str(onnx)]) == 0
    )
    recipe, printed = models.load(quantized).recipe, capsys.readouterr().out
    assert (recipe.weight_bits, recipe.per_channel, recipe.equalize) == (
        4,
        False,
        True,
    ) and onnx.exists()
    stated = models.read_header(quantized)[1]["metrics"]["validation_accuracy"]
    for told in (
        f"-> {quantized.stat().st_size:,} bytes",
        f"validation accuracy {stated:.2%}",
        "100 images",
    ):
        assert told in printed
    assert main(["evaluate", str(quantized), "--data", "sample"]) == 0
    mode, out = "kernel" if kernels.available() else "integer", capsys.readouterr().out
    assert f", computed in mode '{mode}'" in out
    assert f"{sum(p.numel() for p in models.load(trained).parameters()):,} parameters" in out


def test_a_file_above_its_budget_is_told(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("course.commands.quantize.mixed_recipe", lambda *_: Recipe())
    output = tmp_path / "q.safetensors"
    words = [str(trained), "--output", str(output), *["--data", "sample", "--images", "32"]]
    assert main(["quantize", *words, "--file-bytes", "3000"]) == 1
    told = f"{output} has {output.stat().st_size} bytes, more than --file-bytes 3000: allow more"
    assert told in capsys.readouterr().err


def test_finetune_goes_on_with_teachers(trained, tmp_path, monkeypatch):
    output, given, train = tmp_path / "finetuned.safetensors", [], training.train

    def watched(*args, teacher, **rest):
        given.append(teacher)
        return train(*args, teacher=teacher, **rest)

    monkeypatch.setattr(training, "train", watched)
    teachers = [
        "--teacher",
        str(trained),
        "--teacher",
        str(models.CHECKPOINTS / "tiny.safetensors"),
    ]
    assert main(["finetune", *teachers, str(trained), *FAST, "--output", str(output)]) == 0
    images = torch.randn(3, 3, 32, 32)
    wanted = (models.load(trained).eval()(images) + models.load(teachers[-1]).eval()(images)) / 2
    torch.testing.assert_close(given[0].eval()(images), wanted)
    assert models.load(output).spec == models.load(trained).spec
    first, then = (
        models.read_header(path)[1]["provenance"]["command"] for path in (trained, output)
    )
    assert then.startswith(f"{first}; ") and len(then) > len(first) + 2


@pytest.mark.slow
@pytest.mark.ci
def test_the_builder_that_finetune_names_may_be_that_of_the_teacher_alone(trained, tmp_path):
    builder = "course.reference.teacher:resnet18"
    teacher = models.save(models.build(builder, num_classes=10), tmp_path / "teacher.safetensors")
    output = tmp_path / "finetuned.safetensors"
    words = ["--teacher", str(teacher), "--model", builder, *FAST, "--output", str(output)]
    assert main(["finetune", str(trained), *words]) == 0
    assert models.load(output).spec == models.load(trained).spec


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("train --width 0", "is not a number above 0"),
        ("train --width nan", "is not a number above 0"),
        ("train --batch-size 0", "batch_size must be"),
        (
            "train --input-size 64",
            "--input-size 64: CIFAR-10 has 32 pixels; leave it out, or give --data of your own",
        ),
        (
            "train --width 0.5 --model tiny",
            "--width 0.5 belongs to mobilenet_v2_cifar, and --model is tiny: leave one",
        ),
        ("train --output {folder}", "it is a folder"),
        ("train --output {file}/trained", "cannot be written"),
        ("train --output {folder}/slip/x.safetensors --width abc", "'abc' is not a number above 0"),
        ("train --output {folder}/mnv2-0.5", "{folder}/mnv2-0.5 must end in .safetensors"),
        ("train --handover {folder}/mnv2-0.5", "{folder}/mnv2-0.5 must end in .safetensors"),
        ("finetune {tiny} --output {folder}/a.csv", "must end in .safetensors"),
        ("quantize {tiny} --output {out} --images -5", "is not a whole number of 1 or more"),
        ("quantize {tiny} --output {file}/q", "cannot be written"),
        ("quantize {tiny} --output {out} --weight-bits 9", "from 2 to 8"),
        (
            "quantize {tiny} --output {out} --file-bytes 2048",
            "--file-bytes 2048: the header takes 2048; give more",
        ),
        (
            "quantize {tiny} --output {out} --file-bytes 2100",
            "--file-bytes 2100, of which 2048 are kept for the header: file_bytes=52, too few",
        ),
        ("quantize {tiny} --output {out} --qat-epochs 1 --rounding learned", "leave --rounding"),
        ("prune {tiny} --output {out} --ratio 1", "ratio is 1.0; expected 0 <= ratio < 1"),
        (
            "prune {tiny} --output {out} --images many",
            "argument --images: 'many' is not a whole number of 1 or more",
        ),
        ("prune {tiny} --output {out} --round-to 1000", "no group has more than 64 units"),
        (
            "prune {tiny} --output {out} --allocation {file}",
            "file.json cannot be read as JSON: Expecting value",
        ),
        (
            "prune {tiny} --output {out} --input-size 64",
            "--input-size is for --data of your own; leave it out",
        ),
        (
            "prune {int8} --output {out}",
            "is quantized already; start from the network that it was made from",
        ),
        ("evaluate {tiny} --batch 0", "is not a whole number of 1 or more"),
    ],
)
def test_wrong_values_are_refused_before_any_work(words, says, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("helpers.training.train", lambda *_, **__: pytest.fail("it trains"))
    (tmp_path / "file.json").touch()
    files = {
        "folder": tmp_path,
        "file": tmp_path / "file.json",
        "out": tmp_path / "out.safetensors",
    }
    files |= {
        name[-4:]: models.CHECKPOINTS / f"{name}.safetensors" for name in ("tiny", "half-int8")
    }
    words, says = words.format(**files), says.format(**files)
    try:
        status = main([*words.split(), "--data", "sample"])
    except SystemExit as end:
        status = end.code
    assert status in (1, 2) and says in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_a_second_training_on_one_output_is_refused_and_a_lock_in_use_is_left(
    tmp_path, capsys, monkeypatch
):
    def in_use(*_, **__):
        raise PermissionError("as Windows says of a file that is open")

    monkeypatch.setattr(Path, "unlink", in_use)
    output = tmp_path / "trained.safetensors"
    with saving(Namespace(state=output.with_suffix(".state"), output=output, handover=None)):
        assert main(["train", *FAST, "--width", "0.1", "--output", str(output)]) == 1
    assert "another training writes" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize("failure", [None, "cell 3 (x): broken"])
@pytest.mark.parametrize(
    "words", [[], ["--publish"]], ids=["two at a time", "published, so one at a time"]
)
def test_a_run_of_everything_names_a_failure_and_ends_with_the_report(
    tmp_path, monkeypatch, capsys, failure, words
):
    paths = [tmp_path / "01_a.ipynb", tmp_path / "02_b.ipynb"]
    for path in paths:
        nbformat.write(new_notebook(cells=[new_markdown_cell(f"# Lesson {path.stem}")]), path)

    def copied(path, output, profile, **shared):
        assert shared == ({} if words else {"OMP_NUM_THREADS": "3"} | allocator.WHOLE_PROCESS)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(path.read_text())
        return runner.Outcome(path.stem, 1.0, failure if path.stem == "01_a" else None)

    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)  # all that this run may use
    monkeypatch.setattr(runner, "run_lesson", copied)
    monkeypatch.setattr(
        runner, "publish", lambda _, path: path.stem != "02_b"
    )  # which was edited while it ran
    monkeypatch.setattr(runner, "lessons", lambda *_, **__: paths)
    assert main(
        ["run", "--jobs", "2", *words, "--output", str(tmp_path / "out/notebooks")]
    ) == bool(failure or words)
    out = capsys.readouterr().out
    assert (
        "report: " in out
        and "02_b" in out
        and ("02_b" in out.partition("failed: ")[2].partition("\n")[0]) == bool(words)
    )
    assert (f"FAILED  {failure}" in out and "failed: 01_a" in out) == bool(failure)
    assert "<th>02_b</th>" in (tmp_path / "out" / "notebooks" / "report.html").read_text()
    monkeypatch.setattr(runner, "BUILD", tmp_path / "out")  # as README says it
    main(["run", "--jobs", "2", *words, "--output", str(tmp_path / "out/notebooks")])
    assert "<th>02_b</th>" in (tmp_path / "out" / "report.html").read_text()


def test_a_notebook_that_cannot_be_read_is_named_and_the_report_is_of_the_others(
    tmp_path, monkeypatch, capsys
):
    (tmp_path / "01_a.ipynb").write_text("<<<<<<< {", encoding="utf-8")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "01_a.ipynb").write_text("of an earlier run", encoding="utf-8")
    monkeypatch.setattr(runner, "lessons", lambda *_, **__: [tmp_path / "01_a.ipynb"])
    assert main(["run", "--output", str(tmp_path / "out")]) == 1
    told = capsys.readouterr().out
    assert re.search(r"01_a .* FAILED  cannot be read: .*JSON", told) and "report: " in told


def test_lessons_are_not_run_over_themselves(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(runner, "run_lesson", lambda *_, **__: 1 / 0)
    assert main(["run", "--output", str(runner.NOTEBOOKS / ".")]) == 1
    assert "holds the lessons; name another folder" in capsys.readouterr().err
    (tmp_path / "lessons").symlink_to(runner.NOTEBOOKS)
    with monkeypatch.context() as patch:  # a Mac's disk leaves capitals as they are typed
        patch.setattr(runner.Path, "resolve", lambda path, **_: path)
        assert main(["run", "--output", str(tmp_path / "lessons")]) == 1
    assert "holds the lessons; name another folder" in capsys.readouterr().err
    (tmp_path / COPIED).write_text("{}")
    assert main(["run", "--output", str(tmp_path)]) == 1
    assert "holds your copy of the lessons; name another" in capsys.readouterr().err


def test_a_list_runs_nothing_and_a_status_tells_whether_all_was_done(tmp_path, capsys, monkeypatch):
    sweep, asked = small_sweep(tmp_path), []
    rows_of(sweep, "dense")
    monkeypatch.setattr(
        reference, "run", lambda *words: asked.append(words[1]) or {"cut": "no room"}
    )
    assert main(["sweep", sweep.name, "cut", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["done", "to"] and asked == []
    assert lines[1].endswith(f"python -m course sweep {sweep.name} cut")
    assert main(["sweep", sweep.name, "tuned"]) == 1 and asked == [["tuned"]]
    assert "not done: cut: no room" in capsys.readouterr().out
    monkeypatch.setattr(reference, "run", lambda *words: {})
    assert main(["sweep", sweep.name]) == 0


def test_rows_and_all_shipped_files_are_committed_and_git_s_refusal_told_before_work(
    tmp_path, monkeypatch, capsys
):
    def git(*words):
        return subprocess.check_output(["git", *words], cwd=tmp_path, text=True)

    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    sweep, words = small_sweep(tmp_path), ["sweep", str(tmp_path / "small.toml"), "--commit"]
    monkeypatch.setattr(reference, "run", lambda *_: pytest.fail("works"))
    with monkeypatch.context() as bare:
        bare.setenv("PATH", str(tmp_path))
        assert main(words) == 1 and "--commit needs git: install it" in capsys.readouterr().err
    git("init", "-q"), git("config", "user.useConfigOnly", "true")
    assert main(words) == 1 and "git var: " in capsys.readouterr().err
    git("config", "user.email", "a@b.c"), git("config", "user.name", "a")
    (tmp_path / ".git" / "index.lock").touch()
    assert main(words) == 1 and "index.lock': File exists" in capsys.readouterr().err
    (tmp_path / ".git" / "index.lock").unlink()

    def run(its_sweep, names, say, keep, pool, at_a_time):
        rows_of(sweep, "cut")
        keep(sweep.jobs["cut"])
        return {}

    monkeypatch.setattr(reference, "run", run)
    assert main(words) == main(words) == 0  # the second time there is nothing to commit
    told = git("log", "--stat", "--format=%s").split("Left by the sweep")
    assert (
        "Network cut of the sweep" in told[0]
        and "results.csv" in told[0]
        and "dense.safetensors" in told[1]
    )


def test_this_machine_is_fine(capsys, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Namespace(free=2**40))
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    for topic in (
        "Python",
        "torchvision",
        "threads",
        "GPU",
        "disk",
        "memory",
        "CIFAR-10",
        "bubblewrap",
        f"[{'ok ' if find_spec('nbgrader') else '-- '}] nbgrader, to grade",
        "Chromium",
    ):
        assert topic in told
    monkeypatch.setattr(doctor, "CHECKS", [lambda: (_ for _ in ()).throw(KeyboardInterrupt)])
    assert main(["doctor"]) == 130 and "goes on" not in capsys.readouterr().err


def test_a_gpu_for_which_this_pytorch_has_no_kernels_is_left_alone(monkeypatch):
    def fails(*_, **on):
        raise torch.AcceleratorError("CUDA error: no kernel image is available\nCompile with")

    def asked():
        name_of_gpu.cache_clear()
        return device().type

    forgotten = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "GTX 1060")
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: forgotten.append(True))
    monkeypatch.setattr(torch, "ones", lambda *_, **on: torch.zeros(1))
    assert asked() == "cuda"
    monkeypatch.setattr(torch, "ones", fails)
    with pytest.warns(UserWarning, match="^GTX 1060 is not used: .*no kernel image is available$"):
        assert asked() == "cpu"
    assert forgotten == [True]  # else a row would name the GPU
    name_of_gpu.cache_clear()


@pytest.mark.parametrize("lacking", ["tqdm", "batchnorm-to-int8", "onnxruntime"])
def test_a_missing_thing_is_told_with_its_remedy(monkeypatch, capsys, tmp_path, lacking):
    found = importlib.metadata.Distribution.discover
    hiding = lambda **by: iter(()) if by.get("name") == lacking else found(**by)  # noqa: E731
    monkeypatch.setattr(importlib.metadata.Distribution, "discover", hiding)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Usage", (), {"free": 2**20})())
    monkeypatch.setattr(doctor, "BUILD", tmp_path / "no" / "build")
    monkeypatch.setattr(doctor.sys, "executable", "/two words/python")
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    named = rf"\[fix\] packages: {lacking}(>=[\d.]+)? missing: "
    assert re.search(named + r'"/two words/python" -m pip install -e "\.\[study\]" -c', told)
    assert (
        "[fix] 0 GiB of disk free: " in told
        and f"[fix] {tmp_path / 'no'} does not exist or cannot be written: copy" in told
    )


def test_a_folder_that_was_moved_and_a_python_that_lost_its_pip_are_set_up_anew(
    monkeypatch, tmp_path
):
    (here,) = doctor.place()
    assert here.good
    found = importlib.metadata.Distribution.discover
    hidden = ("pip", "tqdm")
    hiding = lambda **by: iter(()) if by.get("name") in hidden else found(**by)  # noqa: E731
    monkeypatch.setattr(importlib.metadata.Distribution, "discover", hiding)
    (missing,) = doctor.packages()
    assert "tqdm" in missing.what and missing.remedy == doctor.ANEW
    monkeypatch.setattr(doctor.hosted, "REPOSITORY", tmp_path)
    (moved,) = doctor.place()
    assert not moved.good and moved.remedy == f"this is {tmp_path}: {doctor.ANEW}"


def test_powershell_takes_a_quoted_word_for_a_text(monkeypatch):
    monkeypatch.setattr(doctor.sys, "executable", r"C:\Anna Maria\python.exe")
    monkeypatch.setattr(doctor.os, "name", "nt")
    assert doctor.pip_install() == r'& "C:\Anna Maria\python.exe" -m pip install'


def test_in_an_environment_of_condas_no_package_is_replaced_by_pips(monkeypatch, tmp_path):
    (tmp_path / "conda-meta").mkdir()
    monkeypatch.setattr(doctor.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(doctor.hosted, "installed", lambda _: False)
    (finding,) = doctor.packages()
    assert finding.remedy == doctor.anew() == "conda env update -f environment.yml"
    assert doctor.extra("grade") == 'python -m pip install -e ".[grade]"'
    monkeypatch.setattr(doctor.hosted, "installed", lambda _: True)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    (finding, *_) = doctor.torch_pair()
    assert finding.remedy.endswith(": conda env update -f environment.yml")


def test_where_windows_lacks_microsofts_runtime_its_name_is_told(monkeypatch):
    class Broken(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None):
            if name == "torch":
                raise OSError("[WinError 126] Das angegebene Modul wurde nicht gefunden")

    monkeypatch.setattr(doctor.os, "name", "nt")
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "torch")
    (finding,) = doctor.torch_pair()
    assert not finding.good and "VCRedist" in finding.remedy and "WinError 126" in finding.what


def test_a_course_on_a_drive_of_the_network_is_found_where_it_is(monkeypatch):
    told = Namespace(read_text=lambda _: '{"url": "file://uni/home/anna/int8-course"}')
    monkeypatch.setattr(importlib.metadata, "distributions", lambda **_: [told])
    (finding,) = doctor.place()
    assert finding.what.endswith("/uni/home/anna/int8-course")


def test_what_only_some_need_is_neither_good_nor_a_failure(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr("course.grading.machine.obstacle", lambda: "it needs Linux")
    monkeypatch.setattr(doctor, "CHECKS", [doctor.other_programs])
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert "[-- ] Chromium, to test slides and report: install it" in told
    assert "[-- ] bubblewrap, to grade: it needs Linux" in told


def test_an_old_version_is_as_good_as_none(monkeypatch):
    versions = {"torch": ["2.9.1"], "pandas": ["2.2"], "numpy": ["1.0"], "tqdm": []}
    found = lambda name: [Namespace(version=one) for one in versions[name]]  # noqa: E731
    monkeypatch.setattr(importlib.metadata, "distributions", found)
    assert not hosted.installed("torch>=2.10") and not hosted.installed("tqdm")
    assert hosted.installed("pandas>=2.2") and hosted.installed("numpy")
    versions["torch"] = ["2.15.0+cu132"]
    assert hosted.installed("torch>=2.10")


@pytest.mark.parametrize(
    ("module", "says"),
    [
        (torchvision, f" with torchvision {torchvision.__version__}"),
        (
            Namespace(__version__="0.1+other", ops=torchvision.ops),
            "0.1+other do not fit (they are of two builds)",
        ),
        (Namespace(__version__="0.1", ops=torchvision.ops), " with torchvision 0.1"),  # on ARM
        (
            Namespace(__version__="0.1", ops=Namespace()),
            "0.1 do not fit ('Namespace' object has no attribute 'nms')",
        ),
        (
            None,
            (
                f"torchvision {importlib.metadata.version('torchvision')} do not fit (import of"
                " torchvision halted"
            ),
        ),
    ],
)
def test_a_pair_from_two_places_or_without_operators_is_found(monkeypatch, module, says):
    monkeypatch.setitem(sys.modules, "torchvision", module)
    finding, *_ = doctor.torch_pair()
    assert (
        finding.good == ("do not fit" not in says)
        and says in finding.what
        and "TORCH_INDEX" in finding.remedy
    )
    (
        monkeypatch.setitem(sys.modules, "torch", None),
        monkeypatch.setitem(sys.modules, "helpers.data", None),
    )
    (finding,) = [*doctor.torch_pair(), *doctor.data_source()]
    assert not finding.good and "(import of torch halted" in finding.what


def test_the_copy_that_the_environment_names_is_found_and_a_folder_that_is_not_there_told(
    monkeypatch, tmp_path
):
    (tmp_path / "copy" / "data_batch_1").mkdir(parents=True)
    monkeypatch.setenv("CIFAR10_DIR", str(tmp_path / "copy"))
    assert [finding[:2] for finding in doctor.data_source()] == [
        (True, "CIFAR-10: local copy copy")
    ]
    monkeypatch.setenv("CIFAR10_DIR", str(tmp_path / "not" / "there"))
    monkeypatch.setattr(doctor.os, "access", lambda *_: True)  # as Windows says of every folder
    _, finding = doctor.data_source()
    assert (
        not finding.good
        and "there does not exist or cannot be written" in finding.what
        and "make it" in finding.remedy
    )


def test_help_tells_a_setting_to_its_end(capsys):
    with pytest.raises(SystemExit):
        main(["finetune", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "the rate falls to zero along a cosine (default: 0.1)" in told
    with pytest.raises(SystemExit):
        main(["quantize", "--help"])
    assert "see Recipe" not in capsys.readouterr().out
