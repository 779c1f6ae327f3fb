"""What `quantization.py` and `speed.py` compare with: the int8 of ONNX Runtime, of OpenVINO's NNCF
and of PyTorch, each used as documented.

Every function takes the float network and uint8 calibration images and returns a function from
normalised float images to logits.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import CalibrationDataReader
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import nn

from course.lessons import onnx_float
from helpers import data
from helpers.dataset import input_of

Network = Callable[[torch.Tensor], torch.Tensor]
BATCH = 64
STRIDE = 2  # batches whose activations ONNX Runtime keeps at a time


class Reader(CalibrationDataReader):
    """Feeds calibration images to ONNX Runtime, a range of batches at a time."""

    def __init__(self, batches: Iterable[torch.Tensor], name: str) -> None:
        self.batches = [{name: part.numpy()} for part in batches]
        self.set_range(0, len(self.batches))

    def __len__(self) -> int:
        return len(self.batches)

    def set_range(self, start_index: int, end_index: int) -> None:
        self.waiting = iter(self.batches[start_index:end_index])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.waiting, None)


def export_float(model: nn.Module, path: Path) -> Path:
    """The float network as ONNX, prepared as ONNX Runtime asks for (shapes inferred, BatchNorm
    folded).
    """
    raw = path.with_suffix(".raw.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecation notes
        example = (torch.zeros(2, 3, 32, 32),)
        batch = ({0: torch.export.Dim("batch")},)
        torch.onnx.export(
            model,
            example,
            raw,
            dynamo=True,
            dynamic_shapes=batch,
            external_data=False,
            verbose=False,
        )
    quant_pre_process(raw, path)
    return path


def onnx_runtime_static(model: nn.Module, images: torch.Tensor, method: str, target: Path) -> Path:
    """ONNX Runtime's own static quantization: QDQ, per channel, uint8 activations, int8 weights."""
    with tempfile.TemporaryDirectory() as folder:
        source = export_float(model, Path(folder) / "float.onnx")
        name = (
            onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
            .get_inputs()[0]
            .name
        )
        kinds = {
            "activation_type": QuantType.QUInt8,
            "weight_type": QuantType.QInt8,
            "per_channel": True,
        }
        way = {
            "calibrate_method": CalibrationMethod[method],
            "extra_options": {"CalibStridedMinMax": STRIDE},
        }
        reader = Reader(input_of(None, images).split(BATCH), name)
        quantize_static(source, target, reader, quant_format=QuantFormat.QDQ, **kinds, **way)
    return target


def run_onnx(path: Path, threads: int = 0, exact: bool = True) -> Network:
    """A file in ONNX Runtime; `exact` as in `onnx_float.session`."""
    session = onnx_float.session(path, threads, exact)
    name = session.get_inputs()[0].name
    return lambda x: torch.from_numpy(session.run(None, {name: x.contiguous().numpy()})[0])


def nncf_static(model: nn.Module, images: torch.Tensor, target: Path) -> Path:
    """OpenVINO's own quantization (package nncf), with its defaults, of the float network as it
    reads it.
    """
    import nncf
    from openvino import Core, save_model

    with tempfile.TemporaryDirectory() as folder:
        source = Core().read_model(export_float(model, Path(folder) / "float.onnx"))
        batches = [part.numpy() for part in input_of(None, images).split(BATCH)]
        quantized = nncf.quantize(source, nncf.Dataset(batches), subset_size=len(batches))
        save_model(quantized, target, compress_to_fp16=False)
    return target


def run_openvino(path: Path, threads: int = 0, shape: Iterable[int] | None = None) -> Network:
    """A file in OpenVINO, made for inputs of this shape alone if there is one, as its guide advises
    for speed; 0 threads: as many as it chooses.
    """
    from openvino import Core

    model = Core().read_model(path)
    if shape is not None:
        model.reshape([*shape])

    # Left to itself, it computes float32 networks in bfloat16 where the processor can.
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = Core().compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda x: torch.from_numpy(request.infer([x.contiguous().numpy()])[0].copy())


def pytorch_fx(model: nn.Module, images: torch.Tensor) -> nn.Module:
    """PyTorch's FX graph mode int8 with the settings for x86."""
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # its deprecation notes
        torch.backends.quantized.engine = "x86"
        prepared = prepare_fx(
            model, get_default_qconfig_mapping("x86"), (torch.zeros(2, 3, 32, 32),)
        )
        for part in images.split(BATCH):
            prepared(data.normalize(part))
        return convert_fx(prepared)


def pytorch_pt2e(model: nn.Module, images: torch.Tensor) -> Network:
    """PyTorch's PT2E int8 (package torchao) as its reference network, which refuses to be told
    train or eval.
    """
    from torchao.quantization.pt2e import quantize_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        batch = ({0: torch.export.Dim("batch", min=2)},)
        exported = torch.export.export(
            model, (torch.zeros(2, 3, 32, 32),), dynamic_shapes=batch
        ).module()
        quantizer = x86.X86InductorQuantizer().set_global(
            x86.get_default_x86_inductor_quantization_config()
        )
        prepared = quantize_pt2e.prepare_pt2e(exported, quantizer)
        for part in images.split(BATCH):
            prepared(data.normalize(part))
        converted = quantize_pt2e.convert_pt2e(prepared)
    return lambda x: converted(x)
