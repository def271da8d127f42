"""Compiles kernels/ to kernels/ptx with the NVRTC library in the given folder (see build-ptx.sh)."""

import ctypes
import pathlib
import re
import sys

KERNELS = pathlib.Path("kernels")
PTX = KERNELS / "ptx"
OPTIONS = ["--gpu-architecture=compute_80", "--std=c++17", "--fmad=false", "--include-path=kernels"]


def source_hash():
    """FNV-1a over the names and contents of all sources, in the order of names; build.rs agrees."""
    digest = 0xCBF29CE484222325
    for path in sorted(KERNELS.iterdir(), key=lambda path: path.name):
        if path.suffix in (".cu", ".cuh", ".inc"):
            for byte in path.name.encode() + b"\0" + path.read_bytes() + b"\0":
                digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return f"{digest:016x}"


def modules():
    """Name and source text of every module."""
    yield "gather", '#include "gather.cu"\n'
    for line in (KERNELS / "summaries.inc").read_text().splitlines():
        if match := re.match(r"SUMMARY\w*\((\w+)", line):
            yield f"summary_{match[1]}", f'#include "summary.cuh"\n{line}\n'


class Nvrtc:
    """The few calls of NVRTC that a compilation takes."""

    def __init__(self, folder):
        # The compiler looks for this one by a name that is not on any search path.
        for path in folder.glob("libnvrtc-builtins.so*"):
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(next(folder.glob("libnvrtc.so*"))))

    def text(self, program, what):
        size = ctypes.c_size_t()
        getattr(self.library, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(self.library, f"nvrtcGet{what}")(program, buffer)
        return buffer.value.decode()

    def compile(self, name, source):
        program = ctypes.c_void_p()
        file = f"{name}.module.cu".encode()
        if self.library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), file, 0, None, None):
            sys.exit(f"{name}: NVRTC takes no program")
        options = (ctypes.c_char_p * len(OPTIONS))(*(option.encode() for option in OPTIONS))
        failed = self.library.nvrtcCompileProgram(program, len(options), options)
        if log := self.text(program, "ProgramLog").strip():
            print(log, file=sys.stderr)
        if failed:
            sys.exit(f"{name}: does not compile")
        return self.text(program, "PTX")


def main():
    folder, check = pathlib.Path(sys.argv[1]), "--check" in sys.argv[2:]
    nvrtc = Nvrtc(folder.resolve())
    head = f"// Built by scripts/build-ptx.sh; do not edit.\n// source-fnv1a: {source_hash()}\n"
    stale = []
    PTX.mkdir(exist_ok=True)
    for name, source in modules():
        path = PTX / f"{name}.ptx"
        ptx = head + nvrtc.compile(name, source)
        if check:
            if not path.exists() or path.read_text() != ptx:
                stale.append(str(path))
        else:
            path.write_text(ptx)
            print(path, len(ptx))
    if stale:
        sys.exit("not what the sources give: " + ", ".join(stale) + "; run scripts/build-ptx.sh")


main()
