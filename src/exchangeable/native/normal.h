/* Normal scores z = Phi^-1(1 - p), and normal laws of z as densities of p:
 *
 *     f(p) = N(z; m, v)/N(z; 0, 1) = exp((z^2 - (z - m)^2/v)/2)/sqrt(v) .
 *
 * p = 1 stands for the p-values in (1 - 2^-54, 1], which round to it: there z is minus infinity, and the density is
 * its mean over them, 2^54 Phi((c - m)/sqrt(v)) with Phi(c) = 2^-54.
 */
#ifndef EXCHANGEABLE_NORMAL_H
#define EXCHANGEABLE_NORMAL_H

#include "pit.h"

static const double NORMAL_CELL_Z = -0x1.095b059d67c4cp+3; /* Phi(c) = 2^-54 */
static const double NORMAL_MIDDLE_Z = -0x1.0bfafe7a91e68p+3; /* the score of 1 - 2^-55 */
static const double NORMAL_FEATURE = 3.5; /* features are clipped here; densities are not */

/* Phi^-1(1 - p) by Wichura's algorithm AS 241 (1988): the quotient of two polynomials of degree 7 in the middle, and
 * two others, of sqrt(-log p), towards the ends. Relative error below 1e-15 for p from 1e-316 on.
 */
static inline double normal_quotient(const double *a, const double *b, double x) {
    double square = x * x, fourth = square * square;
    double above =
        ((a[0] + a[1] * x) + (a[2] + a[3] * x) * square) + ((a[4] + a[5] * x) + (a[6] + a[7] * x) * square) * fourth;
    double below =
        ((b[0] + b[1] * x) + (b[2] + b[3] * x) * square) + ((b[4] + b[5] * x) + (b[6] + b[7] * x) * square) * fourth;
    return above / below;
}

static inline double normal_score(double p) {
    static const double MIDDLE[2][8] = {
        {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
         4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3},
        {1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
         3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3},
    };
    static const double OUTER[2][8] = {
        {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
         1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4},
        {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
         1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9},
    };
    static const double FAR[2][8] = {
        {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
         2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7},
        {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
         7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15},
    };
    double q = p - 0.5;
    if (fabs(q) <= 0.425) return -q * normal_quotient(MIDDLE[0], MIDDLE[1], 0.180625 - q * q);
    double tail = q < 0.0 ? p : 1.0 - p;
    if (!(tail > 0.0)) return -INFINITY;
    double r = sqrt(-ex_log(tail));
    double size = r <= 5.0 ? normal_quotient(OUTER[0], OUTER[1], r - 1.6) : normal_quotient(FAR[0], FAR[1], r - 5.0);
    return q < 0.0 ? size : -size;
}

static inline double normal_cut(double z, double bound) { return z > bound ? bound : z < -bound ? -bound : z; }

typedef struct {
    double mean, variance;
} Normal;

/* Phi(x), and its log. */
static inline double normal_below(double x) { return 0.5 * ex_erfc(-x * EX_SQRT_HALF); }
static inline double normal_log_below(double x) {
    double size = fabs(x) * EX_SQRT_HALF;
    return x < 0.0 ? ex_log(0.5 * ex_erfcx(size)) - 0.5 * x * x : ex_log1p(-0.5 * ex_erfc(size));
}

/* The log density at p, given its score. */
static inline double normal_log_density(Normal law, double z) {
    if (z == -INFINITY) return normal_log_below((NORMAL_CELL_Z - law.mean) / sqrt(law.variance)) - PIT_LOG_CELL;
    double rest = z - law.mean;
    return 0.5 * (z * z - rest * rest / law.variance - ex_log(law.variance));
}

/* The integral of the density from 0 to p, the mass above z; or, if `rest`, from p to 1. */
static inline double normal_integral(Normal law, double z, bool rest) {
    double x = ((z > NORMAL_MIDDLE_Z ? z : NORMAL_MIDDLE_Z) - law.mean) / sqrt(law.variance);
    return pit_value(normal_below(-fabs(x)), rest == (x > 0.0));
}

#endif
