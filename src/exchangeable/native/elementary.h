/* Elementary functions (to be replaced by our own polynomials). */
#ifndef EXCHANGEABLE_ELEMENTARY_H
#define EXCHANGEABLE_ELEMENTARY_H

#include <math.h>

static const double PI = 3.14159265358979323846, LN2 = 0.69314718055994530942;

static inline double ex_exp(double x) { return exp(x); }
static inline double ex_log(double x) { return log(x); }
static inline double ex_log1p(double x) { return log1p(x); }
static inline double ex_cospi(double x) { return cos(PI * x); }
static inline double ex_sinpi(double x) { return sin(PI * x); }
static inline double ex_lgamma(double x) { return lgamma(x); }
static inline double ex_erfc(double x) { return erfc(x); }
static inline double ex_erfcx(double x) { return exp(x * x) * erfc(x); }

#endif
