/* Beta densities on a grid of shapes, with switching between them. */

enum { BETA_SIZE = 200 };                               /* the largest grid */
static const double BETA_LOG_CELL = -37.42994775023705; /* -54 ln 2: the p-values in (1 - 2^-54, 1] round to one */

/* x^(e - 1) for each exponent e, relative to the largest, whose logarithm is returned. */
static double beta_powers(const double *exponents, int64_t size, double log_x, double *out) {
    double top = -INFINITY;
    for (int64_t k = 0; k < size; k++) {
        out[k] = (exponents[k] - 1.0) * log_x;
        if (out[k] > top) top = out[k];
    }
    for (int64_t k = 0; k < size; k++) out[k] = ex_exp(out[k] - top);
    return top;
}

/* The mean of x^(e - 1) over the x in [0, 2^-54), whose 1 - x rounds to one, relative to a common factor. */
static double beta_last_powers(const double *exponents, int64_t size, double *out) {
    double top = beta_powers(exponents, size, BETA_LOG_CELL, out);
    for (int64_t k = 0; k < size; k++) out[k] /= exponents[k];
    return top;
}

/* Beta(p; a_j, b_k) for a, b from the shapes, relative to a common factor whose logarithm is returned.
 *
 * p = 1 stands for the p-values that round to it: there a Beta density is its mean over them, which is finite.
 */
static double beta_heights(double p, const double *shapes, const double *norm, int64_t size, double *out) {
    double left[BETA_SIZE], right[BETA_SIZE];
    double top = beta_powers(shapes, size, ex_log(p), left);
    top += p < 1.0 ? beta_powers(shapes, size, ex_log1p(-p), right) : beta_last_powers(shapes, size, right);
    for (int64_t j = 0; j < size; j++)
        for (int64_t k = 0; k < size; k++) out[j * size + k] = left[j] * right[k] * norm[j * size + k];
    return top;
}

/* w <- (stay w + move) h, and the sum of the new w; added up by columns, so that the compiler vectorises it. */
static double beta_step(double *share, double stay, double move, const double *heights, int64_t size) {
    double columns[BETA_SIZE] = {0.0}, total = 0.0;
    for (int64_t j = 0; j < size; j++)
        for (int64_t k = 0; k < size; k++) {
            share[j * size + k] = (stay * share[j * size + k] + move) * heights[j * size + k];
            columns[k] += share[j * size + k];
        }
    for (int64_t k = 0; k < size; k++) total += columns[k];
    return total;
}

/* w_jk <- ((1 - s) w_jk + s/m) Beta(p; a_j, b_k) for each rate s; a, b from the shapes, m = size of the grid.
 *
 * norm[j, k] = 1/B(a_j, b_k); shares[r, j, k] sum to totals[r].
 */
static const char *beta_extend(double *shares, double *totals, const double *rates, int64_t width, const double *shapes,
                               const double *norm, int64_t size, const double *p, int64_t n, double *out,
                               int64_t stride) {
    double *grid = malloc((size_t)(size * size) * sizeof(double));
    if (!grid) return OUT_OF_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        double top = beta_heights(p[i], shapes, norm, size, grid);
        for (int64_t r = 0; r < width; r++) {
            double stay = (1.0 - rates[r]) / totals[r], move = rates[r] / (double)(size * size);
            totals[r] = beta_step(shares + r * size * size, stay, move, grid, size);
            out[i * stride + r] = ex_exp(top) * totals[r];
        }
    }
    free(grid);
    return NULL;
}

/* shares, totals, rates, shapes, norm */
static const char *beta_check(const Arg *in) {
    int64_t width = in[2].size, size = in[3].size;
    REQUIRE(1 <= size && size <= BETA_SIZE, "there must be 1 to 200 shapes");
    REQUIRE(in[0].size == width * size * size && in[1].size == width, "shares and totals must be those of each rate");
    REQUIRE(in[4].size == size * size, "norm must be a matrix of shapes by shapes");
    return NULL;
}

/* beta(shares, totals, rates, shapes, norm, p, densities) */
static const char *beta(const Arg *in, Arg *out) {
    (void)out;
    const char *wrong = beta_check(in);
    if (wrong) return wrong;
    REQUIRE(in[6].size == in[5].size * in[2].size, "densities must have a row for each p");
    return beta_extend(float64s(&in[0]), float64s(&in[1]), float64s(&in[2]), in[2].size, float64s(&in[3]),
                       float64s(&in[4]), in[3].size, float64s(&in[5]), in[5].size, float64s(&in[6]), in[2].size);
}

#define BETA_KERNELS ENTRY(beta, "DDdddpo"),
#define BETA_CONSTANTS
