"""`python -m course quantize`: turn a saved network into int8 or fewer bits."""

import argparse
from dataclasses import fields, replace

from course.commands import options
from course.commands.train import saving
from helpers import models, training
from helpers.files import remove
from helpers.provenance import provenance
from helpers.quantization import QuantizationError, Recipe, mixed_recipe, qat, quantize, to_onnx
from helpers.quantization.plan import CHOICES

TOLD = {
    "observer": "how the range of an activation follows from the images",
    "weight_observer": "how the range of weights below 8 bits follows from the weights",
    "residual": "fused rounds once, after the sum; separate rounds the convolution first",
    "rounding": "how weights are rounded: to the nearest code, or as learned from the images",
}

SCAN_IMAGES = 256
HEADER_BYTES = 2048  # kept free for metrics and provenance, which the bits are chosen without


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    start = Recipe()
    options.add_network(parser)
    options.add_output(parser, "where to write the quantized network")
    settings = {
        "--weight-bits": (start.weight_bits, "2 to 8"),
        "--activation-bits": (start.activation_bits, "2 to 8"),
        "--per-tensor": (False, "one weight scale per layer instead of per channel"),
        "--equalize": (False, "equalise the ranges of channels across layers first"),
        "--bias-correction": (str, "take back the shift of the means", ("empirical",)),
        "--file-bytes": (int, "choose bits per layer for a file of at most this size"),
        "--qat-epochs": (0, "train on with rounding; resumable"),
        "--onnx": (options.writable, "also write an ONNX model with the same integers"),
        "--images": ((options.positive, 1024), options.IMAGES),
    }
    for name, told in TOLD.items():
        settings["--" + name.replace("_", "-")] = (getattr(start, name), told, CHOICES[name])
    options.add(parser, settings)
    parser.set_defaults(
        state=None, handover=None
    )  # of the training: the state lies beside the output


def run(arguments: argparse.Namespace) -> int:
    """Quantize, save, and say what it takes."""
    recipe = recipe_from(arguments)  # before anything is read or downloaded
    model, dataset = options.opened(arguments)
    split = dataset.split()
    images = split.train_images[: arguments.images]
    budget = arguments.file_bytes
    if budget is not None:
        try:
            recipe = mixed_recipe(model, images[:SCAN_IMAGES], budget - HEADER_BYTES, recipe)
        except QuantizationError as error:
            told = f"--file-bytes {budget}, of which {HEADER_BYTES} are kept for the header"
            raise QuantizationError(f"{told}: {error}") from error
    if arguments.qat_epochs:
        network, schedule = (
            qat.prepare(model, images, recipe),
            replace(
                qat.SHORT,
                epochs=arguments.qat_epochs,
                batch_size=training.batch_size_for(dataset),
            ),
        )
        with saving(arguments) as places:
            training.train(network, dataset, schedule, teacher=model, **places)
        quantized = network.convert()
    else:
        quantized = quantize(model, images, recipe)
    found = training.evaluate(quantized, split.validation_images, split.validation_labels)
    measured = {"validation_accuracy": found.accuracy, "validation_images": found.n}
    measured |= {"validation_interval": found.interval}
    path = models.save(
        quantized, arguments.output, metrics=measured, provenance=provenance(qat.SHORT.seed)
    )
    if arguments.qat_epochs:
        remove(arguments.state)  # the next one of this name may have other settings
    after = path.stat().st_size
    # A file of somebody's training may hold an optimizer's state beside the weights.
    weights = sum(tensor.nbytes for tensor in models.untied_state(model).values())
    before = arguments.checkpoint.stat().st_size if arguments.checkpoint else weights
    print(f"{before:,} -> {after:,} bytes ({after / before:.1%}); written to {path}")
    if quantized.float_layers:
        print(f"left in float: {', '.join(quantized.float_layers)}")
    if arguments.onnx:
        print(f"ONNX: written to {to_onnx(quantized, arguments.onnx)}")
    low, high = found.interval
    print(
        f"validation accuracy {found.accuracy:.2%} ({low:.2%} to {high:.2%}, {found.n:,} images,"
        f" {quantized.mode})"
    )
    if budget is not None and after > budget:
        raise QuantizationError(
            f"{path} has {after} bytes, more than --file-bytes {budget}: allow more, or shorten"
            " the command, which its header holds"
        )
    return 0


def recipe_from(arguments: argparse.Namespace) -> Recipe:
    """The recipe that the options describe."""
    if arguments.qat_epochs and (arguments.rounding == "learned" or arguments.bias_correction):
        raise QuantizationError(
            "training chooses codes and biases itself: leave --rounding and --bias-correction out"
        )
    if arguments.file_bytes is not None and arguments.file_bytes <= HEADER_BYTES:
        raise QuantizationError(
            f"--file-bytes {arguments.file_bytes}: the header takes {HEADER_BYTES}; give more"
        )
    chosen = {
        f.name: getattr(arguments, f.name) for f in fields(Recipe) if hasattr(arguments, f.name)
    }
    return Recipe(per_channel=not arguments.per_tensor, **chosen)
