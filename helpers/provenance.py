"""Where a number comes from: command, date, versions and machine, to stand in the number's row."""

import os
import platform
import re
import shlex
import subprocess
import sys
from datetime import date
from pathlib import Path

import torch
import torchvision


def provenance(seed: int | None = None) -> dict[str, str | int | None]:
    """Everything one needs to know to get the same number again."""
    return {
        "command": command(),
        "seed": seed,
        "date": date.today().isoformat(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "python": platform.python_version(),
        # A GPU only if something was computed on it.
        "device": torch.cuda.get_device_name() if torch.cuda.max_memory_allocated() else cpu_name(),
        "threads": torch.get_num_threads(),
    }


def command(whole: bool = False) -> str:
    """The shell command that started this process.

    Args:
        whole: keep whole paths, for this machine's owner only.
    """
    words = sys.argv[1:] if whole else [without_folder(word) for word in sys.argv[1:]]
    module = getattr(sys.modules["__main__"], "__spec__", None)
    if module is None:
        return joined([Path(sys.argv[0]).name, *words])
    return joined(["python", "-m", module.name.removesuffix(".__main__"), *words])


def joined(words: list[str]) -> str:
    """A command for the shells of this system; those of Windows keep apostrophes."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def without_folder(word: str) -> str:
    """A word of a command, a whole path in it shortened to the file's name."""
    start, path = re.fullmatch(r"(--[^=]*=|)(.*)", word, re.DOTALL).groups()
    return start + (Path(path).name if Path(path).is_absolute() else path)


def cpu_name() -> str:
    """The processor's name as the system tells it, with its vector instructions."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    model = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    name = model[1] if model else _told_on_a_mac() or platform.processor() or platform.machine()
    return f"{name} ({torch.backends.cpu.get_cpu_capability()})"


def _told_on_a_mac() -> str:
    """There every processor of Apple calls itself "arm"."""
    if sys.platform != "darwin":
        return ""
    words = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
