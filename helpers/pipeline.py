"""The whole way in one call: dense, pruned, fine-tuned, quantized, with a row of numbers each."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import torch
from safetensors import SafetensorError
from torch import fx, nn

from helpers import metrics, models, pruning, quantization, training
from helpers.dataset import Dataset, set_default_normalization
from helpers.graphs.tracing import Graph
from helpers.provenance import cpu_name, provenance

CALIBRATION_IMAGES = 1024
LATENCY_BATCHES = (1, 128)
STAGES = ("dense", "pruned", "fine-tuned", "quantized")


@dataclass(frozen=True)
class Compressed:
    """What `compress` gives.

    Attributes:
        stages: the network of each stage, in order.
        table: a row for each stage.
        dead: the channels of each group that training had switched off.
        scope: where channels were removed, see `pruning.prune`.
    """

    stages: dict[str, nn.Module]
    table: pd.DataFrame
    dead: dict[str, list[int]]
    scope: str

    @property
    def model(self) -> nn.Module:
        """The network of the last stage."""
        return list(self.stages.values())[-1]


def compress(
    model: nn.Module,
    dataset: Dataset,
    prune_ratio: float = 0.5,
    finetune_epochs: int = 5,
    recipe: quantization.Recipe | None = None,
    scope: str = "hidden",
    folder: str | Path | None = None,
    seed: int = 0,
    latency_runs: int = 10,
    progress: bool = True,
) -> Compressed:
    """Prune, fine-tune with the dense network as teacher, quantize.

    The given network stays as it is; at most it notes how its images are normalised. Channels that
    training has switched off go first: they add nothing, and take up the range of an int8 scale.
    What can fail is tried on the pruned network before the long part, fine-tuning, begins. If
    something fails all the same, or is stopped, the error carries the finished networks as
    `stages`; with a `folder`, the same call later goes on.

    Args:
        model: a trained network in eval mode, with one score per class.
        dataset: fine-tuning and calibration see training images only; each row reads the test
            images once.
        finetune_epochs: 0 leaves the stage out.
        recipe: how to quantize; the defaults are 8 bits, per channel.
        scope: "hidden" or "all", see `pruning.prune`.
        folder: where each stage is written as soon as it is there, and fine-tuning keeps its
            resumable state; one with another network, or with this one and other settings, is
            refused before anything is written.
        latency_runs: timed passes per stage and batch size.
    """
    if (place := metrics.device_of(model)).type != "cpu":
        raise models.ModelError(f"the network is on {place}; this is done on the CPU: call .cpu()")
    stages = {"dense": as_saveable(model, dataset)}
    folder = folder and Path(folder)
    recipe = recipe or quantization.Recipe()
    calibration = dataset.split().train_images[:CALIBRATION_IMAGES]
    example = torch.zeros(1, *dataset.test_images.shape[1:])

    def finish(stage: str, network: nn.Module) -> None:
        stages[stage] = network
        if folder:
            models.save(network, folder / f"{stage}.safetensors")

    try:
        alive, dead = pruning.remove_dead_channels(stages["dense"], example)
        small = pruning.prune(alive, example, ratio=prune_ratio, scope=scope)
        rehearse(small, calibration[:2], recipe, latency_runs)
        if folder:
            refuse_another_run(folder, stages["dense"], small, finetune_epochs, recipe)
        finish("dense", stages["dense"])
        finish("pruned", small)
        network = small
        if finetune_epochs:
            chosen = {"epochs": finetune_epochs, "seed": seed}
            chosen["batch_size"] = training.batch_size_for(dataset)
            config = replace(training.FINETUNING, **chosen)
            network = copy.deepcopy(small)
            state = folder and folder / "finetuning.state"
            training.finetune(network, dataset, stages["dense"], config, state, progress)
            finish("fine-tuned", network)
        finish("quantized", quantization.quantize(network, calibration, recipe))
        table = compared(stages, dataset, example, latency_runs, progress)
    except BaseException as error:  # Ctrl-C too
        error.stages = stages
        raise
    # An earlier training may have used a GPU.
    origin = provenance(seed) | {"device": cpu_name()}
    return Compressed(stages, table.assign(**origin), dead, scope)


def rehearse(
    network: nn.Module, images: torch.Tensor, recipe: quantization.Recipe, latency_runs: int
) -> None:
    """Try out writing and quantizing the pruned network, and whether `latency_runs` are enough:
    what would fail after fine-tuning fails now.
    """
    metrics.file_bytes(network)
    metrics.file_bytes(quantization.quantize(network, images, replace(recipe, rounding="nearest")))
    # This refuses too few runs.
    metrics.compare_latency({"": nn.Identity()}, images, runs=latency_runs)


def refuse_another_run(
    folder: Path, dense: nn.Module, pruned: nn.Module, epochs: int, recipe: quantization.Recipe
) -> None:
    """Refuse a folder with files of another network, or of this one with other settings."""
    held = [stage for stage in STAGES if (folder / f"{stage}.safetensors").exists()]
    same = held == ["dense"] or "pruned" in held
    for stage, network in (("dense", dense), ("pruned", pruned)):
        if stage in held:
            path = folder / f"{stage}.safetensors"
            try:
                before = models.read_tensors(path)
            except SafetensorError as error:
                raise models.ModelError(
                    f"{path} is damaged ({error}): choose a new folder"
                ) from error
            now = models.untied_state(network)
            same &= before.keys() == now.keys() and all(torch.equal(now[n], before[n]) for n in now)
    if "quantized" in held:
        before, _ = models.read_header(folder / "quantized.safetensors")
        made_by = dict(*before.steps[-1:]).get("recipe")
        asked = recipe.as_dict().items()
        same &= made_by is not None and all(made_by.get(n, value) == value for n, value in asked)
        same &= bool(epochs) == ("fine-tuned" in held)
    if (held and not same) or (not epochs and "fine-tuned" in held):
        raise models.ModelError(
            f"{folder} holds another network, or this one with other settings: choose a new folder"
        )


def as_saveable(model: nn.Module, dataset: Dataset) -> nn.Module:
    """The network itself or, if it has no specification, a copy that can be saved.

    To load such a file takes a function that makes the module: `models.load(path, factory=...)`.
    """
    if isinstance(model, fx.GraphModule) and not isinstance(model, Graph):
        notes = vars(model).keys() & {"spec", "input_normalization"}
        twin = copy.deepcopy(model)  # which forgets its notes, as each copy of it would
        twin = Graph(twin, twin.graph, type(model).__name__)
        vars(twin).update({name: vars(model)[name] for name in notes})
        model = twin
    if not models.spec_of(model):
        original = copy.deepcopy(model).eval()
        model = copy.deepcopy(original)
        try:
            models.declare_builder(model, type(model))
        except (models.ModelError, AttributeError):  # the class alone makes another network
            name = models.name_of(type(model)) + models.AS_GIVEN
            spec = models.Spec(name, {}, make=lambda: copy.deepcopy(original))
            models.set_spec(model, spec)
    set_default_normalization(dataset, model)
    metrics.check_scores(model, dataset)
    return model


def compared(
    stages: dict[str, nn.Module],
    dataset: Dataset,
    example: torch.Tensor,
    runs: int,
    progress: bool,
) -> pd.DataFrame:
    """A row for each stage; the last one is quantized."""
    stages["quantized"].mode = "kernel"
    rows = [
        describe(stage, network, dataset, example, progress) for stage, network in stages.items()
    ]
    # The quantized network multiplies as often as the one it was made from, only in integers.
    rows[-1] |= {key: rows[-2][key] for key in ("params", "macs")}
    return pd.DataFrame(rows).merge(latencies(stages, example, runs), on="stage")


def describe(
    stage: str, network: nn.Module, dataset: Dataset, example: torch.Tensor, progress: bool
) -> dict:
    """Accuracy on the test images, and what the network costs wherever it runs."""
    result = training.evaluate(network, dataset.test_images, dataset.test_labels, progress=progress)
    row = {
        "stage": stage,
        "accuracy": result.accuracy,
        "low": result.interval[0],
        "high": result.interval[1],
        "test_images": result.n,
    }
    if isinstance(network, quantization.QuantizedModel):
        return row | {"file_bytes": metrics.file_bytes(network)}
    cost = metrics.profile(network, example)
    return row | {"params": cost.params, "macs": cost.macs, "file_bytes": cost.file_bytes}


def latencies(stages: dict[str, nn.Module], example: torch.Tensor, runs: int) -> pd.DataFrame:
    """Median and spread at each batch size, all stages in turn."""
    # Float networks in the layout that is faster for them, if all can take it.
    floats = {
        stage: copy.deepcopy(network)
        for stage, network in stages.items()
        if not isinstance(network, quantization.QuantizedModel)
    }
    form = metrics.use_faster_format(example, *floats.values())
    columns = [pd.Series(list(stages), name="stage")]
    for batch in LATENCY_BATCHES:
        x = torch.randn(batch, *example.shape[1:]).contiguous(memory_format=form)
        table = metrics.compare_latency(stages | floats, x, runs=runs, warmup=2)
        columns.append(table.median_ms.rename(f"batch{batch}_ms"))
        columns.append(table.iqr_ms.rename(f"batch{batch}_iqr_ms"))
    return pd.concat(columns, axis=1)
