/* Declarations for all kernels: their arguments, and the checks of shapes.
 *
 * A kernel is a pure function on arrays that Python owns. The binding (binding.c) has checked dtype, contiguity and
 * writability of each argument against the kernel's signature. The kernel checks that the shapes fit together, does its
 * work without touching the interpreter (the GIL may be released), and returns NULL, or a message that says what does
 * not fit.
 *
 * All arithmetic is IEEE 754 double (or float where stated) without contraction, and every elementary function is our
 * own (elementary.h): the same bits on every compiler, C library and processor.
 */
#ifndef EXCHANGEABLE_NATIVE_H
#define EXCHANGEABLE_NATIVE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    void *data;        /* of an array: its first item, */
    int64_t size;      /* how many items it has, */
    int64_t ndim;      /* its dimensions, */
    int64_t shape[3];  /* their lengths (1 where there are fewer than three), */
    int64_t stride;    /* and how many items apart the rows of a strided matrix lie */
    double real;       /* a real number */
    int64_t integer;   /* an integer; or 1 for true, 0 for false */
} Arg;

/* A kernel: arguments in, results (numbers, in the order of the signature) out. */
typedef const char *(*Kernel)(const Arg *in, Arg *out);

typedef struct {
    const char *name;
    const char *signature; /* a letter per argument, then '>' and a letter per number returned: see binding.c */
    Kernel kernel;
} Entry;

typedef struct {
    const char *name;
    int64_t value;
} Constant;

static inline double *float64s(const Arg *a) { return (double *)a->data; }
static inline float *float32s(const Arg *a) { return (float *)a->data; }
static inline int64_t *int64s(const Arg *a) { return (int64_t *)a->data; }
static inline int32_t *int32s(const Arg *a) { return (int32_t *)a->data; }
static inline uint32_t *uint32s(const Arg *a) { return (uint32_t *)a->data; }
static inline uint64_t *uint64s(const Arg *a) { return (uint64_t *)a->data; }
static inline int8_t *int8s(const Arg *a) { return (int8_t *)a->data; }
static inline uint8_t *bools(const Arg *a) { return (uint8_t *)a->data; }

#define REQUIRE(condition, sentence) \
    do { \
        if (!(condition)) return sentence; \
    } while (0)

#define OUT_OF_MEMORY "out of memory" /* the binding turns it into a MemoryError */

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* n mod divisor, for an integer n that is stored as a double; 0 if n is out of range. */
static inline int64_t remainder_of(double n, int64_t divisor) {
    return n >= 0.0 && n < 0x1p53 ? (int64_t)n % divisor : 0;
}

#endif
