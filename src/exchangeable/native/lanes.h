/* Eight float64 side by side, in vectors as long as the processor supports.
 *
 * Every operation acts on each lane separately, and a sum over the lanes adds them in one fixed order, so the bits do
 * not depend on the length of the vectors. These are the vector types of GCC and clang, which work on any processor.
 */
#ifndef EXCHANGEABLE_LANES_H
#define EXCHANGEABLE_LANES_H

#include "native.h"

enum { LANES = 8 };

#ifdef __AVX__
enum { LANES_VECTORS = 2 };
typedef double Vector __attribute__((vector_size(32)));
typedef double VectorAt __attribute__((vector_size(32), aligned(8), may_alias)); /* anywhere in an array */
#else
enum { LANES_VECTORS = 4 };
typedef double Vector __attribute__((vector_size(16)));
typedef double VectorAt __attribute__((vector_size(16), aligned(8), may_alias));
#endif
typedef __typeof__((Vector){0.0} < (Vector){0.0}) VectorMask; /* 64 bits a lane: all set, or none */

typedef struct {
    VectorMask part[LANES_VECTORS];
} LanesMask;

typedef struct {
    Vector part[LANES_VECTORS];
} Lanes;

#define LANES_EACH(Kind, expression) \
    Kind out; \
    for (int i = 0; i < LANES_VECTORS; i++) out.part[i] = expression; \
    return out

static inline Lanes lanes_load(const double *from) { LANES_EACH(Lanes, ((const VectorAt *)from)[i]); }

/* The same for numbers that have just been computed and need not pass through memory. */
static inline Lanes lanes_of(const double *x) {
#ifdef __AVX__
    return (Lanes){{{x[0], x[1], x[2], x[3]}, {x[4], x[5], x[6], x[7]}}};
#else
    return (Lanes){{{x[0], x[1]}, {x[2], x[3]}, {x[4], x[5]}, {x[6], x[7]}}};
#endif
}

static inline void lanes_store(double *to, Lanes a) {
    for (int i = 0; i < LANES_VECTORS; i++) ((VectorAt *)to)[i] = a.part[i];
}

static inline Lanes lanes_fill(double x) { LANES_EACH(Lanes, x - (Vector){0.0}); }
static inline Lanes lanes_add(Lanes a, Lanes b) { LANES_EACH(Lanes, a.part[i] + b.part[i]); }
static inline Lanes lanes_sub(Lanes a, Lanes b) { LANES_EACH(Lanes, a.part[i] - b.part[i]); }
static inline Lanes lanes_mul(Lanes a, Lanes b) { LANES_EACH(Lanes, a.part[i] * b.part[i]); }
static inline Lanes lanes_div(Lanes a, Lanes b) { LANES_EACH(Lanes, a.part[i] / b.part[i]); }

/* 1, x, x^2, ..., x^7 */
static inline Lanes lanes_powers(double x) {
    double square = x * x, cube = square * x, fourth = square * square;
    return lanes_of((double[LANES]){1.0, x, square, cube, fourth, fourth * x, fourth * square, fourth * cube});
}

static inline LanesMask lanes_less(Lanes a, Lanes b) { LANES_EACH(LanesMask, a.part[i] < b.part[i]); }
static inline LanesMask lanes_or(LanesMask a, LanesMask b) { LANES_EACH(LanesMask, a.part[i] | b.part[i]); }

static inline bool lanes_any(LanesMask a) {
    int64_t bits[LANES], any = 0;
    memcpy(bits, &a, sizeof a);
    for (int i = 0; i < LANES; i++) any |= bits[i];
    return any != 0;
}

/* ((x0 + x4) + (x2 + x6)) + ((x1 + x5) + (x3 + x7)) */
static inline double lanes_sum(Lanes a) {
#ifdef __AVX__
    Vector sum = a.part[0] + a.part[1];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
#else
    Vector sum = (a.part[0] + a.part[2]) + (a.part[1] + a.part[3]);
    return sum[0] + sum[1];
#endif
}

#endif
