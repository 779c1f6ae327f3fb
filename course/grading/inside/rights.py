"""What student code may not do: limits, and a filter of system calls, that it cannot take back."""

import ctypes
import errno
import os
import platform
import resource
import struct

# System calls with which a boxed process could get round its limits. A new user namespace would
# bring back the right to mount memory disks of any size; memfd, System V's memory and queues and
# full sockets are counted by no limit; a session of its own gets a share of the processors of its
# own; ptrace and io_uring have no honest use in an assignment. The filter is a small program for
# the kernel (classic BPF, see linux/seccomp.h), the numbers are the kernel's.
MACHINES = {
    "x86_64": 0xC000003E,
    "aarch64": 0xC00000B7,
}  # with AUDIT_ARCH; below, one number for each of these
CLONE, CLONE3, MMAP = (56, 220), (435, 435), (9, 222)
FORBIDDEN = {
    "ptrace": (101, 117),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "memfd_create": (319, 279),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "setsid": (112, 157),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "pidfd_getfd": (438, 438),
}

# With these an answer could have another program, in which nothing is taken away, compute for it.
EXECUTING = {"execve": (59, 221), "execveat": (322, 281)}

CLONE_NEWUSER = 0x10000000
SHARED_ANONYMOUS = 0x01 | 0x20  # such memory stays when no process counts it any more
LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
# Offsets in struct seccomp_data.
NUMBER, ARCHITECTURE, FIRST_ARGUMENT, FOURTH_ARGUMENT = 0, 4, 16, 40
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 4, 38, 22, 2


def call_filter(machine, calls=FORBIDDEN):
    """The filter as bytes: one (code, jump if true, jump if false, value) per instruction."""
    architecture, which = MACHINES[machine], list(MACHINES).index(machine)
    clone, clone3, mmap, *forbidden = (
        numbers[which] for numbers in (CLONE, CLONE3, MMAP, *calls.values())
    )
    deny = (RETURN, 0, 0, ERROR | errno.EPERM)
    steps = [
        (LOAD, 0, 0, ARCHITECTURE),
        (EQUAL, 1, 0, architecture),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    steps += [(AT_LEAST, 0, 1, 0x40000000), deny]  # x86's second numbering of the same calls
    for number in forbidden:
        steps += [(EQUAL, 0, 1, number), deny]
    # clone3 hides its flags in memory, so it is declared missing; the C library then uses clone.
    steps += [(EQUAL, 0, 1, clone3), (RETURN, 0, 0, ERROR | errno.ENOSYS)]
    steps += [(EQUAL, 0, 4, mmap), (LOAD, 0, 0, FOURTH_ARGUMENT), (AND, 0, 0, SHARED_ANONYMOUS)]
    steps += [(EQUAL, 0, 1, SHARED_ANONYMOUS), deny, (LOAD, 0, 0, NUMBER)]
    steps += [
        (EQUAL, 0, 3, clone),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (ANY_BIT, 0, 1, CLONE_NEWUSER),
        deny,
    ]
    steps += [(RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def forbid_calls(calls=FORBIDDEN):
    """Put this process and all its children under the filter, for good."""
    machine = platform.machine()
    if machine not in MACHINES:
        raise OSError(f"no list of system calls for {machine!r}; add one to inside/rights.py")
    code = call_filter(machine, calls)
    instructions = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((PR_SET_NO_NEW_PRIVS, 1), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER)):
        pointer = ctypes.c_char_p(header) if option == PR_SET_SECCOMP else ctypes.c_ulong(0)
        if libc.prctl(option, ctypes.c_ulong(value), pointer, ctypes.c_ulong(0), ctypes.c_ulong(0)):
            raise OSError(ctypes.get_errno(), "the kernel refuses the system call filter")


def give_up_rights(job):
    """Become nobody, then take limits that cannot be raised again."""
    # The grader is root: its own box cannot map users, so drop them here.
    if job["become"] is not None:
        os.setgroups([])
        os.setresgid(*[job["become"]] * 3)
        os.setresuid(*[job["become"]] * 3)
    for name, value in job["limits"].items():
        resource.setrlimit(getattr(resource, name), (value, value))
    if job["boxed"]:
        forbid_calls()


def hide_memory():
    """Keep the memory and the open files of this process from others of the same user."""
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, ctypes.c_ulong(0))
