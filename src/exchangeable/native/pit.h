/* Bets on a function of p that is uniform if p is: its integral transform by another bet, or 2 min(p, 1 - p).
 *
 * In integrals, p = 1 stands for 1 - 2^-55, the middle of the p-values that round to it.
 */
#ifndef EXCHANGEABLE_PIT_H
#define EXCHANGEABLE_PIT_H

#include <stdbool.h>

#include "elementary.h"

static const double PIT_REST = 0x1p-55; /* 1 - p at p = 1 */
static const double PIT_LOG_CELL = -54.0 * 0.69314718055994530942; /* log 2^-54, of the interval that rounds to 1 */

/* 1 - p and sin(pi p). */
static inline double pit_rest(double p) { return p < 1.0 ? 1.0 - p : PIT_REST; }
static inline double pit_sine(double p) { return p < 1.0 ? ex_sinpi(p) : PI * PIT_REST; }

/* The integral of a density from one end: `integral` itself or, if `other`, 1 - `integral`, if it was taken from the
 * other end, where it is small and more accurate. It is never 0: on underflow it is the least double, and where
 * 1 - `integral` rounds to 0 it is 2^-55. Rounding does not raise it above 1.
 */
static inline double pit_value(double integral, bool other) {
    double least = other ? PIT_REST : 0x1p-1074, value = other ? 1.0 - integral : integral;
    return value > least ? (value < 1.0 ? value : 1.0) : least;
}

/* 2 min(p, 1 - p), which is small where p is near either end. */
static inline double pit_two_sided(double p) { return 2.0 * (p < 0.5 ? p : pit_rest(p)); }

#endif
