/* The adaptive portfolio: all its loops in one call, so that a single step costs little more than its arithmetic. */

enum {
    ADAPTIVE_BLOCK = 1024, /* steps whose densities are held at a time */
    PORTFOLIO_EVERY = 16,  /* steps after which a portfolio brings its log shares up to date */
};
static const double ADAPTIVE_TINY = 1e-200, ADAPTIVE_UNIT = 400.0; /* below that p, densities are in units of e^400 */
static const double PORTFOLIO_EXTREME = 1e8; /* densities beyond it, or below its inverse, make it do so at once */

typedef struct {
    double *log_shares, *linear, *products, *state, *shares, *log_parts;
    double rate;
    int64_t columns;
} Portfolio;

/* Bring the log shares up to date, and take the linear ones from them. */
static void portfolio_to_date(Portfolio of) {
    for (int64_t k = 0; k < of.columns; k++) {
        of.log_shares[k] += ex_log(of.products[k]) - of.state[1];
        of.linear[k] = ex_exp(of.log_shares[k]);
        of.products[k] = 1.0;
    }
    of.state[0] = of.state[1] = 0.0;
}

/* A Bayes blend, a fixed share and idleness, blended: on densities in units of exp(unit).
 *
 * The shares of the Bayes blend are kept twice: in log_shares, which never underflow, as they were some steps ago, and in
 * linear, as they are now. The products of the densities since then bring the first up to date every few steps (state:
 * how many, and the log of what the blend gained in them), or when a density is extreme.
 */
static double portfolio_step(Portfolio of, const double *f, double unit) {
    double blended = 0.0, switched = 0.0, least = INFINITY, most = 0.0, m = (double)of.columns;
    for (int64_t k = 0; k < of.columns; k++) {
        if (f[k] < least) least = f[k];
        if (f[k] > most) most = f[k];
        of.linear[k] *= f[k];
        of.products[k] *= f[k];
        of.shares[k] = ((1.0 - of.rate) * of.shares[k] + of.rate / m) * f[k];
        blended += of.linear[k];
        switched += of.shares[k];
    }
    for (int64_t k = 0; k < of.columns; k++) {
        of.linear[k] /= blended;
        of.shares[k] /= switched;
    }
    double log_blended = ex_log(blended), parts[3] = {log_blended + unit, ex_log(switched) + unit, 0.0};
    of.state[0] += 1.0;
    of.state[1] += log_blended;
    if (of.state[0] == PORTFOLIO_EVERY || most > PORTFOLIO_EXTREME || least < 1.0 / PORTFOLIO_EXTREME)
        portfolio_to_date(of);
    double top = of.log_parts[2], total = 0.0;
    for (int k = 0; k < 2; k++)
        if (of.log_parts[k] + parts[k] > top) top = of.log_parts[k] + parts[k];
    for (int k = 0; k < 3; k++) total += ex_exp(of.log_parts[k] + parts[k] - top);
    double gain = top + ex_log(total);
    for (int k = 0; k < 3; k++) of.log_parts[k] += parts[k] - gain;
    return gain;
}

typedef struct {
    double *counts, *log_own, *log_mixed;
    int64_t depth;
} AdaptiveTree;

typedef struct {
    double *sums, *last, *pairs, *grid, *totals, *mixed;
    AdaptiveTree rough, smooth;
    Portfolio shares;
    Jackson of_kernels, of_markovs;
    const double *rates, *shapes, *norm;
    int64_t betas, size;
} Adaptive;

/* Densities, in units of exp(units), from a column on; the next column. */
static int64_t adaptive_fill(double *densities, int64_t columns, int64_t start, int64_t width, int64_t n,
                             const double *units) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < width; k++) densities[i * columns + start + k] *= ex_exp(-units[i]);
    return start + width;
}

static int64_t adaptive_fill_logs(double *densities, int64_t columns, int64_t column, const double *gains, int64_t n,
                                  const double *units) {
    for (int64_t i = 0; i < n; i++) densities[i * columns + column] = ex_exp(gains[i] - units[i]);
    return column + 1;
}

static int64_t adaptive_tree(AdaptiveTree of, bool smooth, const double *p, int64_t n, double *densities,
                             int64_t columns, int64_t at, double *gains, const double *units) {
    for (int64_t i = 0; i < n; i++)
        gains[i] = tree_log_gain(of.counts, of.log_own, of.log_mixed, of.depth, smooth, p[i], true);
    return adaptive_fill_logs(densities, columns, at, gains, n, units);
}

/* Bet on each p, put the log densities into gains, then learn it. */
static const char *adaptive_block(Adaptive of, const double *p, int64_t n, double *gains, double *densities) {
    double units[ADAPTIVE_BLOCK];
    int64_t columns = of.shares.columns, at = 0;
    for (int64_t i = 0; i < n; i++) units[i] = p[i] < ADAPTIVE_TINY ? ADAPTIVE_UNIT : 0.0;
    if (jackson_kernel(of.sums, of.of_kernels, p, n, densities, columns)) return OUT_OF_MEMORY;
    at = adaptive_fill(densities, columns, at, of.of_kernels.width * of.of_kernels.lanes, n, units);
    if (jackson_markov(of.last, of.pairs, of.of_markovs, p, n, densities + at, columns)) return OUT_OF_MEMORY;
    at = adaptive_fill(densities, columns, at, of.of_markovs.width * of.of_markovs.lanes, n, units);
    if (beta_extend(of.grid, of.totals, of.rates, of.betas, of.shapes, of.norm, of.size, p, n, densities + at, columns))
        return OUT_OF_MEMORY;
    at = adaptive_fill(densities, columns, at, of.betas, n, units);
    mixture_extend(of.mixed, p, n, gains);
    at = adaptive_fill_logs(densities, columns, at, gains, n, units);
    at = adaptive_tree(of.rough, false, p, n, densities, columns, at, gains, units);
    adaptive_tree(of.smooth, true, p, n, densities, columns, at, gains, units);
    for (int64_t i = 0; i < n; i++) gains[i] = portfolio_step(of.shares, densities + i * columns, units[i]);
    return NULL;
}

/* adaptive(sums, last, pairs, grid, totals, mixed, rough x 3, smooth x 3,
 *          log_shares, linear, products, state, shares, log_parts,
 *          weights, orders, forgetting, weights, orders, forgetting, rates, shapes, norm, depth, depth, rate, p, gains)
 */
static const char *adaptive(const Arg *in, Arg *out) {
    (void)out;
    Adaptive of = {
        .sums = float64s(&in[0]),
        .last = float64s(&in[1]),
        .pairs = float64s(&in[2]),
        .grid = float64s(&in[3]),
        .totals = float64s(&in[4]),
        .mixed = float64s(&in[5]),
        .rough = {float64s(&in[6]), float64s(&in[7]), float64s(&in[8]), in[27].integer},
        .smooth = {float64s(&in[9]), float64s(&in[10]), float64s(&in[11]), in[28].integer},
        .shares = {float64s(&in[12]), float64s(&in[13]), float64s(&in[14]), float64s(&in[15]), float64s(&in[16]),
                   float64s(&in[17]), in[29].real, in[12].size},
        .rates = float64s(&in[24]),
        .shapes = float64s(&in[25]),
        .norm = float64s(&in[26]),
        .betas = in[24].size,
        .size = in[25].size,
    };
    const char *wrong = jackson_of(in + 18, &of.of_kernels);
    if (!wrong) wrong = jackson_of(in + 21, &of.of_markovs);
    if (!wrong) wrong = tree_check(in + 6, in[27].integer);
    if (!wrong) wrong = tree_check(in + 9, in[28].integer);
    if (wrong) return wrong;
    REQUIRE(in[30].size == in[31].size, "gains must be as long as p");
    double *densities = malloc((size_t)(ADAPTIVE_BLOCK * in[12].size) * sizeof(double));
    if (!densities) return OUT_OF_MEMORY;
    for (int64_t lo = 0; lo < in[30].size && !wrong; lo += ADAPTIVE_BLOCK)
        wrong = adaptive_block(of, float64s(&in[30]) + lo, smaller(in[30].size - lo, ADAPTIVE_BLOCK),
                               float64s(&in[31]) + lo, densities);
    free(densities);
    return wrong;
}

#define ADAPTIVE_KERNELS ENTRY(adaptive, "DDDDDDDDDDDDDDDDDDdqddqddddnnfpo"),
#define ADAPTIVE_CONSTANTS CONSTANT(PORTFOLIO_EVERY),
