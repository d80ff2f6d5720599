/* A mixture of Shiryaev-Roberts statistics over fixed densities, used as a bet.
 *
 *     f(p) = sum_k (w_k + psi_k) f_k(p) / (1 + sum_k psi_k) ,   then   psi_k <- (w_k + psi_k) f_k(p)
 *
 * The densities f_k: Beta densities on a grid of shapes; powers at one end or both, and steps at one end, each mixed
 * with the uniform density.
 */

enum { WATCHFUL_SHAPES = 32, WATCHFUL_DENSITIES = 2048 }; /* upper limits */

static const double WATCHFUL_LARGE = 1e100; /* beyond it, or below its inverse, the sums are rescaled to near one */

typedef struct {
    const double *values;
    int64_t size;
} Watchful_list;

static inline Watchful_list watchful_list(const Arg *arg) { return (Watchful_list){float64s(arg), arg->size}; }

typedef struct {
    const double *weights, *norm;
    Watchful_list shapes, epsilons, mixed, widths, stepped;
    int64_t size;
} Watchful;

/* x^(e - 1) for each exponent, relative to the largest, whose logarithm is returned. */
static double watchful_powers(Watchful_list exponents, double log_x, double *out) {
    double top = -INFINITY;
    for (int64_t k = 0; k < exponents.size; k++) {
        out[k] = (exponents.values[k] - 1.0) * log_x;
        top = out[k] > top ? out[k] : top;
    }
    for (int64_t k = 0; k < exponents.size; k++) out[k] = ex_exp(out[k] - top);
    return top;
}

/* Beta(p; a_j, b_k) for a, b from the shapes, in units of e^unit; norm[j, k] = 1/B(a_j, b_k).
 *
 * p = 1 stands for the p-values that round to it: there a Beta density is replaced by its mean over them, which is
 * finite.
 */
static double *watchful_betas(const Watchful *with, double p, double unit, double *out) {
    double left[WATCHFUL_SHAPES], right[WATCHFUL_SHAPES], top = watchful_powers(with->shapes, ex_log(p), left);
    int64_t size = with->shapes.size;
    top += watchful_powers(with->shapes, beta_log_rest(p), right);
    if (!(p < 1.0))
        for (int64_t k = 0; k < size; k++) right[k] /= with->shapes.values[k];
    double factor = ex_exp(top - unit);
    for (int64_t j = 0; j < size; j++)
        for (int64_t k = 0; k < size; k++) *out++ = factor * (left[j] * right[k] * with->norm[j * size + k]);
    return out;
}

/* 1 - w + w g for powers g = eps p^(eps - 1) at the lower end, eps (1 - p)^(eps - 1) at the upper, and at both.
 * At p = 1 the mean over the p-values that round to it.
 */
static double *watchful_tails(const Watchful *with, double p, double unit, double *out) {
    double rest = ex_exp(-unit), log_p = ex_log(p), log_q = beta_log_rest(p);
    for (int64_t e = 0; e < with->epsilons.size; e++) {
        double epsilon = with->epsilons.values[e];
        double low = epsilon * ex_exp((epsilon - 1.0) * log_p - unit), high = ex_exp((epsilon - 1.0) * log_q - unit);
        if (p < 1.0) high *= epsilon;
        for (int64_t w = 0; w < with->mixed.size; w++) {
            double part = with->mixed.values[w], keep = (1.0 - part) * rest;
            *out++ = keep + part * low;
            *out++ = keep + part * high;
            *out++ = keep + part * 0.5 * (low + high);
        }
    }
    return out;
}

/* 1 - w + w g for g uniform on [0, a], and on [1 - a, 1]. */
static double *watchful_steps(const Watchful *with, double p, double unit, double *out) {
    double rest = ex_exp(-unit);
    for (int64_t a = 0; a < with->widths.size; a++) {
        double width = with->widths.values[a];
        double low = p < width ? rest / width : 0.0, high = p >= 1.0 - width ? rest / width : 0.0;
        for (int64_t w = 0; w < with->stepped.size; w++) {
            double part = with->stepped.values[w], keep = (1.0 - part) * rest;
            *out++ = keep + part * low;
            *out++ = keep + part * high;
        }
    }
    return out;
}

/* Make the total one again, but never use a unit below one: then the fresh weights count for more than the rest. */
static void watchful_rescale(double *sums, int64_t size, double *scale) {
    double level = scale[0] + ex_log(scale[1]), total = 0.0;
    level = 0.0 > level ? 0.0 : level;
    double factor = ex_exp(scale[0] - level);
    for (int64_t k = 0; k < size; k++) {
        sums[k] *= factor;
        total += sums[k];
    }
    scale[0] = level, scale[1] = total;
}

/* `sums` holds psi_k in units of exp(scale[0]), and scale[1] their total, which stays near one. */
static double watchful_step(double *sums, double *scale, const Watchful *with, double p) {
    double densities[WATCHFUL_DENSITIES], unit = beta_unit(p), total = 0.0;
    double *at = watchful_betas(with, p, unit, densities);
    at = watchful_tails(with, p, unit, at);
    watchful_steps(with, p, unit, at);
    double fresh = ex_exp(-scale[0]);
    for (int64_t k = 0; k < with->size; k++) {
        sums[k] = (with->weights[k] * fresh + sums[k]) * densities[k];
        total += sums[k];
    }
    double gain = ex_log(total) + unit - ex_log(fresh + scale[1]);
    scale[0] += unit, scale[1] = total;
    if (!(1.0 / WATCHFUL_LARGE < total && total < WATCHFUL_LARGE)) watchful_rescale(sums, with->size, scale);
    return gain;
}

/* watchful(sums, scale, weights, shapes, norm, epsilons, mixed, widths, stepped, p, out) */
static const char *watchful(const Arg *in, Arg *out) {
    (void)out;
    Watchful with = {float64s(&in[2]),      float64s(&in[4]),      watchful_list(&in[3]), watchful_list(&in[5]),
                     watchful_list(&in[6]), watchful_list(&in[7]), watchful_list(&in[8]), in[0].size};
    REQUIRE(with.size <= WATCHFUL_DENSITIES && with.shapes.size <= WATCHFUL_SHAPES, "there are too many densities");
    REQUIRE(in[4].size == with.shapes.size * with.shapes.size, "norm must have a number for each pair of shapes");
    for (int k = 5; k < 9; k++) REQUIRE(in[k].size <= WATCHFUL_DENSITIES, "there are too many densities");
    int64_t tails = 3 * with.epsilons.size * with.mixed.size, steps = 2 * with.widths.size * with.stepped.size;
    REQUIRE(in[2].size == with.size && with.size == in[4].size + tails + steps, "there must be a sum for each density");
    REQUIRE(in[1].size == 2, "scale must hold 2 numbers");
    REQUIRE(in[9].size == in[10].size, "out must be as long as p");
    for (int64_t i = 0; i < in[9].size; i++)
        float64s(&in[10])[i] = watchful_step(float64s(&in[0]), float64s(&in[1]), &with, float64s(&in[9])[i]);
    return NULL;
}

#define WATCHFUL_KERNELS ENTRY(watchful, "DDdddddddpo"),
#define WATCHFUL_CONSTANTS
