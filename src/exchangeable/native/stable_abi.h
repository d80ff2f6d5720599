/* The part of Python's stable ABI (3.11 and newer) that the binding uses, declared here.
 *
 * The stable ABI is fixed for all of Python 3, so one library works with every version. We need only a few
 * declarations, and with our own we do without Python's headers, which some machines lack, and which cross-compiling
 * would need from the other platform. tests/test_native.py compares them with Python.h.
 */
#ifndef EXCHANGEABLE_STABLE_ABI_H
#define EXCHANGEABLE_STABLE_ABI_H

#ifdef USE_PYTHON_H
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#else

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define IMPORTED __declspec(dllimport)
#define PyMODINIT_FUNC __declspec(dllexport) PyObject *
#else
#define IMPORTED
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#endif

typedef intptr_t Py_ssize_t;
typedef struct _typeobject PyTypeObject;
typedef struct _ts PyThreadState;
typedef struct _object {
    Py_ssize_t ob_refcnt;
    PyTypeObject *ob_type;
} PyObject;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef struct {
    const char *ml_name;
    PyCFunction ml_meth;
    int ml_flags;
    const char *ml_doc;
} PyMethodDef;
typedef struct {
    int slot;
    void *value;
} PyModuleDef_Slot;
typedef struct {
    PyObject ob_base;
    PyObject *(*m_init)(void);
    Py_ssize_t m_index;
    PyObject *m_copy;
} PyModuleDef_Base;
typedef struct PyModuleDef {
    PyModuleDef_Base m_base;
    const char *m_name;
    const char *m_doc;
    Py_ssize_t m_size;
    PyMethodDef *m_methods;
    PyModuleDef_Slot *m_slots;
    void *m_traverse;
    void *m_clear;
    void *m_free;
} PyModuleDef;
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
} Py_buffer;

#define PyModuleDef_HEAD_INIT {{1, NULL}, NULL, 0, NULL}
#define Py_mod_exec 2
#define METH_FASTCALL 0x0080
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
#define PyBUF_C_CONTIGUOUS (0x0020 | PyBUF_STRIDES)

IMPORTED extern PyObject *PyExc_TypeError, *PyExc_ValueError, *PyExc_MemoryError, *PyExc_BufferError;
IMPORTED extern PyObject _Py_NoneStruct;
IMPORTED extern PyTypeObject PyFloat_Type; /* opaque: only its address matters */
#define Py_None (&_Py_NoneStruct)
#define Py_TYPE(object) ((object)->ob_type)

IMPORTED PyObject *PyModuleDef_Init(PyModuleDef *);
IMPORTED int PyModule_AddIntConstant(PyObject *, const char *, long);
IMPORTED int PyModule_AddObjectRef(PyObject *, const char *, PyObject *);
IMPORTED PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
IMPORTED PyObject *PyLong_FromLongLong(long long);
IMPORTED PyObject *PyLong_FromVoidPtr(void *);
IMPORTED void *PyLong_AsVoidPtr(PyObject *);
IMPORTED long long PyLong_AsLongLong(PyObject *);
IMPORTED unsigned long long PyLong_AsUnsignedLongLong(PyObject *);
IMPORTED PyObject *PyFloat_FromDouble(double);
IMPORTED double PyFloat_AsDouble(PyObject *);
IMPORTED PyObject *PyTuple_New(Py_ssize_t);
IMPORTED int PyTuple_SetItem(PyObject *, Py_ssize_t, PyObject *);
IMPORTED int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
IMPORTED void PyBuffer_Release(Py_buffer *);
IMPORTED PyObject *PyErr_Occurred(void);
IMPORTED void PyErr_Clear(void);
IMPORTED int PyErr_ExceptionMatches(PyObject *);
IMPORTED PyObject *PyErr_NoMemory(void);
IMPORTED PyObject *PyErr_Format(PyObject *, const char *, ...);
IMPORTED PyThreadState *PyEval_SaveThread(void);
IMPORTED void PyEval_RestoreThread(PyThreadState *);
IMPORTED void Py_IncRef(PyObject *);
IMPORTED void Py_DecRef(PyObject *);

#endif
#endif
