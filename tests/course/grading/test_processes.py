import subprocess
import sys
import time
from pathlib import Path

from course.grading.machine import end, family, usage

PARENT = (
    "import subprocess, sys, time; x = b'1' * 30_000_000; subprocess.Popen(['sleep', '60']); print(1, flush=True); "
)


def test_a_family_is_counted_and_ended():
    words = [sys.executable, "-c", PARENT + "time.sleep(60)"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    members = family(process.pid)
    assert len(members) == 2 and members[0] == process.pid
    assert usage(process.pid).memory > 30_000_000
    assert usage(members[1]).memory < 30_000_000
    start = time.monotonic()
    end(process)
    assert time.monotonic() - start < 5
    # The child was killed, too; whoever adopts it may not have buried it yet.
    state = Path(f"/proc/{members[1]}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"
    assert not Path(f"/proc/{process.pid}").exists()


def test_the_work_of_children_counts_after_they_have_ended():
    child = "import time\nwhile time.process_time() < 0.5: pass"
    words = [
        sys.executable,
        "-c",
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])\ninput()",
    ]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while len(family(process.pid)) == 1:
        time.sleep(0.01)
    while len(family(process.pid)) == 2:
        time.sleep(0.01)
    assert 0.5 <= usage(process.pid).cpu_seconds < 5
    process.stdin.close()
    end(process)
