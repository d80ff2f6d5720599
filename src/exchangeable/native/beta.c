/* Beta densities on a grid of shapes, with memory share (share.h) between them:
 *
 *     w_jk <- ((1 - s) w_jk + s ((1 - g)/m + g r_jk)) Beta(p; a_j, b_k) ,   s = switching, g = memory, m = size^2 ,
 *
 * where a and b run over the shapes exp(reach t |t|) for `size` evenly spaced t from -1 to 1; they are denser near
 * t = 0, where the density is uniform. p = 1 stands for the p-values in (1 - 2^-54, 1], which round to it: there a
 * Beta density is replaced by its mean over them, which is finite.
 *
 * A grid is a matrix with the shapes in row 0 and 1/B(a_j, b_k) in row j + 1; rows are
 * padded to a multiple of 8, and the padding has density 0.
 */

enum { BETA_LARGEST = 200 }; /* the largest size */
static const double BETA_TINY = 1e-200, BETA_UNIT = 400.0; /* below that p, densities are in units of e^400 */
static const double BETA_FAR = -64.0; /* below that log of p or 1 - p, densities are relative to the largest */

static inline int64_t beta_padded(int64_t size) { return (size + LANES - 1) / LANES * LANES; }

/* Gamma(x) for 0 < x < 100, as Gamma(1 + t) (1 + t) ... (n - 1 + t) with x = n + t: more exact than exp(lgamma(x)). */
static double beta_gamma(double x) {
    double n = floor(x), t = x - n, value = ex_exp(ex_lgamma(1.0 + t));
    for (double k = 1.0; k < n; k += 1.0) value *= k + t;
    return n > 0.0 ? value : value / x;
}

/* Shape k of `size`: exp(reach t |t|) for evenly spaced t from -1 to 1. */
static double beta_shape(int64_t k, int64_t size, double reach) {
    double t = (2.0 * (double)k - (double)(size - 1)) / (double)(size - 1);
    return ex_exp(reach * t * fabs(t));
}

static void beta_grid_of(int64_t size, double reach, double *out) {
    int64_t width = beta_padded(size);
    double gamma[BETA_LARGEST];
    for (int64_t k = 0; k < width; k++) {
        out[k] = k < size ? beta_shape(k, size, reach) : 1.0;
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

/* The powers of p and of 1 - p; the log of their common factor is returned: 0 except for extreme p. */
static inline double beta_both_powers(const double *shapes, int64_t width, double p, double log_p, double log_q,
                                      double *left, double *right) {
    double top = beta_powers(shapes, width, log_p, left) + beta_powers(shapes, width, log_q, right);
    if (p == 1.0)
        for (int64_t k = 0; k < width; k++) right[k] /= shapes[k];
    return top;
}

/* log(1 - p), or its replacement at p = 1. */
static inline double beta_log_rest(double p) { return p == 1.0 ? PIT_LOG_CELL : ex_log1p(-p); }

/* The log of the unit of the densities at p. */
static inline double beta_unit(double p) { return p < BETA_TINY ? BETA_UNIT : 0.0; }

/* The density of all Beta laws, from the powers of p (left) and 1 - p (right); then learn. */
static inline double beta_step(const ShareStep *step, double *weights, const double *targets, const double *grid,
                               int64_t size, int64_t width, const double *left, const double *right) {
    Lanes sum = lanes_fill(0.0);
    for (int64_t j = 0; j < size; j++) {
        Lanes factor = lanes_fill(left[j]);
        for (int64_t k = 0, at = j * width; k < width; k += LANES, at += LANES) {
            Lanes height = lanes_mul(lanes_mul(factor, lanes_load(right + k)), lanes_load(grid + width + at));
            Lanes grown = lanes_mul(share_move(step, weights + at, targets + at), height);
            lanes_store(weights + at, grown);
            sum = lanes_add(sum, grown);
        }
    }
    return lanes_sum(sum);
}

/* The even prior, without padding. */
static void beta_prior(int64_t size, double *out) {
    for (int64_t k = 0; k < size * beta_padded(size); k++)
        out[k] = k % beta_padded(size) < size ? 1.0 / (double)(size * size) : 0.0;
}

/* ------------------------------------------------------------------ powers at either end
 *
 * The laws Beta(a, 1) and Beta(1, a) for the shapes a of a grid of size 29, as two lines. Before memory share a part d
 * of each share walks to its neighbours, half to either side; at an end of a line, one half stays.
 */

enum { CHAIN_SIZE = 29, CHAIN_LINE = 32, CHAIN_STATES = 2 * CHAIN_LINE };
enum { CHAIN_FIRST = 1 }; /* shares of a line: items 1 to 29 of 32 */

typedef struct {
    double shares[CHAIN_STATES], targets[CHAIN_STATES], total, n;
} Chain;

typedef struct {
    double shapes[CHAIN_LINE], prior[CHAIN_STATES], norms[CHAIN_STATES], norms_at_one[CHAIN_STATES];
} ChainTables;

enum { CHAIN_STATE = sizeof(Chain) / sizeof(double), CHAIN_TABLES = sizeof(ChainTables) / sizeof(double) };

static void chain_tables_of(ChainTables *tables, double reach) {
    memset(tables, 0, sizeof *tables);
    for (int k = 0; k < CHAIN_LINE; k++) {
        int high = k + CHAIN_LINE;
        tables->shapes[k] = 1.0;
        if (k < CHAIN_FIRST || k >= CHAIN_FIRST + CHAIN_SIZE) continue;
        tables->shapes[k] = beta_shape(k - CHAIN_FIRST, CHAIN_SIZE, reach);
        tables->prior[k] = tables->prior[high] = 1.0 / (2 * CHAIN_SIZE);
        tables->norms[k] = tables->norms[high] = tables->norms_at_one[k] = tables->shapes[k];
        tables->norms_at_one[high] = 1.0; /* there the powers of 1 - p are means over what rounds to p = 1 */
    }
}

static void chain_fresh(Chain *state, const ChainTables *tables) {
    memset(state, 0, sizeof *state);
    memcpy(state->shares, tables->prior, sizeof state->shares);
    memcpy(state->targets, tables->prior, sizeof state->targets);
    state->total = 1.0;
}

/* The densities of all states, from the powers of p and of 1 - p. */
static inline void chain_heights(const ChainTables *tables, double p, const double *low, const double *high,
                                 double *out) {
    const double *norms = p == 1.0 ? tables->norms_at_one : tables->norms;
    for (int k = 0; k < CHAIN_LINE; k += LANES) {
        lanes_store(out + k, lanes_mul(lanes_load(norms + k), lanes_load(low + k)));
        lanes_store(out + k + CHAIN_LINE, lanes_mul(lanes_load(norms + k + CHAIN_LINE), lanes_load(high + k)));
    }
}

/* What the walk adds to each share: half of the part d of its neighbours, less d of its own. At an end of a line the
 * neighbour that is missing counts as equal; the padding has room for it.
 */
static inline void chain_walk(double *restrict shares, double part, double *restrict out) {
    for (int line = 0; line < CHAIN_STATES; line += CHAIN_LINE) {
        double *restrict at = shares + line + CHAIN_FIRST, *restrict to = out + line + CHAIN_FIRST;
        at[-1] = at[0], at[CHAIN_SIZE] = at[CHAIN_SIZE - 1];
        for (int k = 0; k < CHAIN_SIZE; k++) to[k] = 0.5 * part * ((at[k - 1] - at[k]) + (at[k + 1] - at[k]));
    }
}

/* The density; then learn. */
static inline double chain_step(Chain *state, const ChainTables *tables, double walk, Share with,
                                const double *heights) {
    ShareStep step = share_begin(with, state->total);
    if (walk > 0.0) {
        double walked[CHAIN_STATES] = {0.0};
        chain_walk(state->shares, walk, walked);
        for (int k = 0; k < CHAIN_STATES; k += LANES)
            lanes_store(state->shares + k, lanes_add(lanes_load(state->shares + k), lanes_load(walked + k)));
    }
    state->total = share_bet(&step, state->shares, state->targets, heights, CHAIN_STATES);
    state->n += 1.0;
    share_remember(with, state->shares, state->total, tables->prior, state->n, state->targets, CHAIN_STATES);
    return state->total;
}

/* ------------------------------------------------------------------ entries */

/* beta_grid(size, reach, grid) */
static const char *beta_grid(const Arg *in, Arg *out) {
    (void)out;
    int64_t size = in[0].integer;
    REQUIRE(2 <= size && size <= BETA_LARGEST, "size must be from 2 to 200");
    REQUIRE(0.0 < in[1].real && in[1].real <= 3.0, "reach must be in (0, 3]");
    REQUIRE(in[2].size == (size + 1) * beta_padded(size), "grid must have size + 1 rows, padded to 8");
    beta_grid_of(size, in[1].real, float64s(&in[2]));
    return NULL;
}

/* beta_fresh(weights, targets) */
static const char *beta_fresh(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].ndim == 2 && in[0].shape[1] == beta_padded(in[0].shape[0]) && in[1].size == in[0].size,
            "weights and targets must have a row for each shape, padded to 8");
    beta_prior(in[0].shape[0], float64s(&in[0]));
    beta_prior(in[0].shape[0], float64s(&in[1]));
    return NULL;
}

/* beta(weights, targets, scalars, grid, switching, memory, p, gains); scalars are the sum of the weights, and n */
static const char *beta(const Arg *in, Arg *out) {
    (void)out;
    int64_t size = in[0].shape[0], width = in[0].shape[1], count = in[0].size;
    Share with = {in[4].real, in[5].real};
    REQUIRE(in[0].ndim == 2 && 2 <= size && size <= BETA_LARGEST && width == beta_padded(size),
            "weights must have 2 to 200 rows, padded to 8");
    REQUIRE(in[1].size == count && in[2].size == 2 && in[3].size == (size + 1) * width,
            "targets, scalars and grid must fit weights");
    REQUIRE(in[6].size == in[7].size, "gains must be as long as p");
    double left[BETA_LARGEST], right[BETA_LARGEST], *weights = float64s(&in[0]), *scalars = float64s(&in[2]);
    double *prior = malloc((size_t)count * sizeof(double));
    if (!prior) return OUT_OF_MEMORY;
    beta_prior(size, prior);
    for (int64_t i = 0; i < in[6].size; i++) {
        double p = float64s(&in[6])[i];
        double top = beta_both_powers(float64s(&in[3]), width, p, ex_log(p), beta_log_rest(p), left, right);
        ShareStep step = share_begin(with, scalars[0]);
        scalars[0] = beta_step(&step, weights, float64s(&in[1]), float64s(&in[3]), size, width, left, right);
        scalars[1] += 1.0;
        share_remember(with, weights, scalars[0], prior, scalars[1], float64s(&in[1]), count);
        float64s(&in[7])[i] = top + ex_log(scalars[0]);
    }
    free(prior);
    return NULL;
}

/* power_chain_tables(reach, tables) */
static const char *power_chain_tables(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[1].size == CHAIN_TABLES, "tables must have CHAIN_TABLES items");
    chain_tables_of(in[1].data, in[0].real);
    return NULL;
}

/* power_chain_fresh(state, tables) */
static const char *power_chain_fresh(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == CHAIN_STATE && in[1].size == CHAIN_TABLES,
            "state must have CHAIN_STATE items, and tables CHAIN_TABLES");
    chain_fresh(in[0].data, in[1].data);
    return NULL;
}

/* power_chain(state, tables, walk, share, memory, p, gains) */
static const char *power_chain(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == CHAIN_STATE && in[1].size == CHAIN_TABLES,
            "state must have CHAIN_STATE items, and tables CHAIN_TABLES");
    REQUIRE(in[5].size == in[6].size, "gains must be as long as p");
    const ChainTables *tables = in[1].data;
    for (int64_t i = 0; i < in[5].size; i++) {
        double low[CHAIN_LINE], high[CHAIN_LINE], heights[CHAIN_STATES], p = float64s(&in[5])[i], log_p = ex_log(p);
        double unit = beta_unit(p);
        for (int k = 0; k < CHAIN_LINE; k++) low[k] = ex_exp((tables->shapes[k] - 1.0) * log_p - unit);
        for (int k = 0; k < CHAIN_LINE; k++) high[k] = ex_exp((tables->shapes[k] - 1.0) * beta_log_rest(p) - unit);
        chain_heights(tables, p, low, high, heights);
        Share with = {in[3].real, in[4].real};
        float64s(&in[6])[i] = ex_log(chain_step(in[0].data, tables, in[2].real, with, heights)) + unit;
    }
    return NULL;
}

#define BETA_KERNELS \
    ENTRY(beta_grid, "nfD"), ENTRY(beta_fresh, "DD"), ENTRY(beta, "DDDdffpo"), ENTRY(power_chain_tables, "fD"), \
        ENTRY(power_chain_fresh, "Dd"), ENTRY(power_chain, "Ddfffpo"),
#define BETA_CONSTANTS CONSTANT(CHAIN_STATE), CONSTANT(CHAIN_TABLES),
