"""The binding of the compiled kernels: its declarations, its checks of arguments, and what it does with the GIL."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exchangeable import native
from exchangeable.native import _native

SOURCES = Path(__file__).parent.parent / "src" / "exchangeable" / "native"
INCLUDE = Path(sysconfig.get_path("include"))
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
KERNELS: dict[str, Any] = {name: each for name, each in vars(_native).items() if callable(each)}

accumulate: Any = native.accumulate  # the tests below give it what its types forbid


# ------------------------------------------------------------------ our declarations and Python's

needs_headers = pytest.mark.skipif(not (INCLUDE / "Python.h").exists(), reason="Python's headers are not installed")
OURS = (SOURCES / "stable_abi.h").read_text().partition("#else")[2].rpartition("#endif")[0].rpartition("#endif")[0]
FUNCTIONS = re.findall(r"^IMPORTED (?!extern).*;", OURS, re.MULTILINE)
VARIABLES = re.findall(r"^IMPORTED extern .*;", OURS, re.MULTILINE)
STRUCTS = {  # name: fields
    name: re.findall(r"(\w+)(?:\)\([^;]*\))?;", fields)
    for fields, name in re.findall(r"^typedef struct \w* ?\{\n(.*?)^\} (\w+);", OURS, re.MULTILINE | re.DOTALL)
}
CONSTANTS = re.findall(r"^#define ((?:Py_mod|METH|PyBUF)_\w+) ", OURS, re.MULTILINE)


def compile_(compiler: str, folder: Path, source: str, *flags: str) -> None:
    path = folder / "source.c"
    path.write_text(source)
    command = [compiler, "-std=c17", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}", f"-I{SOURCES}", *flags]
    done = subprocess.run(
        [*command, "-c", str(path), "-o", str(folder / "source.o")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_parts_of_the_header_are_found() -> None:
    assert len(FUNCTIONS) >= 20
    assert len(VARIABLES) >= 3
    assert len(CONSTANTS) >= 6
    assert STRUCTS.keys() >= {"PyObject", "PyMethodDef", "PyModuleDef_Slot", "PyModuleDef", "Py_buffer"}
    assert STRUCTS["PyModuleDef_Base"] == ["ob_base", "m_init", "m_index", "m_copy"]


@needs_headers
@pytest.mark.parametrize("compiler", COMPILERS)
def test_the_binding_compiles_with_the_limited_api_of_python(compiler: str, tmp_path: Path) -> None:
    compile_(compiler, tmp_path, '#include "binding.c"\n', "-DUSE_PYTHON_H")


@needs_headers
@pytest.mark.parametrize("compiler", COMPILERS)
def test_functions_and_variables_are_declared_as_in_python(compiler: str, tmp_path: Path) -> None:
    """A second declaration of another type is an error in C."""
    macros = [f"#undef {name}" for name in re.findall(r"\b(\w+)\(", "\n".join(FUNCTIONS))]
    head = "\n".join(["#define Py_LIMITED_API 0x030B0000", "#include <Python.h>", "#define IMPORTED", *macros, ""])
    compile_(compiler, tmp_path, head + "\n".join([*FUNCTIONS, *VARIABLES]))
    with pytest.raises(AssertionError, match="conflicting types"):
        compile_(compiler, tmp_path, head + FUNCTIONS[0].replace("(", "(int, "))


@needs_headers
@pytest.mark.parametrize("compiler", COMPILERS)
def test_structs_and_constants_are_as_in_python(compiler: str, tmp_path: Path) -> None:
    renamed = re.sub(r"\b(?=(?:Py|_Py|METH_|_object|_ts|_typeobject|IMPORTED))", "our_", OURS)
    lines = ["#define Py_LIMITED_API 0x030B0000", "#include <Python.h>", renamed]
    for name, fields in STRUCTS.items():
        lines.append(f'_Static_assert(sizeof({name}) == sizeof(our_{name}), "size of {name}");')
        for field in fields:
            where = f"offsetof({name}, {field}) == offsetof(our_{name}, {field})"
            lines.append(f'_Static_assert({where}, "{name}.{field}");')
    lines += [f'_Static_assert({name} == our_{name}, "{name}");' for name in CONSTANTS]
    compile_(compiler, tmp_path, "\n".join(lines))
    wrong = "\n".join(lines).replace("int readonly;", "Py_ssize_t readonly;", 1)
    with pytest.raises(AssertionError, match="Py_buffer"):
        compile_(compiler, tmp_path, wrong)


@pytest.mark.skipif(not shutil.which("nm") or sys.platform != "linux", reason="nm lists the symbols of ELF files")
def test_the_library_exports_its_entry_alone_and_needs_the_declared_names_only() -> None:
    def symbols(which: str) -> set[str]:
        listed = subprocess.run(["nm", "-D", which, str(_native.__file__)], capture_output=True, text=True, check=True)
        return {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}

    assert symbols("--defined-only") - {"_init", "_fini"} == {"PyInit__native"}
    declared = set(re.findall(r"\b_?Py\w+", "\n".join([*FUNCTIONS, *VARIABLES])))
    assert {name for name in symbols("--undefined-only") if "Py" in name} <= declared


# ------------------------------------------------------------------ arguments


def test_arrays_and_single_steps_give_the_same_numbers() -> None:
    terms = np.random.default_rng(0).normal(size=100) * 10.0 ** np.arange(-50, 50)
    whole, single, out = np.zeros(2), np.zeros(2), np.empty(100)
    assert accumulate(whole, terms, out) is None
    assert [accumulate(single, float(term), None) for term in terms] == out.tolist()
    assert whole.tolist() == single.tolist()


@pytest.mark.parametrize(
    "kind", [float, np.float64, lambda x: np.array(x), lambda x: np.array([x]), lambda x: array("d", [x])]
)
def test_one_term_may_be_a_float_or_an_array_of_one(kind: Any) -> None:
    assert accumulate(np.array([1.0, 0.0]), kind(0.5), None) == 1.5


@pytest.mark.parametrize(
    "state",
    [
        [0.0, 0.0],
        None,
        "ab",
        b"12345678abcdefgh",
        np.zeros(2, np.float32),
        np.zeros(2, np.int64),
        np.zeros(2, np.complex128),
        np.zeros(2, object),
        np.zeros(2, ">f8" if sys.byteorder == "little" else "<f8"),
        np.zeros(4)[::2],
        np.zeros((2, 2))[:, 0],
        np.zeros((1, 1, 1, 2)),
        np.frombuffer(bytes(16)),
        np.frombuffer(bytearray(17), np.float64, 2, 1),
        np.zeros(2, [("x", "f8")]),
    ],
    ids=lambda state: f"{type(state).__name__} {getattr(state, 'dtype', '')}",
)
def test_other_arguments_than_fitting_arrays_are_refused(state: Any) -> None:
    law = "argument 1 of accumulate must be a writable contiguous float64 array of at most 3 dimensions"
    with pytest.raises(TypeError, match=law):
        accumulate(state, np.ones(3), np.empty(3))


def test_an_array_that_is_only_read_may_be_read_only() -> None:
    out = np.empty(2)
    accumulate(np.zeros(2), np.frombuffer(np.ones(2).tobytes()), out)
    assert out.tolist() == [1.0, 2.0]
    with pytest.raises(TypeError, match="argument 3 of accumulate must be a writable contiguous float64 array"):
        accumulate(np.zeros(2), np.ones(2), np.frombuffer(bytes(16)))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((np.zeros(3), np.ones(3), np.empty(3)), "accumulate: state must hold total and carry"),
        ((np.zeros(0), np.ones(3), np.empty(3)), "accumulate: state must hold total and carry"),
        ((np.zeros(2), np.ones(3), np.empty(2)), "accumulate: out must be as long as terms"),
        ((np.zeros(2), np.ones(3), None), "accumulate: out must be as long as terms"),
        ((np.zeros(2), 1.0, np.empty(2)), "accumulate: out must be as long as terms"),
    ],
)
def test_lengths_that_do_not_fit_are_refused_before_anything_is_written(arguments: Any, sentence: str) -> None:
    before = [np.array(each, float).tobytes() for each in arguments]
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        accumulate(*arguments)
    assert [np.array(each, float).tobytes() for each in arguments] == before


@pytest.mark.parametrize("count", [0, 1, 2, 4, 100])
def test_the_number_of_arguments_is_checked(count: int) -> None:
    with pytest.raises(TypeError, match=f"^accumulate takes 3 arguments, got {count}$"):
        accumulate(*[np.zeros(2)] * count)


def test_keywords_are_refused() -> None:
    with pytest.raises(TypeError, match="keyword"):
        accumulate(np.zeros(2), np.ones(3), out=np.empty(3))


def test_empty_arrays_are_fine() -> None:
    state = np.array([1.0, 2.0])
    accumulate(state, np.empty(0), np.empty(0))
    assert state.tolist() == [1.0, 2.0]


def test_buffers_are_released_also_after_errors() -> None:
    """While a buffer is taken, an ``array`` cannot grow."""
    fine: list[Any] = [array("d", [0.0, 0.0]), array("d", [1.0]), array("d", [0.0])]
    odd = [array("d", [0.0] * 5), array("f", [0.0]), "text", None, memoryview(array("d", [1.0, 2.0]))[::2]]
    for at in range(3):
        for wrong in odd:
            given = [*fine[:at], wrong, *fine[at + 1 :]]
            try:
                accumulate(*given)
            except (TypeError, ValueError):
                pass
            else:
                assert at == 2 or wrong is odd[-1]  # None, or one number that stands alone
            for each in given:
                if isinstance(each, array):
                    each.append(1.0)
                    each.pop()


def test_no_references_are_lost_or_kept() -> None:
    state, terms, out, bad = np.zeros(2), np.ones(3), np.empty(3), np.empty(2)
    watched = [state, terms, out, bad, np.empty, None]
    before = [sys.getrefcount(each) for each in watched]
    for _ in range(1000):
        accumulate(state, terms, out)
        accumulate(state, 0.5, None)
        for wrong in (bad, np.empty):
            try:
                accumulate(state, terms, wrong)
            except (TypeError, ValueError):
                continue
    after = [sys.getrefcount(each) for each in watched]
    assert all(abs(a - b) < 100 for a, b in zip(after, before, strict=True))


# ------------------------------------------------------------------ threads


@pytest.fixture
def no_forced_switches() -> Iterator[None]:
    """A thread keeps the interpreter's lock until it gives it back by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("no_forced_switches")
def test_a_kernel_runs_without_the_interpreters_lock() -> None:
    beats, done = 0, threading.Event()

    def heart() -> None:
        nonlocal beats
        while not done.is_set():
            beats += 1
            time.sleep(0.0005)

    def beaten(call: Any) -> int:
        """How often the heart beats within a call."""
        before = beats
        call()
        return beats - before

    thread = threading.Thread(target=heart)
    thread.start()
    try:
        terms = np.ones(4_000_000)
        assert any(beaten(lambda: accumulate(np.zeros(2), terms, terms)) for _ in range(100))
        assert not any(beaten(lambda: sum(range(200_000))) for _ in range(5))  # which keeps the lock
    finally:
        done.set()
        thread.join()


def test_threads_do_not_disturb_one_another() -> None:
    terms = np.random.default_rng(1).normal(size=20_000)
    expected = np.empty(len(terms))
    accumulate(np.zeros(2), terms, expected)
    found = [np.empty(len(terms)) for _ in range(8)]
    threads = [
        threading.Thread(target=lambda out: [accumulate(np.zeros(2), terms, out) for _ in range(50)], args=(out,))
        for out in found
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(out, expected) for out in found)


# ------------------------------------------------------------------ all kernels

SHAPES = """
import sys
import numpy as np
from exchangeable.native import _native

DTYPES = dict(d="f8", s="f4", q="i8", l="i4", w="u4", u="u8", b="?", c="i1", p="f8", o="f8", g="f4")

def argument(letter):
    if letter in "fnk":
        return float(random.random()) if letter == "f" else int(random.integers(0 if letter == "k" else -2, 6))
    shape = tuple(random.choice([0, 1, 2, 3, 8], random.integers(1, 4)))
    if letter == "g":
        shape = (3, 2)
    if letter in "po" and random.random() < 0.5:
        return 0.5 if letter == "p" else None
    return np.ones(shape, DTYPES[letter.lower()])

for name in sys.argv[1:]:
    kernel, random = getattr(_native, name), np.random.default_rng(0)
    print(name, file=sys.stderr, flush=True)
    for _ in range(300):
        try:
            kernel(*map(argument, kernel.__doc__.partition(">")[0]))
        except ValueError:
            pass
"""


def test_shapes_that_do_not_fit_are_refused() -> None:
    """In another process, which a kernel that reads or writes elsewhere may crash. It prints their names in turn."""
    command = [sys.executable, "-c", SHAPES, *sorted(KERNELS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.split() == sorted(KERNELS)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_kernels_are_typed(name: str) -> None:
    """As many parameters in the types as letters in the signature."""
    stub = (SOURCES / "_native.pyi").read_text()
    found = re.findall(rf"^def {name}\((.*?)\) ->", stub, re.MULTILINE | re.DOTALL)
    letters = str(KERNELS[name].__doc__).partition(">")[0]
    assert found
    assert all(len(re.findall(r"\w+:", parameters)) == len(letters) for parameters in found)
