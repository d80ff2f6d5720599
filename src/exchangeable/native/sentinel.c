/* A mixture of Shiryaev-Roberts statistics over 206 bets, used as a bet.
 *
 *     f(p) = sum_k (w_k + psi_k) f_k(p) / (1 + sum_k psi_k) ,   then   psi_k <- (w_k + psi_k) f_k(p)
 *
 * The bets f_k, with z = Phi^-1(1 - p):
 *
 *     shift      .20   z ~ N(+-m, 1), m = 0.15 x 1.6^j, j < 7, with weights proportional to 1/m
 *     power      .10   Beta(a, 1) and Beta(1, a), a = 1/3, 1/2, 2/3, 0.8, 1.25, 1.5, 2, 3
 *     wider      .05   z ~ N(0, s^2), s = 1.15, 1.3, 1.5, 2, 3
 *     narrower   .05   the same, s = 0.87, 0.75, 0.6, 0.4
 *     tails      .12   1 - w + w Beta(e, 1), e = 0.1, 0.4, w = 0.03, 0.1, 0.3; at the lower end, the upper, or both
 *     spikes     .08   1 - w + w U[0, a], a = 2^-6, 2^-7, 2^-8, 2^-9, 2^-11, w = 0.05, 0.15, 0.4; the same ends
 *     blocks     .09   height h = 1 + A sqrt((1 - a)/a) on [0, a], and constant elsewhere, a = 2^-1 .. 2^-6,
 *                      A = 0.3, 0.6, 1.2, if a h < 0.95; at the lower or the upper end
 *     octaves    .06   the same height on [a, 2a], a = 2^-2 .. 2^-6
 *     serial     .06   z ~ N(rho z', 1 - rho^2) given the z' before, rho = +-0.2, 0.4, 0.6, 0.8
 *     learners   .19   (1 + sum_d K(p, d) N_d)/(1 + sum_d N_d), where N_d counts the p-values in cell d and is multiplied
 *                      by 0.998, 0.995, 0.99 or 0.97 in each step; the kernels K are N(r z_d, 1 - r^2)/N(0, 1),
 *                      r = 0.6, 0.8, 0.9, 0.96, and those of Jackson of order 2, 3, 4, 8
 *
 * Weights are equal within a family unless said. All densities are constant on cells with exact masses: 8 per octave
 * down to 2^-30 for the fixed bets, 4 per octave down to 2^-8 for serial bets and learners, which see only the cell of
 * an earlier p-value (z' and z_d are the scores of its middle).
 */

enum {
    SENTINEL_OCTAVES = 30,
    SENTINEL_BITS = 3,
    SENTINEL_FINE = 2 * CELLS_SIDE(SENTINEL_OCTAVES, SENTINEL_BITS),
    SENTINEL_COARSE_OCTAVES = 8,
    SENTINEL_COARSE_BITS = 2,
    SENTINEL_COARSE = 2 * CELLS_SIDE(SENTINEL_COARSE_OCTAVES, SENTINEL_COARSE_BITS),
    SENTINEL_FIXED = 168, /* 166, padded with two of weight 0 */
    SENTINEL_SERIAL = LANES,
    SENTINEL_MEMORIES = 4,
    SENTINEL_BETS = SENTINEL_FIXED + SENTINEL_SERIAL + SENTINEL_MEMORIES * LANES,
};
static const Cells SENTINEL_GRID = {SENTINEL_OCTAVES, SENTINEL_BITS};
static const Cells SENTINEL_COARSE_GRID = {SENTINEL_COARSE_OCTAVES, SENTINEL_COARSE_BITS};
static const double SENTINEL_MEMORY[SENTINEL_MEMORIES] = {0.998, 0.995, 0.99, 0.97};
static const double SENTINEL_LARGE = 1e100; /* beyond it, or below its inverse, psi is rescaled to near one */

typedef struct {
    double unit;                 /* psi is in units of exp(unit), which is at least one */
    double total;                /* of psi */
    double last;                 /* the coarse cell of the last p-value; -1 before the first */
    double weights[SENTINEL_MEMORIES]; /* sum_d N_d */
    double psi[SENTINEL_BETS];
    double counts[SENTINEL_MEMORIES][SENTINEL_COARSE]; /* N_d */
} Sentinel;

typedef struct {
    double weights[SENTINEL_BETS];
    double fixed[SENTINEL_FINE][SENTINEL_FIXED];                      /* the densities in each cell */
    double serial[SENTINEL_COARSE][SENTINEL_COARSE][SENTINEL_SERIAL]; /* by the cell before, and the cell */
    double kernels[SENTINEL_COARSE][SENTINEL_COARSE][LANES];          /* K, by the cell, and the cell that is counted */
} SentinelTables;

enum {
    SENTINEL_STATE = sizeof(Sentinel) / sizeof(double),
    SENTINEL_LAST = offsetof(Sentinel, last) / sizeof(double),
    SENTINEL_TABLES = sizeof(SentinelTables) / sizeof(double),
};

/* ------------------------------------------------------------------ tables */

enum { SENTINEL_LOW = 1, SENTINEL_HIGH = 2, SENTINEL_BOTH = 3 };

/* A density: with probability `part` from a law at the given ends of [0, 1], otherwise uniform. */
typedef struct {
    enum { SENTINEL_NORMAL, SENTINEL_POWER, SENTINEL_BLOCK } kind;
    double a, b; /* the mean and the deviation of z; or the exponent; or the ends of an interval */
    double part;
    int ends;
} SentinelBet;

/* The mass of the law between x < y <= 1/2, or, if `mirrored`, between 1 - y and 1 - x. */
static double sentinel_mass(const SentinelBet *bet, double x, double y, bool mirrored) {
    double low, high;
    switch (bet->kind) {
    case SENTINEL_NORMAL: /* z between the scores of y and x */
        low = ((mirrored ? -bet->a : bet->a) - (x > 0.0 ? normal_score(x) : INFINITY)) / bet->b;
        high = ((mirrored ? -bet->a : bet->a) - normal_score(y)) / bet->b;
        return normal_below(high) - (x > 0.0 ? normal_below(low) : 0.0);
    case SENTINEL_POWER: /* a p^(a - 1) */
        if (mirrored)
            return -ex_exp(bet->a * ex_log1p(-x)) * ex_expm1(bet->a * ex_log1p(-(y - x) / (1.0 - x)));
        return ex_exp(bet->a * ex_log(y)) - (x > 0.0 ? ex_exp(bet->a * ex_log(x)) : 0.0);
    default: /* uniform on [a, b]; in the upper half only if b > 1/2, which is not the case */
        if (mirrored) return 0.0;
        low = x > bet->a ? x : bet->a, high = y < bet->b ? y : bet->b;
        return high > low ? (high - low) / (bet->b - bet->a) : 0.0;
    }
}

/* The mean density of the bet between x < y <= 1/2, or, if `upper`, between 1 - y and 1 - x. */
static double sentinel_height(const SentinelBet *bet, double x, double y, bool upper) {
    double mass = 0.0;
    if (bet->ends & SENTINEL_LOW) mass += sentinel_mass(bet, x, y, upper);
    if (bet->ends & SENTINEL_HIGH) mass += sentinel_mass(bet, x, y, !upper);
    if (bet->ends == SENTINEL_BOTH) mass *= 0.5;
    return (1.0 - bet->part) + bet->part * mass / (y - x);
}

typedef struct {
    SentinelTables *tables;
    int used;
} SentinelList;

static void sentinel_add(SentinelList *list, SentinelBet bet, double weight) {
    int k = list->used++;
    list->tables->weights[k] = weight;
    for (int64_t c = 0; c < SENTINEL_FINE / 2; c++) {
        double x = cells_start(SENTINEL_GRID, c), y = cells_edge(SENTINEL_GRID, c);
        list->tables->fixed[c][k] = sentinel_height(&bet, x, y, false);
        list->tables->fixed[SENTINEL_FINE - 1 - c][k] = sentinel_height(&bet, x, y, true);
    }
}

/* Make the weights of the bets from `first` on sum to `share`. */
static void sentinel_share(SentinelList *list, int first, double share) {
    double sum = 0.0;
    for (int k = first; k < list->used; k++) sum += list->tables->weights[k];
    for (int k = first; k < list->used; k++) list->tables->weights[k] *= share / sum;
}

static void sentinel_normals(SentinelList *list) {
    static const double SCALES[] = {1.15, 1.3, 1.5, 2.0, 3.0, 0.87, 0.75, 0.6, 0.4};
    int first = list->used;
    double mean = 0.15;
    for (int j = 0; j < 7; j++, mean *= 1.6) {
        sentinel_add(list, (SentinelBet){SENTINEL_NORMAL, mean, 1.0, 1.0, SENTINEL_LOW}, 1.0 / mean);
        sentinel_add(list, (SentinelBet){SENTINEL_NORMAL, -mean, 1.0, 1.0, SENTINEL_LOW}, 1.0 / mean);
    }
    sentinel_share(list, first, 0.20);
    for (int j = 0; j < 9; j++) {
        if (j == 0 || j == 5) first = list->used;
        sentinel_add(list, (SentinelBet){SENTINEL_NORMAL, 0.0, SCALES[j], 1.0, SENTINEL_LOW}, 1.0);
        if (j == 4 || j == 8) sentinel_share(list, first, 0.05);
    }
}

static void sentinel_powers(SentinelList *list) {
    static const double SHAPES[] = {1.0 / 3.0, 0.5, 2.0 / 3.0, 0.8, 1.25, 1.5, 2.0, 3.0};
    static const double TAILS[] = {0.1, 0.4}, PARTS[] = {0.03, 0.1, 0.3};
    int first = list->used;
    for (int j = 0; j < 8; j++)
        for (int end = SENTINEL_LOW; end <= SENTINEL_HIGH; end++)
            sentinel_add(list, (SentinelBet){SENTINEL_POWER, SHAPES[j], 0.0, 1.0, end}, 1.0);
    sentinel_share(list, first, 0.10);
    first = list->used;
    for (int j = 0; j < 2; j++)
        for (int w = 0; w < 3; w++)
            for (int end = SENTINEL_LOW; end <= SENTINEL_BOTH; end++)
                sentinel_add(list, (SentinelBet){SENTINEL_POWER, TAILS[j], 0.0, PARTS[w], end}, 1.0);
    sentinel_share(list, first, 0.12);
}

static void sentinel_spikes(SentinelList *list) {
    static const int WIDTHS[] = {6, 7, 8, 9, 11};
    static const double PARTS[] = {0.05, 0.15, 0.4};
    int first = list->used;
    for (int j = 0; j < 5; j++)
        for (int w = 0; w < 3; w++)
            for (int end = SENTINEL_LOW; end <= SENTINEL_BOTH; end++)
                sentinel_add(list, (SentinelBet){SENTINEL_BLOCK, 0.0, ldexp(1.0, -WIDTHS[j]), PARTS[w], end}, 1.0);
    sentinel_share(list, first, 0.08);
}

/* Height h on an interval of length a, and constant elsewhere: the part (a h - a)/(1 - a) is uniform on the interval. */
static void sentinel_block(SentinelList *list, double start, double a, double amplitude) {
    double mass = a + amplitude * sqrt(a * (1.0 - a));
    if (!(mass < 0.95)) return;
    for (int end = SENTINEL_LOW; end <= SENTINEL_HIGH; end++)
        sentinel_add(list, (SentinelBet){SENTINEL_BLOCK, start, start + a, (mass - a) / (1.0 - a), end}, 1.0);
}

static void sentinel_blocks(SentinelList *list) {
    static const double AMPLITUDES[] = {0.3, 0.6, 1.2};
    int first = list->used;
    for (int octave = 1; octave <= 6; octave++)
        for (int j = 0; j < 3; j++) sentinel_block(list, 0.0, ldexp(1.0, -octave), AMPLITUDES[j]);
    sentinel_share(list, first, 0.09);
    first = list->used;
    for (int octave = 2; octave <= 6; octave++)
        for (int j = 0; j < 3; j++) sentinel_block(list, ldexp(1.0, -octave), ldexp(1.0, -octave), AMPLITUDES[j]);
    sentinel_share(list, first, 0.06);
}

/* The edges of a coarse cell, as distances from the nearer end of [0, 1]. */
typedef struct {
    double x, y;
    bool upper;
} SentinelCell;

static SentinelCell sentinel_coarse(int64_t cell) {
    bool upper = cell >= SENTINEL_COARSE / 2;
    int64_t c = upper ? SENTINEL_COARSE - 1 - cell : cell;
    return (SentinelCell){cells_start(SENTINEL_COARSE_GRID, c), cells_edge(SENTINEL_COARSE_GRID, c), upper};
}

/* The density of the score N(rho z, 1 - rho^2), z in the middle of cell `given`, in a cell. */
static double sentinel_normal_pair(double rho, SentinelCell cell, SentinelCell given) {
    double z = normal_score(0.5 * (given.x + given.y));
    SentinelBet bet = {SENTINEL_NORMAL, rho * (given.upper ? -z : z), sqrt(1.0 - rho * rho), 1.0, SENTINEL_LOW};
    return sentinel_height(&bet, cell.x, cell.y, cell.upper);
}

/* The mean of cos(k pi p) over a cell. */
static double sentinel_cosine(SentinelCell cell, int k) {
    double mean = (ex_sinpi(k * cell.y) - ex_sinpi(k * cell.x)) / (k * PI * (cell.y - cell.x));
    return cell.upper && k % 2 ? -mean : mean;
}

/* The mean of Jackson's kernel over two cells. */
static double sentinel_jackson_pair(int order, SentinelCell cell, SentinelCell given) {
    double weights[LANES], sum = 1.0;
    jackson_weights_of(order, weights, LANES);
    for (int k = 1; k < order; k++) sum += weights[k] * sentinel_cosine(cell, k) * sentinel_cosine(given, k);
    return sum;
}

static void sentinel_pairs(SentinelTables *tables) {
    static const double SERIAL[SENTINEL_SERIAL] = {0.2, -0.2, 0.4, -0.4, 0.6, -0.6, 0.8, -0.8};
    static const double MEHLER[] = {0.6, 0.8, 0.9, 0.96};
    static const int JACKSON[] = {2, 3, 4, 8};
    for (int64_t c = 0; c < SENTINEL_COARSE; c++)
        for (int64_t d = 0; d < SENTINEL_COARSE; d++) {
            SentinelCell cell = sentinel_coarse(c), given = sentinel_coarse(d);
            for (int k = 0; k < SENTINEL_SERIAL; k++)
                tables->serial[d][c][k] = sentinel_normal_pair(SERIAL[k], cell, given);
            for (int k = 0; k < 4; k++) {
                tables->kernels[c][d][k] = sentinel_normal_pair(MEHLER[k], cell, given);
                tables->kernels[c][d][4 + k] = sentinel_jackson_pair(JACKSON[k], cell, given);
            }
        }
}

static void sentinel_tables_of(SentinelTables *tables) {
    SentinelList list = {tables, 0};
    memset(tables, 0, sizeof *tables);
    sentinel_normals(&list);
    sentinel_powers(&list);
    sentinel_spikes(&list);
    sentinel_blocks(&list);
    double *weights = tables->weights + SENTINEL_FIXED;
    for (int k = 0; k < SENTINEL_SERIAL; k++) *weights++ = 0.06 / SENTINEL_SERIAL;
    for (int k = 0; k < SENTINEL_MEMORIES * LANES; k++) *weights++ = 0.19 / (SENTINEL_MEMORIES * LANES);
    sentinel_pairs(tables);
}

/* ------------------------------------------------------------------ steps */

/* The densities of the learners in a cell; then learn it. */
static inline void sentinel_learn(Sentinel *state, const SentinelTables *tables, int64_t cell, double *densities) {
    Lanes sums[SENTINEL_MEMORIES];
    for (int m = 0; m < SENTINEL_MEMORIES; m++) sums[m] = lanes_fill(1.0);
    for (int64_t d = 0; d < SENTINEL_COARSE; d++) {
        Lanes kernel = lanes_load(tables->kernels[cell][d]);
        for (int m = 0; m < SENTINEL_MEMORIES; m++)
            sums[m] = lanes_add(sums[m], lanes_mul(kernel, lanes_fill(state->counts[m][d])));
    }
    for (int m = 0; m < SENTINEL_MEMORIES; m++) {
        lanes_store(densities + m * LANES, lanes_div(sums[m], lanes_fill(1.0 + state->weights[m])));
        for (int64_t d = 0; d < SENTINEL_COARSE; d++) state->counts[m][d] *= SENTINEL_MEMORY[m];
        state->counts[m][cell] += 1.0;
        state->weights[m] = SENTINEL_MEMORY[m] * state->weights[m] + 1.0;
    }
}

/* The densities of all bets at p; then learn p. */
static inline void sentinel_densities(Sentinel *state, const SentinelTables *tables, double p, double *densities) {
    int64_t cell = cells_at(SENTINEL_COARSE_GRID, p);
    memcpy(densities, tables->fixed[cells_at(SENTINEL_GRID, p)], sizeof tables->fixed[0]);
    densities += SENTINEL_FIXED;
    bool first = !(state->last >= 0.0 && state->last < SENTINEL_COARSE);
    for (int k = 0; k < SENTINEL_SERIAL; k++)
        densities[k] = first ? 1.0 : tables->serial[(int64_t)state->last][cell][k];
    state->last = (double)cell;
    sentinel_learn(state, tables, cell, densities + SENTINEL_SERIAL);
}

/* Make the total one again, but never use a unit below one: then the fresh weights count for more than the rest. */
static void sentinel_rescale(Sentinel *state) {
    double level = state->unit + ex_log(state->total), total = 0.0;
    level = 0.0 > level ? 0.0 : level;
    double factor = ex_exp(state->unit - level);
    for (int k = 0; k < SENTINEL_BETS; k++) {
        state->psi[k] *= factor;
        total += state->psi[k];
    }
    state->unit = level, state->total = total;
}

/* The log density at p; then learn p. */
static inline double sentinel_step(Sentinel *state, const SentinelTables *tables, double p) {
    double densities[SENTINEL_BETS], fresh = ex_exp(-state->unit);
    sentinel_densities(state, tables, p, densities);
    Lanes starts = lanes_fill(fresh), sum = lanes_fill(0.0);
    for (int k = 0; k < SENTINEL_BETS; k += LANES) {
        Lanes psi = lanes_add(lanes_mul(lanes_load(tables->weights + k), starts), lanes_load(state->psi + k));
        psi = lanes_mul(psi, lanes_load(densities + k));
        lanes_store(state->psi + k, psi);
        sum = lanes_add(sum, psi);
    }
    double total = lanes_sum(sum), gain = ex_log(total / (fresh + state->total));
    state->total = total;
    if (!(1.0 / SENTINEL_LARGE < total && total < SENTINEL_LARGE)) sentinel_rescale(state);
    return gain;
}

static void sentinel_path(double *state, const SentinelTables *tables, const double *p, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = sentinel_step((Sentinel *)state, tables, p[i]);
}

/* sentinel_tables(tables) */
static const char *sentinel_tables(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == SENTINEL_TABLES, "tables must have SENTINEL_TABLES items");
    sentinel_tables_of(in[0].data);
    return NULL;
}

/* sentinel(state, tables, p, gains) */
static const char *sentinel(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == SENTINEL_STATE && in[1].size == SENTINEL_TABLES,
            "state must have SENTINEL_STATE items, and tables SENTINEL_TABLES");
    REQUIRE(in[2].size == in[3].size, "gains must be as long as p");
    sentinel_path(float64s(&in[0]), in[1].data, float64s(&in[2]), in[2].size, float64s(&in[3]));
    return NULL;
}

#define SENTINEL_KERNELS ENTRY(sentinel_tables, "D"), ENTRY(sentinel, "Ddpo"),
#define SENTINEL_CONSTANTS CONSTANT(SENTINEL_STATE), CONSTANT(SENTINEL_LAST), CONSTANT(SENTINEL_TABLES),
