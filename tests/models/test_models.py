import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from helpers import metrics, models, passes, pruning, quantization
from helpers.models import ModelError
from tests.cifar_fixtures import Boom
from tests.passes.zoo import Net


def small():
    torch.manual_seed(0)
    return models.mobilenet_v2(width_mult=0.25).eval()


@pytest.mark.parametrize(
    "model", [small(), models.build("squeezenet1_1", num_classes=7), models.tiny().half()]
)
def test_saved_and_loaded_gives_the_same_answers(model, tmp_path):
    x = torch.randn(2, 3, 64, 64).to(next(model.parameters()).dtype)
    path = models.save(model.eval(), tmp_path / "new" / "m.safetensors", metrics={"accuracy": 0.5})
    loaded = models.load(path)
    assert torch.equal(model(x), loaded(x))
    assert not loaded.training
    assert loaded.spec == model.spec
    assert models.read_header(path)[1] == {"metrics": {"accuracy": 0.5}}
    assert [p.name for p in path.parent.iterdir()] == ["m.safetensors"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.build("os.system"), "unknown builder 'os.system'"),
        (lambda: models.build("resnet18", nonsense=1), "does not take"),
        (lambda: models.build("resnet18", weights="DEFAULT"), "not from a builder's download"),
        (lambda: models.save(nn.Linear(2, 2), "never.safetensors"), "carries no specification"),
        (lambda: models.resize(small(), {"features.99": {"out_channels": 4}}), r"features\.99"),
        (
            lambda: models.resize(small(), {"features.0.0": {"forward": 4}}),
            "no size called 'forward'",
        ),
        (lambda: models.pretrained("nonsense"), "no checkpoint 'nonsense'"),
        (lambda: models.load("nowhere.safetensors"), "does not exist"),
        (
            lambda: models.build("no.such:make"),
            "'no.such:make' cannot be imported .*No module named 'no'",
        ),
        (lambda: models.build(f"{__name__}:made"), "cannot be imported .*has no attribute 'made'"),
        (lambda: models.build("helpers.models:name_of", classes=7), "does not take"),
        (lambda: models.build("builtins:dict", classes=7), "gave dict, expected a torch.nn.Module"),
        (lambda: models.build("resnet", classes=7), "package.module:function"),
        (
            lambda: models.declare_builder(make(classes=5), FACTORY),
            r"Net does not fit what .*bias is .*\(5,\), .*\(7,\); head",
        ),
        (
            lambda: models.declare_builder(
                models.build("tiny").apply(lambda m: setattr(m, "eps", 9)), "tiny"
            ),
            r"stem.1.eps is 9, and 1e-05 in what 'tiny' makes",
        ),
    ],
)
def test_wrong_requests_are_named_in_one_line(call, message):
    with pytest.raises(ModelError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("classifier.1.bias"), r"missing classifier\.1\.bias"),
        (lambda t: t.update(extra=torch.zeros(1)), "unexpected extra"),
        (
            lambda t: t.update({"classifier.1.bias": torch.zeros(3)}),
            r"bias is .*\(3,\), expected .*\(10,\)",
        ),
        (lambda t: t.update({"classifier.1.bias": torch.zeros(10).half()}), "float16"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, message, tmp_path):
    path = models.save(small(), tmp_path / "m.safetensors")
    with safe_open(path, "pt") as file:
        header, tensors = file.metadata(), load_file(path)
    change(tensors)
    save_file(tensors, path, header)
    with pytest.raises(ModelError, match=message):
        models.load(path)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells")
def test_a_file_that_was_refused_is_not_held_by_its_error(tmp_path):
    """As Windows neither replaces nor deletes a file that is mapped into memory."""
    tensors, path = small().state_dict(), tmp_path / "m.safetensors"
    del tensors["classifier.1.bias"]
    save_file(tensors, path)
    with pytest.raises(ModelError) as refused:
        models.load_weights(small(), path)
    assert refused.traceback and str(path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("scale", [0.0, math.nan])
def test_a_quantized_file_with_scales_that_none_has_is_damaged(scale, tmp_path):
    model = quantization.quantize(models.tiny().eval(), torch.randn(8, 3, 32, 32))
    path = models.save(model, tmp_path / "q.safetensors")
    with safe_open(path, "pt") as file:
        header, tensors = file.metadata(), load_file(path)
    for name in tensors:
        if name.endswith("out_scale"):
            tensors[name] = torch.full_like(tensors[name], scale)
    save_file(tensors, path, header)
    with pytest.raises(ModelError, match=r"q\.safetensors is damaged: "):
        models.load(path)


FACTORY = f"{__name__}:make"
Conv3x3 = type(
    "Conv3x3",
    (nn.Conv2d,),
    {"__init__": lambda self, *widths: nn.Conv2d.__init__(self, *widths, 3)},
)


def make(classes=7, channels=3):
    """A network of one's own, which no builder of the course knows."""

    def forward(net, x):
        return net.head(net.norm(net.conv(x - net.shift)).relu().mean((2, 3)))

    parts = {"conv": Conv3x3(channels, 8), "norm": nn.BatchNorm2d(8), "head": nn.Linear(8, classes)}
    return Net(forward, shift=torch.zeros(1), **parts)


def test_a_network_of_a_factory_comes_back_when_its_name_is_given_again(tmp_path):
    model, x = (
        models.declare_builder(make(classes=5).eval(), FACTORY, classes=5),
        torch.randn(2, 3, 9, 9),
    )
    small = pruning.prune(model, x, ratio=0.5, scope="all")
    folded, _ = passes.optimize(small, x)
    model.shift.fill_(0.5)  # in a fresh network, in which x - shift is x
    folded_too, quantized = (
        passes.optimize(model, x)[0],
        quantization.quantize(model, torch.randn(16, 3, 9, 9)),
    )
    for network in (model, small, folded, folded_too, quantized):
        path = models.save(network, tmp_path / "own.safetensors")
        assert torch.equal(models.load(path, factory=FACTORY)(x), network(x))
        again = models.load(path, factory=make)
        assert (
            torch.equal(again(x), network(x)) and metrics.file_bytes(again) == path.stat().st_size
        )
    assert (
        models.resize(make().double(), {"conv": {"out_channels": 4}}).conv.weight.dtype
        == torch.float64
    )


class Maker:
    """Makes networks by a method."""

    @classmethod
    def make(cls):
        return nn.Linear(2, 3)


class OfAList(nn.Module):
    """Takes a list of tensors."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, images):
        return self.conv(images[0]) + images[1]


def test_a_method_makes_networks_and_a_network_may_take_a_list(tmp_path):
    path = models.save(models.build(Maker.make), tmp_path / "method.safetensors")
    assert isinstance(models.load(path, factory=f"{__name__}:Maker.make"), nn.Linear)
    images = [torch.randn(1, 3, 4, 4), torch.randn(1, 4, 4, 4)]
    folded, _ = passes.optimize(models.build(OfAList).eval(), (images,))
    path = models.save(folded, tmp_path / "list.safetensors")
    assert torch.equal(models.load(path, factory=OfAList)(images), folded(images))


def test_a_file_that_names_code_runs_nothing(tmp_path, capsys):
    path, code, told = (
        tmp_path / "hostile.safetensors",
        "builtins:print",
        "runs only if you name it too",
    )
    for builder, factory, why in (
        (code, None, told),
        (code, FACTORY, "'builtins:print', not"),
        ("no:m", None, told),
    ):
        spec = {"builder": builder, "arguments": {"end": "the file ran\n"}, "steps": []}
        save_file({"a": torch.zeros(1)}, path, {"spec": json.dumps(spec)})
        with pytest.raises(ModelError, match=why):
            models.load(path, factory=factory)
    assert "the file ran" not in capsys.readouterr().out


def test_weights_come_from_a_state_dict_of_either_kind(tmp_path, capsys):
    own, path = make().state_dict(), tmp_path / "weights.pt"
    parallel = {f"module.{name}": tensor for name, tensor in own.items()}
    states = [
        own,
        parallel,
        {"state_dict": own},
        {"epoch": 3, "model": own},
        {f"_orig_mod.{name}": tensor for name, tensor in own.items()},
        {"state_dict": {f"model.{name}": tensor for name, tensor in own.items()}},
        {f"module._orig_mod.{name}": tensor for name, tensor in own.items()},
        {f"_orig_mod.module.{name}": tensor for name, tensor in own.items()},
        {"state_dict": {f"model._orig_mod.{name}": tensor for name, tensor in own.items()}},
        {"state_dict": parallel},
    ]
    for write, stored in ((save_file, own), *((torch.save, state) for state in states)):
        write(stored, path)
        found = models.load_weights(make(), path).state_dict()
        assert all(torch.equal(tensor, found[name]) for name, tensor in own.items())
    norms = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    counted = norms.state_dict()
    uncounted = {name: part + 1 for name, part in counted.items() if "tracked" not in name}
    torch.save(uncounted, tmp_path / "old.pt")  # as of other frameworks
    models.load_weights(norms, tmp_path / "old.pt")
    assert torch.equal(norms[1].running_mean, torch.ones(2)) and norms[1].num_batches_tracked == 0
    torch.save(nn.Sequential(norms[1], nn.ReLU(), norms[1]).state_dict(), tmp_path / "two.pt")
    twice = nn.BatchNorm2d(2)
    models.load_weights(nn.Sequential(twice, nn.ReLU(), twice), tmp_path / "two.pt")
    assert torch.equal(twice.running_mean, torch.ones(2))
    models.load_weights(nn.DataParallel(make()), path)  # whose own names begin with module.
    with pytest.raises(
        ModelError,
        match=r"weights.pt does not fit Net: conv.weight is .*; missing head.bias; missing",
    ):
        save_file({"conv.weight": torch.zeros(8, 1, 3, 3)}, path)
        models.load_weights(make(), path)
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    tied[1].weight = tied[0].weight
    for names in (
        ("0.weight",),
        ("1.weight",),
        ("0.weight", "1.weight"),
    ):  # either name is enough, and so are both
        torch.save(dict.fromkeys(names, weight := torch.rand(4, 4)), path)
        assert torch.equal(models.load_weights(tied, path)[1].weight, weight)
    numbered, told = {0: torch.zeros(1)}, "holds no state dict"
    for wrong in (Boom(), [1], {}, {"a": 1}, numbered):
        torch.save(wrong, path)
        with pytest.raises(ModelError, match="unexpected 0" if wrong is numbered else told):
            models.load_weights(make(), path)
    for text in (b"hello", b"", b"\xff" * 100):
        path.write_bytes(text)
        with pytest.raises(ModelError, match="holds no state dict"):
            models.load_weights(make(), path)
    with pytest.raises(ModelError, match="does not exist"):
        models.load_weights(make(), tmp_path / "nowhere.pt")
    assert "the pickle ran" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"not a network", b"\xff" * 100, None])
def test_files_of_other_kinds_and_truncated_ones_are_refused(content, tmp_path):
    path = models.save(small(), tmp_path / "x.safetensors")
    path.write_bytes(path.read_bytes()[:-100] if content is None else content)
    with pytest.raises(ModelError, match=r"x\.safetensors is not a network"):
        models.load(path)
