"""What a training step takes on this machine, before hours depend on it.

    python -m course.benchmarks.step --batch-size 256 --teacher course.reference.teacher:resnet18

`queued_ms` is the time until a GPU has been told what to do, `step_ms` the time until it has done
it: if both are about equal, the host is the limit, and a larger batch or --compile helps. The loss
has to fall. `epoch_s` is an upper bound: all images, each of 32 pixels.
"""

import time

import pandas as pd
import torch
from torch import nn

from course.benchmarks.common import described
from course.commands.options import positive
from course.commands.train import device
from helpers import data, models
from helpers.passes import optimize
from helpers.training import Config
from helpers.training.loop import TrainingLoop

EPOCH = 45_000  # images
WARM_UP = 10  # steps, in which kernels are chosen and memory is found


def wait() -> None:
    """Until the GPU has done all that it was told."""
    if device().type == "cuda":
        torch.cuda.synchronize()


def measure(loop: TrainingLoop, steps: int) -> dict[str, float]:
    """Milliseconds of a step, seconds of an epoch, and the loss at the start and at the end."""
    generator = torch.Generator(device()).manual_seed(0)
    losses = []

    def run(count: int) -> None:
        for _ in range(count):
            images = (loop.batch_size,)
            chosen = torch.randint(
                len(loop.images), images, generator=generator, device=loop.device
            )
            losses.append(loop.step(0, len(losses), chosen, None, generator))

    started = time.perf_counter()
    run(WARM_UP)
    wait()
    warm = time.perf_counter()
    run(steps)
    queued = time.perf_counter()
    wait()
    done = time.perf_counter()
    step_s = (done - warm) / steps
    return {
        "batch": loop.batch_size,
        "first_s": warm - started,
        "queued_ms": 1e3 * (queued - warm) / steps,
        "step_ms": 1e3 * step_s,
        "epoch_s": step_s * EPOCH / loop.batch_size,
        "loss": float(losses[0]),
        "loss_after": float(losses[-1]),
    }


def network_loop(batch_size: int, muon: float, compiled: bool, teacher: nn.Module | None):
    """MobileNetV2 with random weights, and everything that a long training switches on."""
    torch.manual_seed(0)
    config = Config(
        epochs=10**6,
        batch_size=batch_size,
        lr=0.1,
        muon=muon,
        warmup=0.0,
        autoaugment=True,
        cutout=16,
        distill=0.7 if teacher else 0.0,
        compile=compiled,
    )
    split = data.load_cifar10("sample").split()
    loop = TrainingLoop(models.mobilenet_v2().to(device()), split, config, teacher)
    loop.model.train()
    return loop


def main() -> None:
    """One row for each batch size, as it is and compiled, alone and with a teacher."""
    parser = described(__doc__)
    parser.add_argument("--batch-size", type=positive, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--steps", type=positive, default=40)
    parser.add_argument(
        "--muon", type=float, default=0.0, help="its peak rate (default: SGD alone)"
    )
    parser.add_argument("--compile", action="store_true", help="also with torch.compile")
    parser.add_argument("--teacher", help="a builder's name; random weights take as long")
    arguments = parser.parse_args()
    teachers: list[nn.Module | None] = [None]
    if arguments.teacher:
        teacher = models.build(arguments.teacher, num_classes=10).eval()
        folded, _ = optimize(teacher, torch.randn(2, 3, 32, 32), level="inference")
        teachers.append(folded.to(device()))
    rows = []
    for teacher in teachers:
        for compiled in (False, True)[: 1 + arguments.compile]:
            for size in arguments.batch_size:
                loop = network_loop(size, arguments.muon, compiled, teacher)
                row = {"teacher": arguments.teacher if teacher else "", "compiled": compiled}
                rows.append(row | measure(loop, arguments.steps))
    with pd.option_context("display.width", 200, "display.max_columns", 20):
        print(pd.DataFrame(rows).round(2).to_string(index=False))


if __name__ == "__main__":
    main()
