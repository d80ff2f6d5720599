/* The adaptive portfolio of 73 bets: a blend of three parts, which are a Bayes blend of the bets, a fixed-share
 * mixture of them, and staying idle. All of it is one call, so that a single step costs little more than its
 * arithmetic. Columns hold densities, not their logarithms.
 */

enum { ADAPTIVE_BETAS = 6 }; /* Beta grids */
enum { /* the first column of each part: */
    COLUMN_KERNELS = 0, /* Jackson kernels: for each order, one per forgetting factor */
    COLUMN_MARKOVS = COLUMN_KERNELS + KERNEL_ORDERS * KERNEL_FORGETTINGS, /* for each factor, the orders */
    COLUMN_BETAS = COLUMN_MARKOVS + MARKOV_ORDERS * MARKOV_FORGETTINGS, /* Beta grids: one per switching rate */
    COLUMN_MIXTURE = COLUMN_BETAS + ADAPTIVE_BETAS, /* the simple mixture of power bets */
    COLUMN_ROUGH, /* two trees */
    COLUMN_SMOOTH,
    PORTFOLIO_COLUMNS,
    PORTFOLIO_PADDED = (PORTFOLIO_COLUMNS + LANES - 1) / LANES * LANES,
};
enum {
    PORTFOLIO_PARTS = 3, /* the blend, the fixed share, and staying idle */
    ADAPTIVE_SIZE = 15, /* of the Beta grid */
    ADAPTIVE_ROUGH = 10,
    ADAPTIVE_SMOOTH = 6, /* depths */
    ADAPTIVE_BLOCK = 64, /* steps */
};
static const double ADAPTIVE_REACH = 2.5;
static const double ADAPTIVE_SWITCHING[ADAPTIVE_BETAS] = {1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3};
static const double PORTFOLIO_SHARE = 1e-3; /* the part that the fixed share moves at each step */
static const double PORTFOLIO_WEIGHTS[PORTFOLIO_PARTS] = {0.40, 0.35, 0.25};
static const double PORTFOLIO_MIN = 0x1p-300, PORTFOLIO_MAX = 0x1p300; /* the range of the products */

/* ------------------------------------------------------------------ Bayes: each share grows by its own bet
 *
 * So that shares never vanish, we store their logs as of some steps ago, the exponentials of these, and separately the
 * products of the densities since then. When a product leaves its range, all logs are updated. Padding has share 0.
 */

static void bayes_fresh(double *log_shares, int64_t count, double *total, const double *shares, int64_t used) {
    double *linear = log_shares + count, *products = linear + count;
    *total = 0.0;
    for (int64_t k = 0; k < count; k++) {
        log_shares[k] = k < used ? ex_log(shares[k]) : -INFINITY;
        linear[k] = k < used ? shares[k] : 0.0;
        products[k] = 1.0;
        *total += linear[k];
    }
}

static void bayes_to_date(double *log_shares, int64_t count, double *total) {
    double *linear = log_shares + count, *products = linear + count, log_total = ex_log(*total);
    *total = 0.0;
    for (int64_t k = 0; k < count; k++) {
        log_shares[k] += ex_log(products[k]) - log_total;
        linear[k] = ex_exp(log_shares[k]);
        products[k] = 1.0;
    }
    for (int64_t k = 0; k < count; k++) *total += linear[k];
}

/* The density of the blend of these densities; then learn them. */
static inline double bayes_step(double *log_shares, int64_t count, double *total, const double *densities) {
    double *linear = log_shares + count, *products = linear + count;
    Lanes sum = lanes_fill(0.0), least = lanes_fill(PORTFOLIO_MIN), most = lanes_fill(PORTFOLIO_MAX);
    LanesMask outside = lanes_less(most, least); /* none */
    for (int64_t k = 0; k < count; k += LANES) {
        Lanes product = lanes_mul(lanes_load(products + k), lanes_load(densities + k));
        lanes_store(products + k, product);
        sum = lanes_add(sum, lanes_mul(lanes_load(linear + k), product));
        outside = lanes_or(outside, lanes_or(lanes_less(product, least), lanes_less(most, product)));
    }
    double grown = lanes_sum(sum), density = grown / *total;
    *total = grown;
    if (lanes_any(outside)) bayes_to_date(log_shares, count, total);
    return density;
}

/* ------------------------------------------------------------------ fixed share
 *
 * Before each bet a part of all capital is spread evenly: w <- ((1 - s) w + s/m (sum of w)) f. The shares are stored
 * without the factor (1 - s)/(sum of w).
 */
static inline double fixed_share_step(double *shares, double *total, const double *densities) {
    const double stay = 1.0 - PORTFOLIO_SHARE;
    double moved = PORTFOLIO_SHARE / (stay * PORTFOLIO_COLUMNS) * *total, last[LANES];
    for (int k = 0; k < LANES; k++) last[k] = PORTFOLIO_PADDED - LANES + k < PORTFOLIO_COLUMNS ? moved : 0.0;
    Lanes sum = lanes_fill(0.0), all = lanes_fill(moved), some = lanes_of(last);
    for (int64_t k = 0; k < PORTFOLIO_PADDED; k += LANES) {
        Lanes to_each = k < PORTFOLIO_PADDED - LANES ? all : some;
        Lanes share = lanes_mul(lanes_add(lanes_load(shares + k), to_each), lanes_load(densities + k));
        lanes_store(shares + k, share);
        sum = lanes_add(sum, share);
    }
    double grown = lanes_sum(sum), density = stay * grown / *total;
    *total = grown;
    if (grown < BETA_MIN || grown > BETA_MAX) beta_rescale(shares, PORTFOLIO_PADDED, total);
    return density;
}

/* ------------------------------------------------------------------ the portfolio */

/* The state of the bet. */
typedef struct {
    double sums[KERNEL_TERMS][LANES];
    double pairs[MARKOV_FORGETTINGS][MARKOV_TERMS][MARKOV_TERMS];
    double last[MARKOV_TERMS];
    double grids[ADAPTIVE_BETAS][ADAPTIVE_SIZE][BETA_LANES];
    double bayes[3][PORTFOLIO_PADDED]; /* log shares, shares, products */
    double fixed[PORTFOLIO_PADDED];
    double parts[3][LANES]; /* the same as `bayes`, for the three parts */
    double totals[ADAPTIVE_BETAS], bayes_total, fixed_total, parts_total;
    double mixture[4];
    TreeNode rough[1 << ADAPTIVE_ROUGH], smooth[1 << ADAPTIVE_SMOOTH];
} Adaptive;

typedef struct {
    double kernels[KERNEL_ORDERS][KERNEL_TERMS];
    double markovs[MARKOV_ORDERS][MARKOV_TERMS];
    double grid[ADAPTIVE_SIZE + 1][BETA_LANES];
} AdaptiveTables;

enum { ADAPTIVE_STATE = sizeof(Adaptive) / sizeof(double), ADAPTIVE_TABLES = sizeof(AdaptiveTables) / sizeof(double) };

typedef struct {
    double p, log_p, log_q, cosine, sine; /* q = 1 - p; cosine and sine are those of pi p */
    double unit;                          /* densities are relative to its exponential */
} AdaptivePoint;

/* The densities of all columns at p; then learn p. */
static inline void adaptive_densities(Adaptive *state, const AdaptiveTables *tables, AdaptivePoint at, double *f) {
    double cosines[KERNEL_TERMS], heights[ADAPTIVE_SIZE * BETA_LANES];
    jackson_cosines(at.cosine, at.sine, KERNEL_TERMS, cosines);
    double top = beta_heights(tables->grid[0], ADAPTIVE_SIZE, BETA_LANES, at.p, at.log_p, at.log_q, heights) - at.unit;
    double factor = top != 0.0 ? ex_exp(top) : 1.0;
    f[COLUMN_MIXTURE] = ex_exp(mixture_step(state->mixture, at.log_p) - at.unit);
    f[COLUMN_ROUGH] = tree_density(tree_step(state->rough, ADAPTIVE_ROUGH, false, at.p, true));
    f[COLUMN_SMOOTH] = tree_density(tree_step(state->smooth, ADAPTIVE_SMOOTH, true, at.p, true));
    for (int k = PORTFOLIO_COLUMNS; k < PORTFOLIO_PADDED; k++) f[k] = 1.0;
    for (int r = 0; r < ADAPTIVE_BETAS; r++) /* by now the first values written have reached the cache */
        f[COLUMN_BETAS + r] = factor * beta_step(state->grids[r][0], &state->totals[r], ADAPTIVE_SWITCHING[r],
                                                 ADAPTIVE_SIZE * ADAPTIVE_SIZE, heights, ADAPTIVE_SIZE * BETA_LANES);
    kernel_bank_step(state->sums, tables->kernels, cosines, f + COLUMN_KERNELS);
    markov_bank_step(state->last, state->pairs, tables->markovs, cosines, f + COLUMN_MARKOVS);
    if (at.unit > 0.0) {
        double rest = ex_exp(-at.unit);
        for (int k = 0; k < COLUMN_BETAS; k++) f[k] *= rest;
        f[COLUMN_ROUGH] *= rest, f[COLUMN_SMOOTH] *= rest;
    }
}

static inline double adaptive_step(Adaptive *state, const AdaptiveTables *tables, AdaptivePoint at) {
    double f[PORTFOLIO_PADDED], parts[LANES];
    adaptive_densities(state, tables, at, f);
    parts[0] = bayes_step(state->bayes[0], PORTFOLIO_PADDED, &state->bayes_total, f);
    parts[1] = fixed_share_step(state->fixed, &state->fixed_total, f);
    parts[2] = at.unit > 0.0 ? ex_exp(-at.unit) : 1.0;
    for (int k = PORTFOLIO_PARTS; k < LANES; k++) parts[k] = 1.0;
    return ex_log(bayes_step(state->parts[0], LANES, &state->parts_total, parts)) + at.unit;
}

typedef struct {
    double log_p[ADAPTIVE_BLOCK], log_q[ADAPTIVE_BLOCK], cosine[ADAPTIVE_BLOCK], sine[ADAPTIVE_BLOCK];
} AdaptiveBlock;

/* The elementary functions of up to 64 steps at once ("flatten" inlines them, so that the loops are vectorised). */
__attribute__((flatten)) static void adaptive_functions(const double *p, int64_t n, AdaptiveBlock *out) {
    for (int64_t i = 0; i < n; i++) out->log_p[i] = ex_log(p[i]);
    for (int64_t i = 0; i < n; i++) out->log_q[i] = beta_log_rest(p[i]);
    for (int64_t i = 0; i < n; i++) out->cosine[i] = ex_cospi(p[i]);
    for (int64_t i = 0; i < n; i++) out->sine[i] = ex_sinpi(p[i]);
}

static void adaptive_block(Adaptive *state, const AdaptiveTables *tables, const double *p, int64_t n, double *gains) {
    AdaptiveBlock of;
    adaptive_functions(p, n, &of);
    for (int64_t i = 0; i < n; i++) {
        AdaptivePoint at = {p[i], of.log_p[i], of.log_q[i], of.cosine[i], of.sine[i], beta_unit(p[i])};
        gains[i] = adaptive_step(state, tables, at);
    }
}

/* adaptive_tables(tables) */
static const char *adaptive_tables(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == ADAPTIVE_TABLES, "tables must have ADAPTIVE_TABLES items");
    AdaptiveTables *tables = in[0].data;
    for (int o = 0; o < KERNEL_ORDERS; o++) jackson_weights_of(KERNEL_ORDER[o], tables->kernels[o], KERNEL_TERMS);
    for (int o = 0; o < MARKOV_ORDERS; o++) jackson_weights_of(MARKOV_ORDER[o], tables->markovs[o], MARKOV_TERMS);
    beta_grid_of(ADAPTIVE_SIZE, ADAPTIVE_REACH, tables->grid[0]);
    return NULL;
}

/* adaptive_fresh(state) */
static const char *adaptive_fresh(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == ADAPTIVE_STATE, "state must have ADAPTIVE_STATE items");
    Adaptive *state = in[0].data;
    memset(state, 0, sizeof *state);
    double even[PORTFOLIO_COLUMNS];
    for (int k = 0; k < PORTFOLIO_COLUMNS; k++) even[k] = 1.0 / PORTFOLIO_COLUMNS;
    for (int r = 0; r < ADAPTIVE_BETAS; r++) {
        for (int j = 0; j < ADAPTIVE_SIZE; j++)
            for (int k = 0; k < ADAPTIVE_SIZE; k++) state->grids[r][j][k] = 1.0 / (ADAPTIVE_SIZE * ADAPTIVE_SIZE);
        state->totals[r] = 1.0;
    }
    bayes_fresh(state->bayes[0], PORTFOLIO_PADDED, &state->bayes_total, even, PORTFOLIO_COLUMNS);
    bayes_fresh(state->parts[0], LANES, &state->parts_total, PORTFOLIO_WEIGHTS, PORTFOLIO_PARTS);
    memcpy(state->fixed, even, sizeof even);
    state->fixed_total = 1.0;
    for (int s = 0; s < 1 << ADAPTIVE_ROUGH; s++) state->rough[s].odds = 1.0;
    for (int s = 0; s < 1 << ADAPTIVE_SMOOTH; s++) state->smooth[s].odds = 1.0;
    return NULL;
}

/* adaptive(state, tables, p, gains) */
static const char *adaptive(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == ADAPTIVE_STATE && in[1].size == ADAPTIVE_TABLES, "state and tables must have their sizes");
    REQUIRE(in[2].size == in[3].size, "gains must be as long as p");
    for (int64_t lo = 0; lo < in[2].size; lo += ADAPTIVE_BLOCK)
        adaptive_block(in[0].data, in[1].data, float64s(&in[2]) + lo, smaller(in[2].size - lo, ADAPTIVE_BLOCK),
                       float64s(&in[3]) + lo);
    return NULL;
}

#define ADAPTIVE_KERNELS ENTRY(adaptive_tables, "D"), ENTRY(adaptive_fresh, "D"), ENTRY(adaptive, "Ddpo"),
#define ADAPTIVE_CONSTANTS CONSTANT(ADAPTIVE_STATE), CONSTANT(ADAPTIVE_TABLES),
