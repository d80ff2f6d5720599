/* Elementary functions with the same bits on every compiler, C library and processor.
 *
 * They use only + - * / on doubles, whose rounding IEEE 754 prescribes, and the bits of doubles; no function of the C
 * library, and no fused multiply-add. Largest errors against mpmath, in units in the last place, over six million
 * arguments (benchmarks/elementary_accuracy.py measures them, tests/test_elementary.py bounds them):
 *
 *     exp 0.78   log 0.67   log1p 0.66   sinpi 0.85   cospi 0.85   lgamma 5   erfc 6   erfcx 5   inverse fifth root 1.2
 *
 * exp, log, log1p, sinpi, cospi and erfcx have no branches (a condition selects one of two values), so that compilers
 * turn loops over them into vector instructions. scripts/elementary_fit.py prints the constants.
 *
 * Two tricks recur. Adding and subtracting 1.5 * 2^52 rounds a double below 2^51 to the nearest integer, which is also
 * found in the lowest bits of the sum. And where |a| >= |b|, or a = 0, the rounded sum s = a + b loses exactly
 * b - (s - a), which is added back later, so that large terms contribute no error except that of the last addition.
 */
#ifndef EXCHANGEABLE_ELEMENTARY_H
#define EXCHANGEABLE_ELEMENTARY_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static const double PI = 3.14159265358979323846, LN2 = 0.69314718055994530942;
static const double EX_SQRT_HALF = 0.70710678118654752440;

#define EX_ROUNDER 0x1.8p52
#define EX_LN2_HIGH 0x1.62e42fefa38p-1 /* 42 bits of ln 2: its product with an exponent is exact; */
#define EX_LN2_LOW 0x1.ef35793c7673p-45 /* the rest */

static inline uint64_t ex_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double ex_double(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x without its lowest bits: products of two such numbers are exact. */
static inline double ex_head(double x, int bits) { return ex_double(ex_bits(x) >> bits << bits); }

/* ------------------------------------------------------------------ exp
 * x = k ln 2 + r with |r| <= ln(2)/2, in two parts: high - low. exp(r) = 1 + r + r^2 q(r), q of degree 9. Then it
 * is multiplied by 2^k in two steps, because 2^k itself may overflow or underflow; a subnormal result is rounded in the
 * second step only.
 */
static inline double ex_exp(double x) {
    double near = x < -1000.0 ? -1000.0 : x > 1000.0 ? 1000.0 : x;
    double rounded = near * 0x1.71547652b82fep+0 + EX_ROUNDER, k = rounded - EX_ROUNDER;
    double high = near - k * EX_LN2_HIGH, low = k * EX_LN2_LOW, r = high - low, r2 = r * r, r4 = r2 * r2;
    double q0 = 0x1.0000000000011p-1 + 0x1.555555555555ap-3 * r;
    double q2 = 0x1.555555554f0cfp-5 + 0x1.111111110f225p-7 * r;
    double q4 = 0x1.6c16c187fbe02p-10 + 0x1.a01a01b14378fp-13 * r;
    double q6 = 0x1.a01991ac8730ap-16 + 0x1.71ddf5749d126p-19 * r;
    double q8 = 0x1.28b4057f44145p-22 + 0x1.af631d0059becp-26 * r;
    double q = (q0 + r2 * q2) + r4 * ((q4 + r2 * q6) + r4 * q8);
    double sum = 1.0 + high, lost = high - (sum - 1.0);
    double power = sum + (lost + (r2 * q - low));
    uint64_t biased = ex_bits(rounded) - ex_bits(EX_ROUNDER) + 2046, half = biased >> 1;
    return power * ex_double(half << 52) * ex_double((biased - half) << 52);
}

/* ------------------------------------------------------------------ log, log1p
 * x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2). With s = f/(2 + f), log(1 + f) = 2 atanh(s)
 * = f - f^2/2 + s (f^2/2 + s^2 L(s^2)), L of degree 6. f^2/2 is exact up to a small tail, and k ln 2 + f - f^2/2
 * is summed without loss.
 */

/* log(x 2^scale) + more for a positive, finite and normal x. */
static inline double ex_log_sum(double x, double scale, double more) {
    uint64_t bits = ex_bits(x), biased = (bits + 0x00095f619980c433) >> 52; /* 1023 + k: 1.0 less sqrt(1/2), in bits */
    double k = ex_double(biased | 0x4330000000000000) - (0x1p52 + 1023.0) + scale;
    double f = ex_double(bits - (biased << 52) + 0x3ff0000000000000) - 1.0;
    double s = f / (2.0 + f), z = s * s, z2 = z * z;
    double l0 = 0x1.55555555555aep-1 + 0x1.999999997aeaap-2 * z;
    double l2 = 0x1.2492494513f76p-2 + 0x1.c71c50004ffddp-3 * z;
    double l4 = 0x1.7466994f20a7cp-3 + 0x1.3999bf614de60p-3 * z;
    double series = z * ((l0 + z2 * l2) + z2 * z2 * (l4 + z2 * 0x1.2f4d88c4fad06p-3));
    double head = ex_head(f, 27), square = 0.5 * head * head, tail = 0.5 * (f - head) * (f + head);
    double whole = k * EX_LN2_HIGH, first = whole + f, sum = first - square;
    double lost = (f - (first - whole)) + ((first - sum) - square);
    return sum + (lost + more + k * EX_LN2_LOW - tail + s * (square + tail + series));
}

static inline double ex_log(double x) {
    int small = x < 0x1p-1022;
    double value = ex_log_sum(small ? x * 0x1p54 : x, small ? -54.0 : 0.0, 0.0);
    value = x < INFINITY ? value : x;
    value = x == 0.0 ? -INFINITY : value;
    return x < 0.0 ? NAN : value;
}

/* log(1 + x) = log(u) + c/u, where u + c = 1 + x exactly and u is the rounded sum. */
static inline double ex_log1p(double x) {
    double u = 1.0 + x, part = u - 1.0, c = (1.0 - (u - part)) + (x - part);
    double value = ex_log_sum(u, 0.0, c / u);
    value = x < INFINITY ? value : x;
    value = x == 0.0 ? x : value;
    value = x == -1.0 ? -INFINITY : value;
    return x < -1.0 ? NAN : value;
}

/* exp(x) - 1: with u = exp(x) rounded, (u - 1) x/log(u), since both differences are exact relative to u (Kahan). */
static inline double ex_expm1(double x) {
    double u = ex_exp(x);
    return u == 1.0 ? x : u == 0.0 || u == INFINITY ? u - 1.0 : (u - 1.0) * (x / ex_log(u));
}

/* ------------------------------------------------------------------ sinpi, cospi: sin(pi x), cos(pi x)
 * |x| = 2 m + n/2 + r with integers m, n and |r| <= 1/4, all exact. sin(pi r) = pi r + r^3 S(r^2) and
 * cos(pi r) = 1 - (pi r)^2/2 + r^4 C(r^2), both of degree 5; n mod 4 says which is which, and their signs. The
 * products pi r and (pi r)^2/2 are taken in two parts, the first exact.
 */

#define EX_PI_HIGH 0x1.921fb5444p+1 /* 36 bits of pi, */
#define EX_PI_LOW 0x1.68c234c4c6629p-38
#define EX_SQUARE_HIGH 0x1.3bd3cp+2 /* and 19 bits of pi^2/2 */
#define EX_SQUARE_LOW 0x1.937c8bbcb495cp-19

typedef struct {
    double sine, cosine; /* of pi |x| */
} ExTurn;

static inline ExTurn ex_turn(double x) {
    double size = fabs(x), a = size < 0x1p53 ? size : 0.0; /* from 2^53 on all doubles are even */
    double y = a - 2.0 * ((0.5 * a + 0x1p52) - 0x1p52), rounded = 2.0 * y + EX_ROUNDER;
    double lift = size < 0x1p-900 ? 0x1p128 : 1.0, sink = size < 0x1p-900 ? 0x1p-128 : 1.0; /* no subnormal parts */
    double r = lift * (y - 0.5 * (rounded - EX_ROUNDER)), z = r * r, z2 = z * z;
    double s0 = -0x1.4abbce625be41p+2 + 0x1.466bc677587f8p+1 * z;
    double s2 = -0x1.32d2cce2e5b19p-1 + 0x1.50782fda12d96p-4 * z;
    double s4 = -0x1.e30071afc3e59p-8 + 0x1.e3f38399551bfp-12 * z;
    double c0 = 0x1.03c1f081b5aacp+2 - 0x1.55d3c7e3c90f8p+0 * z;
    double c2 = 0x1.e1f5068355e15p-3 - 0x1.a6d1ec7906c20p-6 * z;
    double c4 = 0x1.f9cc41140bb60p-10 - 0x1.b264ba152378ap-14 * z;
    double s = s0 + z2 * (s2 + z2 * s4), c = c0 + z2 * (c2 + z2 * c4);
    double head = ex_head(r, 36), tail = r - head;
    double sine = sink * (EX_PI_HIGH * head + (EX_PI_HIGH * tail + EX_PI_LOW * r + r * z * s));
    double square = EX_SQUARE_HIGH * (head * head), rest = EX_SQUARE_HIGH * (tail * (r + head)) + EX_SQUARE_LOW * z;
    double sum = 1.0 - square, lost = (1.0 - sum) - square;
    double other = sum + (lost - rest + z2 * c);
    uint64_t n = ex_bits(rounded), swap = 0 - (n & 1), flip = (n & 2) << 62, turn = ((n + 1) & 2) << 62;
    uint64_t first = (ex_bits(other) & swap) | (ex_bits(sine) & ~swap);
    uint64_t second = (ex_bits(sine) & swap) | (ex_bits(other) & ~swap);
    double none = size < INFINITY ? 0.0 : NAN; /* zeros are positive */
    return (ExTurn){ex_double(first ^ flip) + none, ex_double(second ^ turn) + none};
}

static inline double ex_cospi(double x) { return ex_turn(x).cosine; }
static inline double ex_sinpi(double x) { return ex_double(ex_bits(ex_turn(x).sine) ^ (ex_bits(x) >> 63 << 63)); }

/* ------------------------------------------------------------------ lgamma, erfcx, erfc */

/* sum_k c_k x^k for k < n (n odd), even and odd terms side by side. */
static inline double ex_polynomial(const double *c, int n, double x) {
    double square = x * x, even = c[n - 1], odd = 0.0;
    for (int k = n - 3; k >= 0; k -= 2) {
        odd = odd * square + c[k + 1];
        even = even * square + c[k];
    }
    return even + x * odd;
}

/* log Gamma(x) for x > 0; infinity at 0, NaN below.
 *
 * From 8 on by Stirling: (x - 1/2)(log x - 1) + (log(2 pi) - 1)/2 + W(1/x^2)/x, W of degree 5. Below, x is n + t with
 * 0 <= t < 1, and log Gamma(1 + t) = t (t - 1) G(t - 1/2), G of degree 20, has both zeros as factors;
 * log Gamma(n + t) = log Gamma(1 + t) + log((1 + t) ... (n - 1 + t)), for n = 0 - log t.
 */
static inline double ex_lgamma(double x) {
    static const double G[] = {
        0x1.eeb95b094c191p-2,    -0x1.2aed059bd6085p-3,   0x1.01af62a2929e1p-4,    -0x1.007aa83cef9abp-5,
        0x1.133423527ae27p-6,    -0x1.34dbda128eee5p-7,   0x1.64f0664fb6518p-8,    -0x1.a5035375acabep-9,
        0x1.f814b951d538bp-10,   -0x1.313e5323120b7p-10,  0x1.750aa27fe4301p-11,   -0x1.cb502b140a127p-12,
        0x1.1c7b46046a59cp-12,   -0x1.61854b057e6e9p-13,  0x1.ba26ce28a34b0p-14,   -0x1.1cf3272629995p-14,
        0x1.672b94917149fp-15,   -0x1.6880fac68f031p-16,  0x1.c7d009a4fae3ap-17,   -0x1.36d84fee907ffp-16,
        0x1.8ca55ab6b8718p-17,
    };
    static const double W[] = {
        0x1.5555555555553p-4,    -0x1.6c16c16bb630dp-9,   0x1.a019fd3406f01p-11,   -0x1.380ebd7243e93p-11,
        0x1.b6fa4852c5f70p-11,   -0x1.b1382377d788ap-10,
    };
    if (!(x < 8.0)) {
        double z = 1.0 / x, z2 = z * z;
        double w = W[0] + z2 * (W[1] + z2 * (W[2] + z2 * (W[3] + z2 * (W[4] + z2 * W[5]))));
        return (x - 0.5) * (ex_log(x) - 1.0) + (0.41893853320467274178 + w * z);
    }
    if (x < 0.0) return NAN;
    int n = (int)x;
    double t = x - n, value = t * (t - 1.0) * ex_polynomial(G, 21, t - 0.5);
    if (n == 0) return value - ex_log(x);
    if (n == 2) return value + ex_log1p(t);
    if (n == 1) return value + 0.0; /* no negative zero */
    double product = 1.0 + t;
    for (int k = 2; k < n; k++) product *= k + t;
    return value + ex_log(product);
}

/* erfcx(x) = exp(x^2) erfc(x) for x >= 0; NaN below.
 *
 * (1 + 2 x) erfcx(x) = 1 + (1 + t) E(t) with t = (x - 3.75)/(x + 3.75), which maps x >= 0 to [-1, 1), and E of
 * degree 22.
 */
static inline double ex_erfcx(double x) {
    static const double E[] = {
        0x1.e66d05aeaee14p-3,    -0x1.82d1be1953bb1p-2,   0x1.867da3425671bp-2,    -0x1.323d48ce31c3bp-2,
        0x1.85a5f94f4d361p-3,    -0x1.9137da139e2bcp-4,   0x1.419eb9ba11748p-5,    -0x1.651ae011c5d41p-7,
        0x1.2dd51dada8b33p-10,   0x1.3cc9f074573c4p-11,   -0x1.45989a7cb9c7ap-12,  0x1.5587d4bb63a37p-16,
        0x1.067bf83e990afp-15,   -0x1.2ab15d4c9b9afp-17,  -0x1.54a0bac4d6af3p-19,  0x1.a1cfdc6fad33dp-20,
        0x1.92690b0bec24ap-23,   -0x1.fa7b64dee4a83p-23,  -0x1.e5086f05f254fp-27,  0x1.0c5eaae2aa849p-25,
        0x1.6b9026146ff1ap-30,   -0x1.67537085763d5p-29,  -0x1.f9928902dbacap-34,
    };
    double y = x < 0x1p1000 ? x : 0x1p1000, above = 2.0 * y / (y + 3.75); /* 1 + t */
    double value = (1.0 + above * ex_polynomial(E, 23, above - 1.0)) / (1.0 + 2.0 * x);
    return x < 0.0 ? NAN : value;
}

/* erfc(x) = exp(-x^2) erfcx(x) for x >= 0, and 2 - erfc(-x) below; x^2 is taken in two parts, high + low. */
static inline double ex_erfc(double x) {
    double size = fabs(x), y = size > 28.0 ? 28.0 : size; /* where erfc is 0 or 2 */
    double head = ex_head(y, 27), high = y * y, low = (head * head - high) + (y - head) * (y + head);
    double value = ex_exp(-high) * ((1.0 - low) * ex_erfcx(y));
    return x < 0.0 ? 2.0 - value : value;
}

/* ------------------------------------------------------------------ n^(-1/5) for n > 0
 * By exp and log, and one step of Newton's method for y^-5 = n.
 */
static inline double ex_inverse_fifth_root(double n) {
    double y = ex_exp(-0.2 * ex_log(n)), square = y * y;
    return y + 0.2 * y * (1.0 - n * y * square * square);
}

#endif
