"""slicepool.h in the form that cffi reads: preprocessed by a C compiler, without what it includes."""

import os
import pathlib
import re
import shlex
import subprocess
import tempfile


def _preprocess(*options):
    compiler = shlex.split(os.environ.get("CC", "cc"))
    where = ["-I", os.environ["SLICEPOOL_INCLUDE"]] if "SLICEPOOL_INCLUDE" in os.environ else []
    with tempfile.TemporaryDirectory() as folder:
        # cffi knows the types of the standard headers, but not what compilers write into them: empty ones come first.
        for name in ("stddef.h", "stdint.h"):
            pathlib.Path(folder, name).touch()
        command = [*compiler, "-E", *options, "-I", folder, *where, "-x", "c", "-"]
        text = subprocess.run(command, input="#include <slicepool.h>\n", stdout=subprocess.PIPE, text=True, check=True)
    return text.stdout


def declarations():
    """Types and functions, for FFI.cdef()."""
    return _preprocess("-P")


def constants():
    """Names and values of the constants, without SLICEPOOL_."""
    found = re.findall(r"^#define SLICEPOOL_(\w+) \(?(-?\d+)\)?$", _preprocess("-dM"), re.MULTILINE)
    return {name: int(value) for name, value in found}
