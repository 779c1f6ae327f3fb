"""Export to ONNX in the QDQ form: our integers and our scales, between QuantizeLinear and
DequantizeLinear.

    codes -> DequantizeLinear -> Conv(DequantizeLinear(weight), DequantizeLinear(bias))
          -> QuantizeLinear -> codes

ONNX Runtime recognises such a group and replaces it by one int8 kernel (QLinearConv, QLinearAdd,
QGemm, ...). ReLU and ReLU6 need no node if the codes saturate at the same bounds. Other bounds
become a Max or a Min: those of a limit per channel (left by equalization), of codes of fewer than 8
bits, or of a scale shared with negative numbers. Operations without an integer form are written by
PyTorch's own exporter, all in one go.

Weights of 4 bits or fewer are stored as INT4 or INT2; a file with 2-bit weights needs ONNX Runtime
1.24.

A residual that is added before the one rounding (residual="fused") has no QDQ form. Such a
convolution is left to a kernel in float, which gives the same codes, but is slower than
residual="separate".

    writing.py   the content of the file
    graph.py     a node, or a few, for each operation
    floats.py    the operations that stayed in float
    widening.py  widths that ONNX Runtime computes fast
    check.py     the file is tried out before it is written
"""

from pathlib import Path

from helpers.files import write_atomically
from helpers.quantization.affine import QuantizationError
from helpers.quantization.model import QuantizedModel

BLOCK = 16  # channels that ONNX Runtime computes at a time


def to_onnx(model: QuantizedModel, path: str | Path, block: int = BLOCK) -> Path:
    """Write a quantized network as an ONNX file that takes normalised float32 images (N, C, H, W)
    and gives logits.

    Widths are rounded up to multiples of `block` where possible, with channels that only weights of
    0 read; a block of 1 leaves them as they are.

    Example:
        to_onnx(quantize(model, images, Recipe(residual="separate")), "int8.onnx")
    """
    if not isinstance(model, QuantizedModel):
        raise QuantizationError(
            f"to_onnx writes quantized networks, not a {type(model).__name__}: quantize it first"
        )
    if block < 1:
        raise QuantizationError(f"block={block}: it is 1 or more, and 1 leaves widths as they are")
    from helpers.quantization.onnx.writing import content_of  # most lessons write no ONNX

    return write_atomically(Path(path), content_of(model, block))
