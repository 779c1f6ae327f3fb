"""The float network in ONNX Runtime: export it, and see what its own passes make of it."""

import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnxruntime
import torch
from torch import Tensor, nn

LEVELS = {"off": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "all": "ORT_ENABLE_ALL"}


def export(model: nn.Module, x: Tensor, path: Path) -> Path:
    """Write a float network as ONNX, BatchNorm and all, for inputs of x's shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's notes about its own future
        keep = torch.onnx.TrainingMode.PRESERVE  # else the exporter itself folds BatchNorm
        torch.onnx.export(
            model,
            (x,),
            path,
            dynamo=False,
            input_names=["x"],
            training=keep,
            do_constant_folding=False,
        )
    return path


def operators(path: Path, level: str) -> Counter[str]:
    """How often each operator runs after ONNX Runtime's passes: "off", "basic" (no kernel chosen
    yet), or "all".
    """
    with TemporaryDirectory() as folder:
        options = options_for(level)
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        nodes = onnx.load(options.optimized_model_filepath).graph.node
        return counted([node.op_type for node in nodes])


def counted(names: list[str]) -> Counter[str]:
    """How often each operator comes, without constants. Where ONNX Runtime has no layout of its
    own, as on ARM, a convolution with an activation is a FusedConv.
    """
    return Counter("Conv" if n == "FusedConv" else n for n in names if n != "Constant")


def session(path: Path, threads: int, exact: bool = False) -> onnxruntime.InferenceSession:
    """Open a file; `exact` keeps uint8 x int8 products from saturating on CPUs without VNNI."""
    options = options_for("all")
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.x64quantprecision", str(int(exact)))
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def options_for(level: str) -> onnxruntime.SessionOptions:
    """The settings of a level; ONNX Runtime's warning that the file fits only this processor is
    expected, and hidden.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
    return options
