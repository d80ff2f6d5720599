/* Beta densities on a grid of shapes, with switching between them:
 *
 *     w_jk <- ((1 - s) w_jk + s/m) Beta(p; a_j, b_k) ,   s = switching, m = size^2 ,
 *
 * where a and b run over the shapes exp(reach t |t|) for `size` evenly spaced t from -1 to 1; they are denser near
 * t = 0, where the density is uniform. p = 1 stands for the p-values in (1 - 2^-54, 1], which round to it: there a
 * Beta density is replaced by its mean over them, which is finite.
 *
 * The weights are stored without their common factor (1 - s)/(sum of the weights), so a step costs one addition and one
 * multiplication for each. A grid is a matrix with the shapes in row 0 and 1/B(a_j, b_k) in row j + 1; rows are
 * padded to a multiple of 16, and the padding has density 0.
 */

enum { BETA_LARGEST = 200, BETA_LANES = 16 }; /* the largest size; how many weights are processed side by side */
static const double BETA_LOG_CELL = -54.0 * 0.69314718055994530942; /* the log of 2^-54 */
static const double BETA_TINY = 1e-200, BETA_UNIT = 400.0; /* below that p, densities are in units of e^400 */
static const double BETA_FAR = -64.0; /* below that log of p or 1 - p, densities are relative to the largest */
static const double BETA_MIN = 0x1p-200, BETA_MAX = 0x1p200; /* the range of the sum of the weights */

static inline int64_t beta_padded(int64_t size) { return (size + BETA_LANES - 1) / BETA_LANES * BETA_LANES; }

/* Gamma(x) for 0 < x < 100, as Gamma(1 + t) (1 + t) ... (n - 1 + t) with x = n + t: more exact than exp(lgamma(x)). */
static double beta_gamma(double x) {
    double n = floor(x), t = x - n, value = ex_exp(ex_lgamma(1.0 + t));
    for (double k = 1.0; k < n; k += 1.0) value *= k + t;
    return n > 0.0 ? value : value / x;
}

static void beta_grid_of(int64_t size, double reach, double *out) {
    int64_t width = beta_padded(size);
    double gamma[BETA_LARGEST];
    for (int64_t k = 0; k < width; k++) {
        double t = (2.0 * (double)k - (double)(size - 1)) / (double)(size - 1);
        out[k] = k < size ? ex_exp(reach * t * fabs(t)) : 1.0;
        if (k < size) gamma[k] = beta_gamma(out[k]);
    }
    for (int64_t j = 0; j < size; j++)
        for (int64_t k = 0; k < width; k++)
            out[(j + 1) * width + k] = k < size ? beta_gamma(out[j] + out[k]) / (gamma[j] * gamma[k]) : 0.0;
}

/* x^(a - 1) for each shape a. If x is very small, they are relative to the largest, whose log is returned; otherwise 0
 * is returned. */
__attribute__((flatten)) static inline double beta_powers(const double *shapes, int64_t width, double log_x,
                                                          double *out) {
    double top = log_x < BETA_FAR ? (shapes[0] - 1.0) * log_x : 0.0;
    for (int64_t k = 0; k < width; k++) out[k] = ex_exp((shapes[k] - 1.0) * log_x - top);
    return top;
}

/* Beta(p; a_j, b_k) relative to a common factor, whose log is returned: 0 except for extreme p. */
static inline double beta_heights(const double *grid, int64_t size, int64_t width, double p, double log_p, double log_q,
                                  double *out) {
    double left[BETA_LARGEST + BETA_LANES], right[BETA_LARGEST + BETA_LANES];
    double top = beta_powers(grid, width, log_p, left) + beta_powers(grid, width, log_q, right);
    if (p == 1.0)
        for (int64_t k = 0; k < width; k++) right[k] /= grid[k];
    for (int64_t j = 0; j < size; j++) {
        Lanes factor = lanes_fill(left[j]);
        for (int64_t k = 0; k < width; k += LANES) {
            Lanes norm = lanes_load(grid + (j + 1) * width + k);
            lanes_store(out + j * width + k, lanes_mul(lanes_mul(factor, lanes_load(right + k)), norm));
        }
    }
    return top;
}

/* log(1 - p), or its replacement at p = 1. */
static inline double beta_log_rest(double p) { return p == 1.0 ? BETA_LOG_CELL : ex_log1p(-p); }

/* The log of the unit of the densities at p. */
static inline double beta_unit(double p) { return p < BETA_TINY ? BETA_UNIT : 0.0; }

/* Multiply all weights and their total by a power of two that brings the total near one. */
static void beta_rescale(double *weights, int64_t count, double *total) {
    int exponent;
    frexp(*total, &exponent);
    double factor = ldexp(1.0, exponent > 1000 ? -1000 : exponent < -1000 ? 1000 : -exponent);
    *total *= factor;
    for (int64_t k = 0; k < count; k++) weights[k] *= factor;
}

/* w <- (w + share of the total) height. Returns the density: the factor by which the sum of the weights grew. */
static inline double beta_step(double *weights, double *total, double switching, double m, const double *heights,
                               int64_t count) {
    double stay = 1.0 - switching;
    if (stay == 0.0) { /* nothing stays */
        memset(weights, 0, (size_t)count * sizeof(double));
        stay = 1.0;
    }
    Lanes share = lanes_fill(switching / (stay * m) * *total), low = lanes_fill(0.0), high = low;
    for (int64_t k = 0; k < count; k += BETA_LANES) {
        Lanes a = lanes_mul(lanes_add(lanes_load(weights + k), share), lanes_load(heights + k));
        Lanes b = lanes_mul(lanes_add(lanes_load(weights + k + LANES), share), lanes_load(heights + k + LANES));
        lanes_store(weights + k, a);
        lanes_store(weights + k + LANES, b);
        low = lanes_add(low, a);
        high = lanes_add(high, b);
    }
    double sum = lanes_sum(lanes_add(low, high)), density = stay * sum / *total;
    *total = sum;
    if (sum < BETA_MIN || sum > BETA_MAX) beta_rescale(weights, count, total);
    return density;
}

/* beta_grid(size, reach, grid) */
static const char *beta_grid(const Arg *in, Arg *out) {
    (void)out;
    int64_t size = in[0].integer;
    REQUIRE(2 <= size && size <= BETA_LARGEST, "size must be from 2 to 200");
    REQUIRE(0.0 < in[1].real && in[1].real <= 3.0, "reach must be in (0, 3]");
    REQUIRE(in[2].size == (size + 1) * beta_padded(size), "grid must have size + 1 rows, padded to 16");
    beta_grid_of(size, in[1].real, float64s(&in[2]));
    return NULL;
}

/* beta(weights, total, grid, switching, p, gains) */
static const char *beta(const Arg *in, Arg *out) {
    (void)out;
    int64_t size = in[0].shape[0], width = in[0].shape[1], count = in[0].size;
    REQUIRE(in[0].ndim == 2 && 2 <= size && size <= BETA_LARGEST && width == beta_padded(size),
            "weights must have 2 to 200 rows, padded to 16");
    REQUIRE(in[1].size == 1 && in[2].size == (size + 1) * width, "total and grid must fit weights");
    REQUIRE(in[4].size == in[5].size, "gains must be as long as p");
    double *heights = malloc((size_t)count * sizeof(double));
    if (!heights) return OUT_OF_MEMORY;
    for (int64_t i = 0; i < in[4].size; i++) {
        double p = float64s(&in[4])[i];
        double top = beta_heights(float64s(&in[2]), size, width, p, ex_log(p), beta_log_rest(p), heights);
        float64s(&in[5])[i] = top + ex_log(beta_step(float64s(&in[0]), float64s(&in[1]), in[3].real,
                                                     (double)(size * size), heights, count));
    }
    free(heights);
    return NULL;
}

#define BETA_KERNELS ENTRY(beta_grid, "nfD"), ENTRY(beta, "DDdfpo"),
#define BETA_CONSTANTS
