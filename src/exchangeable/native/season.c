/* Seasons: periods after which p-values resemble earlier ones.
 *
 * For each period d there are two predictors of y, a normal score clipped to [-3.5, 3.5]: the mean of the past y at the same phase
 * of the period, and the y one period ago. For each predictor x the sums
 *
 *     xy = sum x y ,   xx = 10 + sum x^2 ,   yy = 10 + sum y^2
 *
 * run over the m steps from the second cycle on. Its fit, -(m/2) ln(1 - xy^2/(xx yy)), is a log likelihood ratio.
 * After every 32 steps the best mean and the best lag are chosen, if their fits exceed 2. If the better of the two
 * fits exceeds 6, then N(b x, v) is bet until the next choice, with b = xy/xx and v = (yy - xy^2/xx)/(m + 10).
 */

enum {
    SEASON_PERIODS = 39,
    SEASON_PADDED = 40,
    SEASON_SHORT = 30, /* periods 31 to 2, whose lags are neighbours in memory */
    SEASON_PHASES = 2053, /* of all periods */
    SEASON_LONGEST = 365,
    SEASON_EVERY = 32,
};
/* the last one is padding */
static const int32_t SEASON_PERIOD[SEASON_PADDED] = {31, 30, 29, 28, 27, 26, 25,  24,  23,  22,  21,  20, 19, 18,
                                                     17, 16, 15, 14, 13, 12, 11,  10,  9,   8,   7,   6,  5,  4,
                                                     3,  2,  48, 52, 60, 96, 144, 168, 288, 336, 365, 1};
static const int32_t SEASON_START[SEASON_PADDED + 1] = {
    0,   31,  61,  90,  118, 145, 171, 196, 220, 243, 265, 286, 306, 325, 343, 360,  376,  391,  405,  418, 430,
    441, 451, 460, 468, 475, 481, 486, 490, 493, 495, 543, 595, 655, 751, 895, 1063, 1351, 1687, 2052, 2053};
static const double SEASON_PRIOR = 10.0, SEASON_FEATURE = 2.0, SEASON_BET = 6.0;

/* Where the next step is in each period. */
typedef struct {
    double n; /* steps */
    double at[SEASON_PADDED]; /* its phase, counted through all periods */
    double cycles[SEASON_PADDED]; /* complete cycles */
} SeasonClock;

/* The same with integers. */
typedef struct {
    double n, cycles[SEASON_PADDED];
    int32_t at[SEASON_PADDED], newest; /* where in the ring of the past the next y goes */
} SeasonStep;

/* What is known of a series. */
typedef struct {
    double chosen[2]; /* the number of the period of the best mean and of the best lag, or -1 */
    double bets, slope, variance; /* which of them bets, 0 or 1, or -1 for neither; b, v */
    double squares; /* the sum of y^2, */
    double before[SEASON_PADDED]; /* and what it was after the first cycle */
    double xy[2][SEASON_PADDED], xx[2][SEASON_PADDED]; /* of means and of lags */
    double past[SEASON_LONGEST]; /* the last y, as a ring */
    double sums[SEASON_PHASES]; /* of y, for each phase of each period */
} SeasonSeries;

/* The predictors of the next y: means and lags. */
typedef struct {
    double x[2][SEASON_PADDED];
} SeasonPredictors;

/* ------------------------------------------------------------------ the clock */

static void season_clock_fresh(SeasonClock *clock) {
    memset(clock, 0, sizeof *clock);
    for (int k = 0; k < SEASON_PADDED; k++) clock->at[k] = SEASON_START[k];
}

/* An index read from a state; 0 if it is out of range, in a forged state. */
static inline int32_t season_index(double x, int32_t size) { return x >= 0.0 && x < size ? (int32_t)x : 0; }

static inline SeasonStep season_open(const SeasonClock *clock) {
    SeasonStep step = {.n = clock->n, .newest = (int32_t)remainder_of(clock->n, SEASON_LONGEST)};
    for (int k = 0; k < SEASON_PADDED; k++) step.at[k] = season_index(clock->at[k], SEASON_PHASES);
    memcpy(step.cycles, clock->cycles, sizeof step.cycles);
    return step;
}

static inline void season_close(SeasonClock *clock, const SeasonStep *step) {
    clock->n = step->n;
    for (int k = 0; k < SEASON_PADDED; k++) clock->at[k] = step->at[k];
    memcpy(clock->cycles, step->cycles, sizeof step->cycles);
}

/* Move on by one step. */
static inline void season_advance(SeasonStep *step) {
    step->n += 1.0;
    step->newest = step->newest + 1 < SEASON_LONGEST ? step->newest + 1 : 0;
    for (int k = 0; k < SEASON_PADDED; k++)
        step->at[k] = step->at[k] + 1 < SEASON_START[k + 1] ? step->at[k] + 1 : SEASON_START[k];
    for (int k = 0; k < SEASON_PADDED; k++) step->cycles[k] += step->at[k] == SEASON_START[k] ? 1.0 : 0.0;
}

/* 1/(complete cycles), or 1 before the first is complete. */
static inline void season_weights(const SeasonStep *step, double *weights) {
    for (int k = 0; k < SEASON_PADDED; k++) weights[k] = 1.0 / (step->cycles[k] > 1.0 ? step->cycles[k] : 1.0);
}

/* ------------------------------------------------------------------ the choice */

/* yy, and the number m of pairs, of each period. */
typedef struct {
    double yy[SEASON_PADDED], pairs[SEASON_PADDED];
} SeasonMoments;

static void season_moments(const SeasonStep *step, const SeasonSeries *of, SeasonMoments *out) {
    for (int k = 0; k < SEASON_PADDED; k++) {
        double pairs = step->n - SEASON_PERIOD[k];
        out->pairs[k] = pairs > 0.0 ? pairs : 0.0;
        out->yy[k] = SEASON_PRIOR + (pairs > 0.0 ? of->squares - of->before[k] : 0.0);
    }
}

/* The predictor with the best score above SEASON_FEATURE, or -1. */
static double season_best(const SeasonSeries *of, const SeasonMoments *with, int kind, double *best) {
    double left[SEASON_PADDED], found = -1.0;
    for (int k = 0; k < SEASON_PADDED; k++)
        left[k] = ex_log(1.0 - of->xy[kind][k] * of->xy[kind][k] / (of->xx[kind][k] * with->yy[k]));
    *best = SEASON_FEATURE;
    for (int k = 0; k < SEASON_PERIODS; k++) {
        double score = -0.5 * with->pairs[k] * left[k];
        if (score > *best) *best = score, found = k;
    }
    return found;
}

static void season_choose(const SeasonStep *step, SeasonSeries *of) {
    SeasonMoments with;
    double best[2];
    season_moments(step, of, &with);
    for (int kind = 0; kind < 2; kind++) of->chosen[kind] = season_best(of, &with, kind, &best[kind]);
    int better = best[1] > best[0];
    of->bets = best[better] > SEASON_BET ? better : -1.0;
    if (of->bets < 0.0) return;
    int32_t k = (int32_t)of->chosen[better];
    of->slope = of->xy[better][k] / of->xx[better][k];
    of->variance = (with.yy[k] - of->slope * of->xy[better][k]) / (with.pairs[k] + SEASON_PRIOR);
}

/* Choose anew, if it is time to. */
static inline void season_review(const SeasonStep *step, SeasonSeries *of) {
    if (remainder_of(step->n, SEASON_EVERY) == 0) season_choose(step, of);
}

/* ------------------------------------------------------------------ predictions */

static void season_series_fresh(SeasonSeries *of) {
    memset(of, 0, sizeof *of);
    of->chosen[0] = of->chosen[1] = of->bets = -1.0;
    for (int k = 0; k < SEASON_PADDED; k++) of->xx[0][k] = of->xx[1][k] = SEASON_PRIOR;
}

static inline double season_lag(const SeasonStep *step, const SeasonSeries *of, int k) {
    int32_t back = step->newest - SEASON_PERIOD[k];
    return of->past[back < 0 ? back + SEASON_LONGEST : back];
}

/* Compute the predictors; weights are those of `season_weights`. */
static inline void season_predict(const SeasonStep *step, const SeasonSeries *of, const double *weights,
                                  SeasonPredictors *out) {
    for (int k = 0; k < SEASON_PADDED; k++) out->x[0][k] = of->sums[step->at[k]] * weights[k];
    if (step->newest >= SEASON_PERIOD[0])
        memcpy(out->x[1], of->past + step->newest - SEASON_PERIOD[0], SEASON_SHORT * sizeof(double));
    else
        for (int k = 0; k < SEASON_SHORT; k++) out->x[1][k] = season_lag(step, of, k);
    for (int k = SEASON_SHORT; k < SEASON_PADDED; k++) out->x[1][k] = season_lag(step, of, k);
}

static inline void season_learn(const SeasonStep *step, SeasonSeries *of, const SeasonPredictors *with, double y) {
    Lanes all = lanes_fill(y);
    for (int k = 0; k < SEASON_PADDED; k += LANES) {
        Lanes mean = lanes_load(with->x[0] + k), lag = lanes_load(with->x[1] + k);
        lanes_store(of->xy[0] + k, lanes_add(lanes_load(of->xy[0] + k), lanes_mul(mean, all)));
        lanes_store(of->xy[1] + k, lanes_add(lanes_load(of->xy[1] + k), lanes_mul(lag, all)));
        lanes_store(of->xx[0] + k, lanes_add(lanes_load(of->xx[0] + k), lanes_mul(mean, mean)));
        lanes_store(of->xx[1] + k, lanes_add(lanes_load(of->xx[1] + k), lanes_mul(lag, lag)));
    }
    for (int k = 0; k < SEASON_PERIODS; k++) of->sums[step->at[k]] += y;
    of->past[step->newest] = y;
    of->squares += y * y;
    if (step->n < SEASON_LONGEST)
        for (int k = 0; k < SEASON_PERIODS; k++)
            if (step->n + 1.0 == SEASON_PERIOD[k]) of->before[k] = of->squares;
}

/* The value of the chosen mean (kind 0) or lag (kind 1), or 0. */
static inline double season_feature(const SeasonSeries *of, const SeasonPredictors *with, int kind) {
    return of->chosen[kind] >= 0.0 ? with->x[kind][season_index(of->chosen[kind], SEASON_PERIODS)] : 0.0;
}

/* The law that is bet on: the standard normal one unless there is a season. */
static inline Normal season_law(const SeasonSeries *of, const SeasonPredictors *with) {
    if (!(of->bets >= 0.0)) return (Normal){0.0, 1.0};
    return (Normal){of->slope * season_feature(of, with, of->bets > 0.0), of->variance};
}

/* ------------------------------------------------------------------ entries */

typedef struct {
    SeasonClock clock;
    SeasonSeries series;
} Season;

enum { SEASON_STATE = sizeof(Season) / sizeof(double) };

static void season_start(Season *state) {
    season_clock_fresh(&state->clock);
    season_series_fresh(&state->series);
}

/* season_fresh(state) */
static const char *season_fresh(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == SEASON_STATE, "state must have SEASON_STATE items");
    season_start(in[0].data);
    return NULL;
}

static double season_gain(SeasonStep *step, SeasonSeries *of, double p) {
    double z = normal_score(p), weights[SEASON_PADDED];
    SeasonPredictors with;
    season_weights(step, weights);
    season_predict(step, of, weights, &with);
    Normal law = season_law(of, &with);
    season_learn(step, of, &with, normal_cut(z, NORMAL_FEATURE));
    season_advance(step);
    season_review(step, of);
    return normal_log_density(law, z);
}

/* season(state, p, gains) */
static const char *season(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == SEASON_STATE, "state must have SEASON_STATE items");
    REQUIRE(in[1].size == in[2].size, "gains must be as long as p");
    Season *state = in[0].data;
    SeasonStep step = season_open(&state->clock);
    for (int64_t i = 0; i < in[1].size; i++)
        float64s(&in[2])[i] = season_gain(&step, &state->series, float64s(&in[1])[i]);
    season_close(&state->clock, &step);
    return NULL;
}

#define SEASON_KERNELS ENTRY(season_fresh, "D"), ENTRY(season, "Dpo"),
#define SEASON_CONSTANTS CONSTANT(SEASON_STATE),
