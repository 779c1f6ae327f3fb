"""`python -m course evaluate`: what a saved network really reaches, and what its file states."""

import argparse

import torch

from course.commands import options
from course.reference.measuring import float_structure, in_integers
from helpers import metrics, models, training
from helpers.quantization import QuantizedModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    options.add_network(parser, count="*")
    threads = {"--threads": (options.positive, "CPU threads of the latency")}
    options.add(parser, {"--batch": ((options.positive, 1), "batch size of the latency")} | threads)


def run(arguments: argparse.Namespace) -> int:
    """Evaluate each file on the test images, and say what it reaches in a paragraph."""
    for checkpoint in arguments.checkpoint or [None]:
        model, dataset = options.opened(arguments, checkpoint, quantized=True)
        model, path = in_integers(model), checkpoint or arguments.weights
        stated = (
            (models.read_header(checkpoint)[1] if checkpoint else {})
            .get("metrics", {})
            .get("test_accuracy")
        )
        quantized = isinstance(model, QuantizedModel)
        structure = model
        if quantized:
            builder = models.read_header(checkpoint)[0].builder
            structure = float_structure(checkpoint, arguments.model if ":" in builder else None)
        result = training.evaluate(model, dataset.test_images, dataset.test_labels, progress=True)
        shape, (low, high) = dataset.test_images.shape[1:], result.interval
        images = torch.randn(arguments.batch, *shape)
        if not quantized:  # those bring their images into the faster format themselves
            form = metrics.use_faster_format(images, model)
            images = images.contiguous(memory_format=form)
        table = metrics.compare_latency({"": model}, images, arguments.threads)
        (speed,) = table.itertuples(index=False)
        steps = ", ".join(step["step"] for step in model.spec.steps) or "none"
        print(f"{path.name}: {model.spec.builder}, steps after building: {steps}")
        print(f"  test accuracy {result.accuracy:.2%} (95 % interval {low:.2%} to {high:.2%},")
        print(
            f"  {result.n:,} images); the file states"
            f" {'nothing' if stated is None else f'{stated:.2%}'}"
        )
        parameters = metrics.count_parameters(structure)
        macs = metrics.count_macs(structure, torch.zeros(1, *shape))
        print(f"  {parameters:,} parameters, {macs:,} multiply-adds, {path.stat().st_size:,} bytes")
        mode = f", computed in mode {model.mode!r}" if quantized else ""
        conditions = (
            f"batch {speed.batch} with {speed.threads} thread{'s' * (speed.threads > 1)}{mode}"
        )
        print(f"  {speed.median_ms:.1f} ms (IQR {speed.iqr_ms:.1f}) at {conditions}")
    return 0
