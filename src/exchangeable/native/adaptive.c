/* The adaptive portfolio: 21 bets (columns), mixed by memory share at three rates; the three mixtures and staying idle
 * are a Bayes blend. All of it is one call, so that a single step costs little more than its arithmetic. Columns hold
 * densities, not their logarithms; for p below 1e-200 they are in units of e^400.
 */

enum {
    /* The first column of each part: */
    COLUMN_KERNELS = 0, /* Jackson kernels, mixed at three rates: slow, middle, fast */
    COLUMN_PIT = COLUMN_KERNELS + 3, /* two Markov bets and a regression on the integral of the fast mixture */
    COLUMN_MARKOVS = COLUMN_PIT + 3, /* two forgettings */
    COLUMN_MIXTURE = COLUMN_MARKOVS + 2, /* the gamma mixture of power bets */
    COLUMN_TREE,
    COLUMN_CHAINS, /* powers at either end */
    COLUMN_BETA = COLUMN_CHAINS + 3,
    COLUMN_FADE,
    COLUMN_REGRESSIONS, /* plain, seasonal, seasonal with quick noise, seasonal with noise by regression */
    COLUMN_VOLATILITY = COLUMN_REGRESSIONS + 4,
    COLUMN_SEASON,
    PORTFOLIO_COLUMNS,
    PORTFOLIO_PADDED = (PORTFOLIO_COLUMNS + LANES - 1) / LANES * LANES,
};
enum {
    ADAPTIVE_RATES = 3, /* mixtures of the kernels, and of all columns */
    ADAPTIVE_CHAINS = 3,
    ADAPTIVE_SIZE = 8, /* of the Beta grid */
    ADAPTIVE_DEPTH = 10, /* of the tree */
    ADAPTIVE_PARTS = ADAPTIVE_RATES + 1, /* the mixtures, and staying idle */
    ADAPTIVE_BLOCK = 64, /* steps */
};
static const double ADAPTIVE_REACH = 2.5;
static const Share ADAPTIVE_KERNEL[ADAPTIVE_RATES] = {{1e-5, 0.0}, {1e-3, 0.8}, {1e-2, 0.8}};
static const double ADAPTIVE_FORGETTING_PRIOR[LANES] = {0.4, 0.2, 0.4 / 6, 0.4 / 6, 0.4 / 6, 0.4 / 6, 0.4 / 6, 0.4 / 6};
static const struct {
    double walk;
    Share with;
} ADAPTIVE_CHAIN[ADAPTIVE_CHAINS] = {
    {0.002, {1e-4, 0.0}},
    {0.0, {1e-2, 0.95}},
    {0.0, {3e-2, 0.9}},
};
static const Share ADAPTIVE_BETA = {1e-2, 0.95};
static const Share ADAPTIVE_COLUMNS[ADAPTIVE_RATES] = {{1e-7, 0.9}, {1e-3, 0.9}, {1e-2, 0.9}};
static const double ADAPTIVE_CAPITAL[ADAPTIVE_PARTS] = {0.40, 0.175, 0.175, 0.25};
static const double ADAPTIVE_FORGETTING = 0.998, ADAPTIVE_QUICK = 0.95, ADAPTIVE_VOLATILITY = 0.1;
static const struct {
    int columns;
    double weight;
} ADAPTIVE_GROUPS[] = {
    {1, 0.9}, {1, 0.6}, {1, 0.25}, {3, 0.3}, {2, 0.15}, {2, 0.3},
    {3, 0.6}, {1, 0.2}, {1, 0.3},  {4, 0.5}, {1, 0.05}, {1, 0.15},
};

/* Shares of the kernels, or of the columns, at one rate. */
typedef struct {
    double shares[KERNELS], targets[KERNELS], total;
} AdaptiveKernels;

typedef struct {
    double shares[PORTFOLIO_PADDED], targets[PORTFOLIO_PADDED], total;
} AdaptiveColumns;

/* The state of the bet. */
typedef struct {
    double n; /* steps */
    double sums[KERNEL_TERMS][LANES];
    AdaptiveKernels kernels[ADAPTIVE_RATES];
    double pit_last[16], pit_8[8 * 8], pit_16[16 * 16]; /* Markov */
    double last[16], pairs[2][16 * 16];
    double mixture[3];
    Chain chains[ADAPTIVE_CHAINS];
    double beta[ADAPTIVE_SIZE * ADAPTIVE_SIZE], beta_targets[ADAPTIVE_SIZE * ADAPTIVE_SIZE], beta_total;
    Fade fade;
    Regression plain, seasonal, pit, spread; /* the plain one uses the recent y of the seasonal one */
    Noise quick; /* of the seasonal one */
    double volatility;
    SeasonClock clock;
    SeasonSeries season, spread_season;
    AdaptiveColumns columns[ADAPTIVE_RATES];
    double capital[ADAPTIVE_PARTS], powers[ADAPTIVE_PARTS]; /* capital 2^power, with capital from 2^-100 to 2^100 */
    TreeNode tree[1 << ADAPTIVE_DEPTH];
} Adaptive;

typedef struct {
    double kernels[KERNEL_ORDERS][KERNEL_TERMS], kernel_prior[KERNELS], inverse[KERNEL_TERMS]; /* 1/(k pi) */
    double markov_8[8], markov_16[16];
    double grid[(ADAPTIVE_SIZE + 1) * ADAPTIVE_SIZE], beta_prior[ADAPTIVE_SIZE * ADAPTIVE_SIZE];
    ChainTables chain;
    double prior[PORTFOLIO_PADDED];
    FadeTables fade;
} AdaptiveTables;

enum { ADAPTIVE_STATE = sizeof(Adaptive) / sizeof(double), ADAPTIVE_TABLES = sizeof(AdaptiveTables) / sizeof(double) };

typedef struct {
    double p, log_p, log_q, cosine, sine; /* q = 1 - p; cosine and sine are those of pi p */
    double z; /* the normal score of p */
    double unit, rest; /* densities are relative to exp(unit) = 1/rest */
} AdaptivePoint;

/* ------------------------------------------------------------------ kernels, and serial bets on what they leave */

/* The integral of a mixture of the kernels. */
static inline double adaptive_integral(const AdaptiveKernels *of, const ShareStep *step, const double *integrals) {
    Lanes sum = lanes_fill(0.0);
    for (int k = 0; k < KERNELS; k += LANES) {
        Lanes moved = share_move(step, of->shares + k, of->targets + k);
        sum = lanes_add(sum, lanes_mul(moved, lanes_load(integrals + k)));
    }
    return lanes_sum(sum);
}

/* The three mixtures of kernels at p; then learn p. Returns the integral of the fast one from 0 to p. */
static inline double adaptive_kernels(Adaptive *state, const AdaptiveTables *tables, const AdaptivePoint *at,
                                      const double *cosines, const double *waves, double *f) {
    double densities[KERNELS], integrals[KERNELS], integral = 0.0;
    kernel_bank_step(state->sums, tables->kernels, cosines, waves, at->p, densities, integrals);
    for (int r = 0; r < ADAPTIVE_RATES; r++) {
        AdaptiveKernels *of = &state->kernels[r];
        ShareStep step = share_begin(ADAPTIVE_KERNEL[r], of->total);
        if (r == ADAPTIVE_RATES - 1) integral = adaptive_integral(of, &step, integrals);
        f[COLUMN_KERNELS + r] = of->total = share_bet(&step, of->shares, of->targets, densities, KERNELS);
        share_remember(ADAPTIVE_KERNEL[r], of->shares, of->total, tables->kernel_prior, state->n, of->targets, KERNELS);
    }
    return pit_value(integral, at->p > 0.5);
}

/* Markov bets on u, in columns that still lack the density of the fast mixture. */
static inline void adaptive_pit(Adaptive *state, const AdaptiveTables *tables, double u, double *f) {
    double cosines[16];
    ExTurn turn = ex_turn(u);
    jackson_cosines(turn.cosine, turn.sine, 16, cosines);
    f[COLUMN_PIT] = jackson_markov_step(state->pit_last, state->pit_8, tables->markov_8, 1.0, 8, cosines);
    f[COLUMN_PIT + 1] = jackson_markov_step(state->pit_last, state->pit_16, tables->markov_16, 0.97, 16, cosines);
    memcpy(state->pit_last, cosines, sizeof cosines);
}

static inline void adaptive_markovs(Adaptive *state, const AdaptiveTables *tables, const double *cosines, double *f) {
    f[COLUMN_MARKOVS] = jackson_markov_step(state->last, state->pairs[0], tables->markov_16, 1.0, 16, cosines);
    f[COLUMN_MARKOVS + 1] = jackson_markov_step(state->last, state->pairs[1], tables->markov_16, 0.99, 16, cosines);
    memcpy(state->last, cosines, sizeof state->last);
}

/* ------------------------------------------------------------------ bets on the ends */

__attribute__((flatten)) static inline void adaptive_ends(Adaptive *state, const AdaptiveTables *tables,
                                                          const AdaptivePoint *at, double *f) {
    double low[CHAIN_LINE], high[CHAIN_LINE], heights[CHAIN_STATES], left[ADAPTIVE_SIZE], right[ADAPTIVE_SIZE];
    for (int k = 0; k < CHAIN_LINE; k++) low[k] = ex_exp((tables->chain.shapes[k] - 1.0) * at->log_p - at->unit);
    for (int k = 0; k < CHAIN_LINE; k++) high[k] = ex_exp((tables->chain.shapes[k] - 1.0) * at->log_q);
    for (int k = 0; k < ADAPTIVE_SIZE; k++) { /* the shapes of the grid are every fourth one of the chain */
        left[k] = low[CHAIN_FIRST + 4 * k];
        right[k] = high[CHAIN_FIRST + 4 * k];
        if (at->p == 1.0) right[k] /= tables->grid[k];
    }
    ShareStep step = share_begin(ADAPTIVE_BETA, state->beta_total);
    f[COLUMN_BETA] = state->beta_total =
        beta_step(&step, state->beta, state->beta_targets, tables->grid, ADAPTIVE_SIZE, ADAPTIVE_SIZE, left, right);
    share_remember(ADAPTIVE_BETA, state->beta, state->beta_total, tables->beta_prior, state->n, state->beta_targets,
                   ADAPTIVE_SIZE * ADAPTIVE_SIZE);
    for (int k = 0; k < CHAIN_LINE; k++) high[k] *= at->rest;
    chain_heights(&tables->chain, at->p, low, high, heights);
    for (int k = 0; k < ADAPTIVE_CHAINS; k++)
        f[COLUMN_CHAINS + k] =
            chain_step(&state->chains[k], &tables->chain, ADAPTIVE_CHAIN[k].walk, ADAPTIVE_CHAIN[k].with, heights);
    double factor, exponent = gamma_mixture_step(state->mixture, 1.0, 1.0, at->log_p, &factor);
    f[COLUMN_MIXTURE] = factor * ex_exp(exponent - at->unit);
}

/* ------------------------------------------------------------------ normal laws of the scores */

/* Eight normal laws, and where their densities are asked for. */
enum { LAW_PLAIN, LAW_SEASONAL, LAW_QUICK, LAW_VOLATILITY, LAW_SEASON, LAW_PIT, LAW_SPREAD, LAW_PADDING };
typedef struct {
    double mean[LANES], variance[LANES], z[LANES], unit[LANES];
} AdaptiveNormals;

static inline void adaptive_normal(AdaptiveNormals *of, int k, Normal law, double z, double unit) {
    of->mean[k] = law.mean, of->variance[k] = law.variance, of->z[k] = z, of->unit[k] = unit;
}

/* The densities exp((z^2 - (z - m)^2/v)/2 - unit)/sqrt(v), side by side unless a z is infinite. That of the spread is
 * multiplied by that of the seasonal law: alone it may overflow, but their product is about exp(z^2/2) at most.
 */
__attribute__((flatten)) static inline void adaptive_normals(const AdaptiveNormals *of, double *out) {
    double exponents[LANES], divisors[LANES];
    bool finite = true;
    for (int k = 0; k < LANES; k++) finite &= of->z[k] > -INFINITY;
    for (int k = 0; k < LANES; k++) {
        double rest = of->z[k] - of->mean[k];
        exponents[k] = 0.5 * (of->z[k] * of->z[k] - rest * rest / of->variance[k]) - of->unit[k];
        divisors[k] = sqrt(of->variance[k]);
    }
    for (int k = 0; k < LANES && !finite; k++) {
        exponents[k] = normal_log_density((Normal){of->mean[k], of->variance[k]}, of->z[k]) - of->unit[k];
        divisors[k] = 1.0;
    }
    exponents[LAW_SPREAD] += exponents[LAW_SEASONAL];
    divisors[LAW_SPREAD] *= divisors[LAW_SEASONAL];
    for (int k = 0; k < LANES; k++) out[k] = ex_exp(exponents[k]) / divisors[k];
}

/* What is predicted of the scores of a step: of p, of u (pit), and of the two-sided p-value of the seasonal law. */
typedef struct {
    SeasonPredictors season, spread_season;
    RegressionStep plain, seasonal, pit, spread;
    double pit_z, spread_z;
} AdaptiveScores;

__attribute__((always_inline)) static inline void adaptive_predict(const Adaptive *state, const SeasonStep *now,
                                                                   const AdaptivePoint *at, double u,
                                                                   AdaptiveScores *out) {
    double weights[SEASON_PADDED];
    out->pit_z = normal_score(u);
    season_weights(now, weights);
    season_predict(now, &state->season, weights, &out->season);
    season_predict(now, &state->spread_season, weights, &out->spread_season);
    out->plain = squares_predict(&state->plain.squares, &state->seasonal.recent, 0.0, 0.0);
    out->seasonal = regression_seasonal(&state->seasonal, &state->season, &out->season);
    out->pit = squares_predict(&state->pit.squares, &state->pit.recent, 0.0, 0.0);
    out->spread = regression_seasonal(&state->spread, &state->spread_season, &out->spread_season);
    Normal law = regression_law(&out->seasonal, &state->seasonal.noise);
    out->spread_z = normal_score(pit_two_sided(normal_integral(law, at->z, false)));
}

/* The columns with normal laws, given the fast mixture. */
__attribute__((always_inline)) static inline void adaptive_score_densities(const Adaptive *state,
                                                                           const AdaptiveScores *of,
                                                                           const AdaptivePoint *at, double fast,
                                                                           double *f) {
    AdaptiveNormals laws;
    double densities[LANES];
    adaptive_normal(&laws, LAW_PLAIN, regression_law(&of->plain, &state->plain.noise), at->z, at->unit);
    adaptive_normal(&laws, LAW_SEASONAL, regression_law(&of->seasonal, &state->seasonal.noise), at->z, at->unit);
    adaptive_normal(&laws, LAW_QUICK, regression_law(&of->seasonal, &state->quick), at->z, at->unit);
    adaptive_normal(&laws, LAW_VOLATILITY, (Normal){0.0, volatility_variance(state->volatility)}, at->z, at->unit);
    adaptive_normal(&laws, LAW_SEASON, season_law(&state->season, &of->season), at->z, at->unit);
    adaptive_normal(&laws, LAW_PIT, regression_law(&of->pit, &state->pit.noise), of->pit_z, at->unit);
    adaptive_normal(&laws, LAW_SPREAD, regression_law(&of->spread, &state->spread.noise), of->spread_z, 0.0);
    adaptive_normal(&laws, LAW_PADDING, (Normal){0.0, 1.0}, 0.0, 0.0);
    adaptive_normals(&laws, densities);
    for (int k = LAW_PLAIN; k <= LAW_QUICK; k++) f[COLUMN_REGRESSIONS + k] = densities[k];
    f[COLUMN_REGRESSIONS + 3] = densities[LAW_SPREAD];
    f[COLUMN_VOLATILITY] = densities[LAW_VOLATILITY];
    f[COLUMN_SEASON] = densities[LAW_SEASON];
    f[COLUMN_PIT + 2] = fast * densities[LAW_PIT];
}

__attribute__((always_inline)) static inline void adaptive_learn_scores(Adaptive *state, SeasonStep *now,
                                                                        const AdaptiveScores *of, double z) {
    double cut = normal_cut(z, REGRESSION_CUT);
    squares_learn(&state->plain.squares, &of->plain, 1.0, cut - of->plain.mean);
    noise_learn(&state->plain.noise, 1.0, cut - of->plain.mean, of->plain.q);
    noise_learn(&state->quick, ADAPTIVE_QUICK, cut - of->seasonal.mean, of->seasonal.q);
    regression_learn(&state->seasonal, &of->seasonal, ADAPTIVE_FORGETTING, ADAPTIVE_FORGETTING, z);
    regression_learn(&state->pit, &of->pit, ADAPTIVE_FORGETTING, ADAPTIVE_FORGETTING, of->pit_z);
    regression_learn(&state->spread, &of->spread, ADAPTIVE_FORGETTING, ADAPTIVE_FORGETTING, of->spread_z);
    state->volatility = volatility_next(state->volatility, ADAPTIVE_VOLATILITY, z);
    season_learn(now, &state->season, &of->season, normal_cut(z, NORMAL_FEATURE));
    season_learn(now, &state->spread_season, &of->spread_season, normal_cut(of->spread_z, NORMAL_FEATURE));
    season_advance(now);
    season_review(now, &state->season);
    season_review(now, &state->spread_season);
}

/* ------------------------------------------------------------------ all columns */

/* The densities of all columns at p; then learn p. */
static inline void adaptive_densities(Adaptive *state, SeasonStep *now, const AdaptiveTables *tables,
                                      const AdaptivePoint *at, double *f) {
    double cosines[KERNEL_TERMS], waves[KERNEL_TERMS];
    state->n += 1.0;
    jackson_waves(at->cosine, at->sine, KERNEL_TERMS, cosines, waves);
    for (int k = 0; k < KERNEL_TERMS; k++) waves[k] *= tables->inverse[k];
    adaptive_ends(state, tables, at, f);
    double u = adaptive_kernels(state, tables, at, cosines, waves, f), fast = f[COLUMN_KERNELS + ADAPTIVE_RATES - 1];
    adaptive_pit(state, tables, u, f);
    adaptive_markovs(state, tables, cosines, f);
    f[COLUMN_TREE] = tree_density(tree_step(state->tree, ADAPTIVE_DEPTH, false, at->p, true));
    f[COLUMN_FADE] = fade_step(&state->fade, &tables->fade, at->p);
    f[COLUMN_PIT] *= fast, f[COLUMN_PIT + 1] *= fast;
    if (at->unit > 0.0) { /* those that are not relative to it yet */
        for (int k = 0; k < COLUMN_MIXTURE; k++) f[k] *= at->rest;
        f[COLUMN_TREE] *= at->rest, f[COLUMN_FADE] *= at->rest;
    }
    AdaptiveScores scores;
    adaptive_predict(state, now, at, u, &scores);
    adaptive_score_densities(state, &scores, at, fast, f);
    adaptive_learn_scores(state, now, &scores, at->z);
    for (int k = PORTFOLIO_COLUMNS; k < PORTFOLIO_PADDED; k++) f[k] = 0.0;
}

/* ------------------------------------------------------------------ the blend of the parts */

static inline double adaptive_highest(const Adaptive *state) {
    double highest = state->powers[0];
    for (int k = 1; k < ADAPTIVE_PARTS; k++) highest = state->powers[k] > highest ? state->powers[k] : highest;
    return highest;
}

/* The capital of all parts, in units of 2^highest. */
static inline double adaptive_worth(const Adaptive *state, double highest) {
    double sum = 0.0;
    for (int k = 0; k < ADAPTIVE_PARTS; k++) {
        double below = highest - state->powers[k];
        sum += state->capital[k] * (below == 0.0 ? 1.0 : below < 1000.0 ? ldexp(1.0, -(int)below) : 0.0);
    }
    return sum;
}

/* Multiply the capital of a part. Densities are between 1e-200 and 1e200. */
static inline void adaptive_grow(double *capital, double *power, double density) {
    *capital *= density;
    if (*capital > 0x1p-100 && *capital < 0x1p100) return;
    int exponent;
    *capital = frexp(*capital, &exponent);
    *power += exponent;
}

/* The log of the factor by which the capital of all parts grows if each part grows by its density. */
static inline double adaptive_blend(Adaptive *state, const double *densities) {
    double before = adaptive_highest(state), worth = adaptive_worth(state, before);
    for (int k = 0; k < ADAPTIVE_PARTS; k++) adaptive_grow(&state->capital[k], &state->powers[k], densities[k]);
    double after = adaptive_highest(state), density = adaptive_worth(state, after) / worth;
    return ex_log(after == before ? density : ldexp(density, (int)(after - before)));
}

static inline double adaptive_step(Adaptive *state, SeasonStep *now, const AdaptiveTables *tables,
                                   const AdaptivePoint *at) {
    double f[PORTFOLIO_PADDED], parts[ADAPTIVE_PARTS];
    adaptive_densities(state, now, tables, at, f);
    for (int r = 0; r < ADAPTIVE_RATES; r++) {
        AdaptiveColumns *of = &state->columns[r];
        ShareStep step = share_begin(ADAPTIVE_COLUMNS[r], of->total);
        parts[r] = of->total = share_bet(&step, of->shares, of->targets, f, PORTFOLIO_PADDED);
        share_remember(ADAPTIVE_COLUMNS[r], of->shares, of->total, tables->prior, state->n, of->targets,
                       PORTFOLIO_PADDED);
    }
    parts[ADAPTIVE_RATES] = at->rest;
    return adaptive_blend(state, parts) + at->unit;
}

typedef struct {
    double log_p[ADAPTIVE_BLOCK], log_q[ADAPTIVE_BLOCK], cosine[ADAPTIVE_BLOCK], sine[ADAPTIVE_BLOCK],
        z[ADAPTIVE_BLOCK];
} AdaptiveBlock;

/* The elementary functions of up to 64 steps at once ("flatten" inlines them, so that the loops are vectorised). */
__attribute__((flatten)) static void adaptive_functions(const double *p, int64_t n, AdaptiveBlock *out) {
    for (int64_t i = 0; i < n; i++) out->log_p[i] = ex_log(p[i]);
    for (int64_t i = 0; i < n; i++) out->log_q[i] = beta_log_rest(p[i]);
    for (int64_t i = 0; i < n; i++) out->cosine[i] = ex_cospi(p[i]);
    for (int64_t i = 0; i < n; i++) out->sine[i] = pit_sine(p[i]);
    for (int64_t i = 0; i < n; i++) out->z[i] = normal_score(p[i]);
}

static void adaptive_block(Adaptive *state, SeasonStep *now, const AdaptiveTables *tables, const double *p, int64_t n,
                           double *gains) {
    AdaptiveBlock of;
    adaptive_functions(p, n, &of);
    for (int64_t i = 0; i < n; i++) {
        double unit = beta_unit(p[i]), rest = unit > 0.0 ? ex_exp(-unit) : 1.0;
        AdaptivePoint at = {p[i], of.log_p[i], of.log_q[i], of.cosine[i], of.sine[i], of.z[i], unit, rest};
        gains[i] = adaptive_step(state, now, tables, &at);
    }
}

/* ------------------------------------------------------------------ entries */

/* The shares of the columns: those of the groups, divided evenly inside. */
static void adaptive_prior(double *out) {
    int groups = sizeof ADAPTIVE_GROUPS / sizeof ADAPTIVE_GROUPS[0], at = 0;
    double sum = 0.0;
    for (int g = 0; g < groups; g++) sum += ADAPTIVE_GROUPS[g].weight;
    for (int g = 0; g < groups; g++)
        for (int k = 0; k < ADAPTIVE_GROUPS[g].columns; k++)
            out[at++] = ADAPTIVE_GROUPS[g].weight / (sum * ADAPTIVE_GROUPS[g].columns);
}

/* adaptive_tables(tables) */
static const char *adaptive_tables(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == ADAPTIVE_TABLES, "tables must have ADAPTIVE_TABLES items");
    AdaptiveTables *tables = in[0].data;
    memset(tables, 0, sizeof *tables);
    for (int o = 0; o < KERNEL_ORDERS; o++) jackson_weights_of(KERNEL_ORDER[o], tables->kernels[o], KERNEL_TERMS);
    for (int k = 0; k < KERNELS; k++) tables->kernel_prior[k] = ADAPTIVE_FORGETTING_PRIOR[k % LANES] / KERNEL_ORDERS;
    for (int k = 1; k < KERNEL_TERMS; k++) tables->inverse[k] = 1.0 / (PI * k);
    jackson_weights_of(8, tables->markov_8, 8);
    jackson_weights_of(16, tables->markov_16, 16);
    beta_grid_of(ADAPTIVE_SIZE, ADAPTIVE_REACH, tables->grid);
    beta_prior(ADAPTIVE_SIZE, tables->beta_prior);
    chain_tables_of(&tables->chain, ADAPTIVE_REACH);
    adaptive_prior(tables->prior);
    fade_tables_of(&tables->fade);
    return NULL;
}

static void adaptive_fresh_shares(Adaptive *state, const AdaptiveTables *tables) {
    for (int r = 0; r < ADAPTIVE_RATES; r++) {
        memcpy(state->kernels[r].shares, tables->kernel_prior, sizeof tables->kernel_prior);
        memcpy(state->kernels[r].targets, tables->kernel_prior, sizeof tables->kernel_prior);
        memcpy(state->columns[r].shares, tables->prior, sizeof tables->prior);
        memcpy(state->columns[r].targets, tables->prior, sizeof tables->prior);
        state->kernels[r].total = state->columns[r].total = 1.0;
    }
    memcpy(state->beta, tables->beta_prior, sizeof tables->beta_prior);
    memcpy(state->beta_targets, tables->beta_prior, sizeof tables->beta_prior);
    state->beta_total = 1.0;
    for (int k = 0; k < ADAPTIVE_CHAINS; k++) chain_fresh(&state->chains[k], &tables->chain);
    memcpy(state->capital, ADAPTIVE_CAPITAL, sizeof ADAPTIVE_CAPITAL);
}

/* adaptive_fresh(state, tables) */
static const char *adaptive_fresh(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == ADAPTIVE_STATE && in[1].size == ADAPTIVE_TABLES,
            "state must have ADAPTIVE_STATE items, and tables ADAPTIVE_TABLES");
    Adaptive *state = in[0].data;
    memset(state, 0, sizeof *state);
    adaptive_fresh_shares(state, in[1].data);
    fade_start(&state->fade);
    regression_start(&state->plain, REGRESSION_PLAIN);
    regression_start(&state->seasonal, REGRESSION_FEATURES);
    regression_start(&state->pit, REGRESSION_PLAIN);
    regression_start(&state->spread, REGRESSION_FEATURES);
    state->quick = (Noise){REGRESSION_NOISE, REGRESSION_NOISE};
    state->volatility = 1.0;
    season_clock_fresh(&state->clock);
    season_series_fresh(&state->season);
    season_series_fresh(&state->spread_season);
    for (int s = 0; s < 1 << ADAPTIVE_DEPTH; s++) state->tree[s].odds = 1.0;
    return NULL;
}

static void adaptive_path(Adaptive *state, const AdaptiveTables *tables, const double *p, int64_t n, double *gains) {
    SeasonStep now = season_open(&state->clock);
    for (int64_t lo = 0; lo < n; lo += ADAPTIVE_BLOCK)
        adaptive_block(state, &now, tables, p + lo, smaller(n - lo, ADAPTIVE_BLOCK), gains + lo);
    season_close(&state->clock, &now);
}

/* adaptive(state, tables, p, gains) */
static const char *adaptive(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == ADAPTIVE_STATE && in[1].size == ADAPTIVE_TABLES,
            "state must have ADAPTIVE_STATE items, and tables ADAPTIVE_TABLES");
    REQUIRE(in[2].size == in[3].size, "gains must be as long as p");
    adaptive_path(in[0].data, in[1].data, float64s(&in[2]), in[2].size, float64s(&in[3]));
    return NULL;
}

#define ADAPTIVE_KERNELS ENTRY(adaptive_tables, "D"), ENTRY(adaptive_fresh, "Dd"), ENTRY(adaptive, "Ddpo"),
#define ADAPTIVE_CONSTANTS CONSTANT(ADAPTIVE_STATE), CONSTANT(ADAPTIVE_TABLES),
