/* The Python module `_native`: one function for each kernel, and the constants that Python and C share.
 *
 * Letters of a signature:
 *
 *     f  real number         n  integer, True or False          k  integer from 0 to 2^64 - 1 (its bits)
 *     d  float64 array       s  float32       q  int64       l  int32       w  uint32      u  uint64
 *     b  bool                c  int8          (a capital letter: an array that is written)
 *     p  float64 array, or one float          o  float64 array that is written, or None
 *     g  float32 matrix whose rows may be further apart than they are long
 *
 * After '>' come the types of the numbers returned, f or n; Python gets None, one number, or a tuple. Where o is
 * None, the call has one step, and what it would have written is returned. Arrays must be C-contiguous, aligned and
 * of native byte order. A signature that begins with '!' belongs to a kernel that runs for less than a microsecond and
 * holds the GIL; single steps hold it too. An array that is written must not be passed twice.
 */
#include "stable_abi.h"
#include "native.h"

#define ARGUMENTS 48
#define RESULTS 4

extern const Entry kernels_base[];
extern const Constant constants_base[];
#ifdef WITH_AVX2
extern const Entry kernels_avx2[];
#endif

/* ------------------------------------------------------------------ which processor */

#ifdef WITH_AVX2
#include <cpuid.h>

/* Whether processor and operating system support AVX2. */
static int avx2(void) {
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27)) || !(c & (1u << 28))) return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    return (b & (1u << 5)) != 0;
}
#endif

static const Entry *chosen(void) {
#ifdef WITH_AVX2
    if (avx2()) return kernels_avx2;
#endif
    return kernels_base;
}

/* ------------------------------------------------------------------ arguments */

static const struct {
    char letter;
    char size;
    const char *formats;
    const char *name;
} DTYPES[] = {
    {'d', 8, "d", "float64"}, {'s', 4, "f", "float32"}, {'q', 8, "lq", "int64"}, {'l', 4, "il", "int32"},
    {'w', 4, "IL", "uint32"}, {'u', 8, "LQ", "uint64"}, {'b', 1, "?", "bool"},   {'c', 1, "b", "int8"},
};

/* The row of the table for a letter; the letters of all signatures are in the table. */
static int dtype(char letter) {
    int i = 0;
    while (DTYPES[i].letter != letter) i++;
    return i;
}

static int fits(const Py_buffer *view, int type) {
    const char *format = view->format;
    int aligned = (uintptr_t)view->buf % (uintptr_t)DTYPES[type].size == 0;
    return view->itemsize == DTYPES[type].size && format && strchr(DTYPES[type].formats, format[0]) && !format[1] && aligned;
}

/* Read an array, after checking its dtype, alignment, dimensions, contiguity (or strided rows) and writability. */
static int array(const Entry *entry, int at, PyObject *value, char letter, Py_buffer *view, Arg *arg) {
    int strided = letter == 'g', written = letter >= 'A' && letter <= 'Z';
    int type = dtype(strided ? 's' : written ? (char)(letter - 'A' + 'a') : letter);
    int flags = (strided ? PyBUF_STRIDES : PyBUF_C_CONTIGUOUS) | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0);
    view->obj = NULL;
    if (PyObject_GetBuffer(value, view, flags)) {
        view->obj = NULL;
        if (PyErr_ExceptionMatches(PyExc_MemoryError)) return -1;
        PyErr_Clear();
    }
    int ok = view->obj && fits(view, type) && view->ndim <= 3;
    if (ok && strided) ok = view->ndim == 2 && view->strides[1] == 4 && view->strides[0] % 4 == 0;
    if (!ok) {
        if (view->obj) PyBuffer_Release(view);
        PyErr_Format(PyExc_TypeError, "argument %d of %s must be a %s%s %s array of at most 3 dimensions", at + 1,
                     entry->name, written ? "writable " : "", strided ? "row-wise contiguous" : "contiguous",
                     DTYPES[type].name);
        return -1;
    }
    arg->data = view->buf;
    arg->ndim = view->ndim;
    arg->size = 1;
    for (int k = 0; k < 3; k++) {
        arg->shape[k] = k < view->ndim ? view->shape[k] : 1;
        arg->size *= arg->shape[k];
    }
    arg->stride = strided ? view->strides[0] / 4 : 0;
    return 0;
}

/* One number, passed instead of an array. */
static void single(Arg *arg) {
    arg->data = &arg->real;
    arg->size = arg->ndim = 1;
    arg->shape[0] = arg->shape[1] = arg->shape[2] = 1;
}

static int argument(const Entry *entry, int at, PyObject *value, char letter, Py_buffer *view, Arg *arg) {
    view->obj = NULL;
    if (letter == 'f') {
        arg->real = PyFloat_AsDouble(value);
        return arg->real == -1.0 && PyErr_Occurred() ? -1 : 0;
    }
    if (letter == 'n') {
        arg->integer = PyLong_AsLongLong(value);
        return arg->integer == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (letter == 'k') {
        arg->integer = (int64_t)PyLong_AsUnsignedLongLong(value);
        return arg->integer == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (letter == 'o' && value == Py_None) {
        single(arg);
        return 0;
    }
    if (letter == 'p' && Py_TYPE(value) == &PyFloat_Type) {
        arg->real = PyFloat_AsDouble(value);
        single(arg);
        return 0;
    }
    return array(entry, at, value, letter == 'p' ? 'd' : letter == 'o' ? 'D' : letter, view, arg);
}

/* ------------------------------------------------------------------ calls */

static PyObject *number(char letter, const Arg *arg) {
    return letter == 'f' ? PyFloat_FromDouble(arg->real) : PyLong_FromLongLong(arg->integer);
}

static PyObject *returned(const char *letters, const Arg *out) {
    if (!letters || !*letters) {
        Py_IncRef(Py_None);
        return Py_None;
    }
    if (!letters[1]) return number(letters[0], out);
    PyObject *tuple = PyTuple_New((Py_ssize_t)strlen(letters));
    for (int k = 0; tuple && letters[k]; k++) {
        PyObject *item = number(letters[k], out + k);
        if (!item || PyTuple_SetItem(tuple, k, item)) {
            Py_DecRef(tuple);
            return NULL;
        }
    }
    return tuple;
}

/* Run a kernel without the GIL, unless the call is brief: a single step, or a kernel marked with '!'. */
static PyObject *run(const Entry *entry, const Arg *in, const Arg *step, const char *results) {
    Arg out[RESULTS];
    PyThreadState *thread = step || entry->signature[0] == '!' ? NULL : PyEval_SaveThread();
    const char *wrong = entry->kernel(in, out);
    if (thread) PyEval_RestoreThread(thread);
    if (wrong && !strcmp(wrong, OUT_OF_MEMORY)) return PyErr_NoMemory();
    if (wrong) return PyErr_Format(PyExc_ValueError, "%s: %s", entry->name, wrong);
    return step ? PyFloat_FromDouble(step->real) : returned(results, out);
}

/* Every function of the module: `self` is the address of its entry in the table. */
static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    const Entry *entry = PyLong_AsVoidPtr(self);
    const char *letters = entry->signature + (entry->signature[0] == '!'), *mark = strchr(letters, '>');
    Py_ssize_t wanted = mark ? mark - letters : (Py_ssize_t)strlen(letters);
    if (count != wanted) return PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", entry->name, wanted, count);
    Arg in[ARGUMENTS];
    Py_buffer views[ARGUMENTS];
    const Arg *step = NULL;
    PyObject *result = NULL;
    int parsed = 0;
    while (parsed < count && !argument(entry, parsed, args[parsed], letters[parsed], views + parsed, in + parsed)) {
        if (letters[parsed] == 'o' && !views[parsed].obj) step = in + parsed;
        parsed++;
    }
    if (parsed == count) result = run(entry, in, step, mark ? mark + 1 : NULL);
    while (parsed-- > 0)
        if (views[parsed].obj) PyBuffer_Release(views + parsed);
    return result;
}

/* ------------------------------------------------------------------ the module */

static PyMethodDef methods[256]; /* filled once, at import, from the table */

static int fill(PyObject *module) {
    const Entry *entry = chosen();
    for (int i = 0; entry->name; entry++, i++) {
        methods[i].ml_name = entry->name;
        methods[i].ml_meth = (PyCFunction)(void (*)(void))call;
        methods[i].ml_flags = METH_FASTCALL;
        methods[i].ml_doc = entry->signature + (entry->signature[0] == '!');
        PyObject *self = PyLong_FromVoidPtr((void *)entry);
        PyObject *function = self ? PyCFunction_NewEx(methods + i, self, NULL) : NULL;
        int failed = !function || PyModule_AddObjectRef(module, entry->name, function);
        if (self) Py_DecRef(self);
        if (function) Py_DecRef(function);
        if (failed) return -1;
    }
    for (const Constant *each = constants_base; each->name; each++)
        if (PyModule_AddIntConstant(module, each->name, (long)each->value)) return -1;
    return PyModule_AddIntConstant(module, "VECTOR", chosen() != kernels_base);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "The compiled loops of exchangeable.", 0, NULL, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
