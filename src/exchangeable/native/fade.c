/* Changes of law, as rank p-values show them: at first clearly, then ever less, because the new values fill the pool.
 *
 * If the law P1 of the values replaces P0 after tau of n examples, the pool is w P0 + (1 - w) P1 with w = tau/n, and p
 * is the mass above the value in the pool. For a value from P1, with v the mass of P0 above it, G(v) that of P1, and
 * g = G',
 *
 *     p = w v + (1 - w) G(v)   has density   g(v)/(w + (1 - w) g(v)) .
 *
 * Laws of the score of v: N(+-m, 1) for m = 0.12 x 1.27^j, j < 14, with prior m^-1/2; N(0, s^2) for
 * s = exp(+-{0.1, 0.2, 0.35, 0.5, 0.7, 1}), with prior 0.6 each; and N(0, 1) of which the part c = 0.015 or 0.06 are
 * outliers from N(0, 3^2), N(0, 7^2), N(4, 1.5^2) or N(-4, 1.5^2), with prior 0.6 each. Levels w: 1, 0.85, 0.7, 0.55,
 * 0.4, 0.25. Densities are constant on cells of p, four an octave down to 2^-30 at both ends, with exact masses.
 *
 * The state: the shares of staying idle, I, and of each level and law, W. Before step n, with h = min(0.3/n, 0.5),
 *
 *     I <- (1 - h) I + h (1 - I) ,   W[0] <- (1 - h) W[0] + h I prior ,   W[l] <- (1 - h) W[l] for the other levels,
 *
 * and every 8 steps the part min(8/(n ln(w_l/w_{l+1})), 0.5) of each level but the last moves on to the next one.
 */

enum {
    FADE_SHIFTS = 14,
    FADE_SCALES = 6,
    FADE_OUTLIERS = 4,
    FADE_LAWS = 2 * FADE_SHIFTS + 2 * FADE_SCALES + 2 * FADE_OUTLIERS,
    FADE_LEVELS = 6,
    FADE_STATES = FADE_LAWS * FADE_LEVELS,
    FADE_OCTAVES = 30,
    FADE_BITS = 2,
    FADE_SIDE = CELLS_SIDE(FADE_OCTAVES, FADE_BITS), /* cells of one end */
    FADE_CELLS = 2 * FADE_SIDE,
    FADE_EVERY = 8,
};
static const double FADE_LEVEL[FADE_LEVELS] = {1.0, 0.85, 0.7, 0.55, 0.4, 0.25};
static const double FADE_SCALE[FADE_SCALES] = {0.1, 0.2, 0.35, 0.5, 0.7, 1.0}; /* logs */

typedef struct {
    double n, total, idle, shares[FADE_LEVELS][FADE_LAWS]; /* total: the sum of idle and shares */
} Fade;

typedef struct {
    double prior[FADE_LAWS], rates[FADE_LEVELS]; /* 1/ln(w_l/w_{l+1}) */
    double densities[FADE_CELLS][FADE_LEVELS][FADE_LAWS];
} FadeTables;

enum { FADE_STATE = sizeof(Fade) / sizeof(double), FADE_TABLES = sizeof(FadeTables) / sizeof(double) };

static const Cells FADE_GRID = {FADE_OCTAVES, FADE_BITS};

/* ------------------------------------------------------------------ tables */

/* N(mean, scale^2), or N(0, 1) of which a part is from there. */
typedef struct {
    double part, mean, scale;
} FadeLaw;

/* The density of N(0, 1). */
static inline double fade_height(double x) { return 0x1.9884533d43651p-2 * ex_exp(-0.5 * x * x); }

/* The mass of the law above z. */
static inline double fade_above(FadeLaw law, double z) {
    return law.part * normal_below((law.mean - z) / law.scale) + (1.0 - law.part) * normal_below(-z);
}

static inline double fade_density(FadeLaw law, double z) {
    return law.part / law.scale * fade_height((z - law.mean) / law.scale) + (1.0 - law.part) * fade_height(z);
}

/* The score above which the pool has the mass `edge` <= 1/2. It lies between the quantiles of the parts of the pool:
 * Newton's method for the log of the mass, from `start` if that is closer, or halving where it leads outside.
 */
static double fade_score(FadeLaw law, double w, double edge, double start) {
    double null = normal_score(edge), own = law.mean + law.scale * null;
    double low = own < null ? own : null, high = own < null ? null : own, z = start < high ? start : high;
    if (w == 1.0) return null;
    for (int k = 0; k < 100; k++) {
        double pool = w * normal_below(-z) + (1.0 - w) * fade_above(law, z);
        double slope = w * fade_height(z) + (1.0 - w) * fade_density(law, z);
        double next = z + pool * ex_log(pool / edge) / slope;
        if (pool > edge) low = z;
        else
            high = z;
        if (!(next >= low && next <= high)) next = 0.5 * (low + high);
        bool done = fabs(next - z) <= 1e-14 * (1.0 + fabs(z));
        z = next;
        if (done) break;
    }
    return z;
}

/* The masses of the law in the cells of the lower end. */
static void fade_masses(FadeLaw law, double w, double *out) {
    double below = 0.0, z = INFINITY;
    for (int64_t c = 0; c < FADE_SIDE; c++) {
        z = fade_score(law, w, cells_edge(FADE_GRID, c), z);
        double mass = fade_above(law, z);
        out[c] = mass - below;
        below = mass;
    }
}

static FadeLaw fade_law(int law) {
    static const FadeLaw OUTLIERS[FADE_OUTLIERS] = {
        {0.0, 0.0, 3.0}, {0.0, 0.0, 7.0}, {0.0, 4.0, 1.5}, {0.0, -4.0, 1.5}};
    int half = law / 2;
    double sign = law % 2 ? -1.0 : 1.0, mean = 0.12;
    if (half >= FADE_SHIFTS + FADE_SCALES) {
        FadeLaw outlier = OUTLIERS[half - FADE_SHIFTS - FADE_SCALES];
        return (FadeLaw){law % 2 ? 0.06 : 0.015, outlier.mean, outlier.scale};
    }
    if (half >= FADE_SHIFTS) return (FadeLaw){1.0, 0.0, ex_exp(sign * FADE_SCALE[half - FADE_SHIFTS])};
    for (int j = 0; j < half; j++) mean *= 1.27;
    return (FadeLaw){1.0, sign * mean, 1.0};
}

/* The number of the law that is this one mirrored at 0. */
static int fade_mirror(int law) {
    if (law < 2 * FADE_SHIFTS) return law ^ 1;
    int above =
        2 * (FADE_SHIFTS + FADE_SCALES + 2); /* the first law with outliers on one side: upwards, then downwards */
    return law < above ? law : law < above + 2 ? law + 2 : law - 2;
}

static void fade_level(FadeTables *tables, int level) {
    double masses[FADE_LAWS][FADE_SIDE];
    for (int k = 0; k < FADE_LAWS; k++) fade_masses(fade_law(k), FADE_LEVEL[level], masses[k]);
    for (int64_t c = 0; c < FADE_SIDE; c++) {
        double width = cells_edge(FADE_GRID, c) - cells_start(FADE_GRID, c);
        for (int k = 0; k < FADE_LAWS; k++) {
            tables->densities[c][level][k] = masses[k][c] / width;
            tables->densities[FADE_CELLS - 1 - c][level][k] = masses[fade_mirror(k)][c] / width;
        }
    }
}

static void fade_tables_of(FadeTables *tables) {
    double sum = 0.0;
    for (int level = 0; level < FADE_LEVELS; level++) fade_level(tables, level);
    for (int k = 0; k < FADE_LAWS; k++) {
        tables->prior[k] = k < 2 * FADE_SHIFTS ? 1.0 / sqrt(fabs(fade_law(k).mean)) : 0.6;
        sum += tables->prior[k];
    }
    for (int k = 0; k < FADE_LAWS; k++) tables->prior[k] /= sum;
    for (int l = 0; l < FADE_LEVELS; l++)
        tables->rates[l] = l + 1 < FADE_LEVELS ? 1.0 / ex_log(FADE_LEVEL[l] / FADE_LEVEL[l + 1]) : 0.0;
}

/* ------------------------------------------------------------------ steps */

/* Move shares on to the next level. */
static void fade_dilute(Fade *state, const FadeTables *tables, double n) {
    for (int l = FADE_LEVELS - 2; l >= 0; l--) {
        double part = FADE_EVERY / n * tables->rates[l];
        part = part < 0.5 ? part : 0.5;
        for (int k = 0; k < FADE_LAWS; k++) {
            double moved = part * state->shares[l][k];
            state->shares[l + 1][k] += moved;
            state->shares[l][k] -= moved;
        }
    }
}

/* The density at p; then learn p. */
static inline double fade_step(Fade *state, const FadeTables *tables, double p) {
    double n = state->n + 1.0, hazard = 0.3 / n;
    hazard = hazard < 0.5 ? hazard : 0.5;
    if (remainder_of(n, FADE_EVERY) == 0) fade_dilute(state, tables, n);
    double idle = state->idle / state->total, stays = 1.0 - hazard;
    const double *densities = tables->densities[cells_at(FADE_GRID, p)][0];
    double *shares = state->shares[0];
    Lanes scale = lanes_fill(stays / state->total), fresh = lanes_fill(hazard * idle), sum = lanes_fill(0.0);
    for (int k = 0; k < FADE_LAWS; k += LANES) {
        Lanes share = lanes_mul(lanes_load(shares + k), scale);
        share = lanes_add(share, lanes_mul(fresh, lanes_load(tables->prior + k)));
        share = lanes_mul(share, lanes_load(densities + k));
        lanes_store(shares + k, share);
        sum = lanes_add(sum, share);
    }
    for (int k = FADE_LAWS; k < FADE_STATES; k += LANES) {
        Lanes share = lanes_mul(lanes_mul(lanes_load(shares + k), scale), lanes_load(densities + k));
        lanes_store(shares + k, share);
        sum = lanes_add(sum, share);
    }
    state->n = n;
    state->idle = stays * idle + hazard * (1.0 - idle);
    state->total = state->idle + lanes_sum(sum);
    return state->total;
}

static void fade_start(Fade *state) {
    memset(state, 0, sizeof *state);
    state->idle = state->total = 1.0;
}

/* fade_tables(tables) */
static const char *fade_tables(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == FADE_TABLES, "tables must have FADE_TABLES items");
    fade_tables_of(in[0].data);
    return NULL;
}

/* fade_fresh(state) */
static const char *fade_fresh(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == FADE_STATE, "state must have FADE_STATE items");
    fade_start(in[0].data);
    return NULL;
}

/* fade(state, tables, p, gains) */
static const char *fade(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == FADE_STATE && in[1].size == FADE_TABLES,
            "state must have FADE_STATE items, and tables FADE_TABLES");
    REQUIRE(in[2].size == in[3].size, "gains must be as long as p");
    for (int64_t i = 0; i < in[2].size; i++)
        float64s(&in[3])[i] = ex_log(fade_step(in[0].data, in[1].data, float64s(&in[2])[i]));
    return NULL;
}

#define FADE_KERNELS ENTRY(fade_tables, "D"), ENTRY(fade_fresh, "D"), ENTRY(fade, "Ddpo"),
#define FADE_CONSTANTS CONSTANT(FADE_STATE), CONSTANT(FADE_TABLES),
