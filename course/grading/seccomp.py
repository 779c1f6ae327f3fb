"""Forbid system calls with which a boxed process could get round its limits.

A new user namespace would bring back the right to mount memory disks of any size; memfd and System V shared
memory are counted by no process limit; ptrace and io_uring have no honest use in an assignment. The filter
is a small program for the kernel (classic BPF, see linux/seccomp.h) that holds for all children too.
Runs inside the box with the standard library alone.
"""

import ctypes
import errno
import platform
import struct

# Call numbers from the kernel's tables: (AUDIT_ARCH, clone, clone3, forbidden calls).
MACHINES = {
    "x86_64": (0xC000003E, 56, 435, {
        "ptrace": 101, "pivot_root": 155, "mount": 165, "umount2": 166, "add_key": 248, "request_key": 249,
        "keyctl": 250, "unshare": 272, "perf_event_open": 298, "setns": 308, "process_vm_readv": 310,
        "process_vm_writev": 311, "memfd_create": 319, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
        "open_tree": 428, "fsopen": 430, "fsmount": 432, "memfd_secret": 447, "shmget": 29,
    }),
    "aarch64": (0xC00000B7, 220, 435, {
        "ptrace": 117, "pivot_root": 41, "mount": 40, "umount2": 39, "add_key": 217, "request_key": 218,
        "keyctl": 219, "unshare": 97, "perf_event_open": 241, "setns": 268, "process_vm_readv": 270,
        "process_vm_writev": 271, "memfd_create": 279, "bpf": 280, "userfaultfd": 282, "io_uring_setup": 425,
        "open_tree": 428, "fsopen": 430, "fsmount": 432, "memfd_secret": 447, "shmget": 194,
    }),
}  # fmt: skip

CLONE_NEWUSER = 0x10000000
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def program(machine):
    """Return the filter as bytes: one (code, jump if true, jump if false, value) per instruction."""
    architecture, clone, clone3, forbidden = MACHINES[machine]
    deny = (RETURN, 0, 0, ERROR | errno.EPERM)
    steps = [(LOAD, 0, 0, ARCHITECTURE), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    steps += [(AT_LEAST, 0, 1, 0x40000000), deny]  # x86's second numbering of the same calls
    for number in forbidden.values():
        steps += [(EQUAL, 0, 1, number), deny]
    # clone3 hides its flags in memory, so it is declared missing; the C library then uses clone.
    steps += [(EQUAL, 0, 1, clone3), (RETURN, 0, 0, ERROR | errno.ENOSYS)]
    steps += [(EQUAL, 0, 3, clone), (LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 0, 1, CLONE_NEWUSER), deny]
    steps += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def install():
    """Put this process and all its children under the filter, for good."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(f"no list of system calls for {machine!r}; add one to {__name__}.py")
    code = program(machine)
    instructions = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((PR_SET_NO_NEW_PRIVS, 1), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER)):
        pointer = ctypes.c_char_p(header) if option == PR_SET_SECCOMP else ctypes.c_ulong(0)
        if libc.prctl(option, ctypes.c_ulong(value), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)):
            raise OSError(ctypes.get_errno(), "the kernel refuses the system call filter")
