/* Normal laws of the next score z, with mean and variance learnt from the past ones. y is z clipped to [-3.5, 3.5]. */

/* ------------------------------------------------------------------ volatility
 * N(0, 0.1 + 0.9 v) ,   v <- v + rate (min(z^2, 9) - v) .
 */
static inline double volatility_variance(double v) { return 0.1 + 0.9 * v; }

static inline double volatility_next(double v, double rate, double z) {
    double square = z * z;
    return v + rate * ((square < 9.0 ? square : 9.0) - v);
}

/* ------------------------------------------------------------------ regression
 *
 * Recursive least squares with forgetting lam on the features x: y_{n-1}, y_{n-2}, y_{n-3}, moving averages of y with rates
 * 0.1, 0.03, 0.01 and, if asked for, the two seasons of season.c. With g = P x, q = x'g, e = z - x'b, k = 1/(lam + q):
 *
 *     bet N(x'b, (s/m)(1 + q)) ,   then
 *     b <- b + k e g ,   P <- (P - k g g')/lam ,   s <- mu s + e^2/(1 + q) ,   m <- mu m + 1 .
 *
 * P starts at 0.05 I, and is scaled down if a diagonal entry exceeds 0.1; s and m start at 5. z is clipped to
 * [-4, 4] in e. The variance s/m is at least 1e-6, so that a million equal p-values do not collapse the law to a point.
 */

enum { REGRESSION_FEATURES = 8, REGRESSION_PLAIN = 6 }; /* with and without seasons */
static const double REGRESSION_RATES[3] = {0.1, 0.03, 0.01};
static const double REGRESSION_START = 0.05, REGRESSION_LARGEST = 0.1, REGRESSION_NOISE = 5.0, REGRESSION_CUT = 4.0;
static const double REGRESSION_LEAST = 1e-6;

typedef struct {
    double lags[3], averages[3]; /* of y, newest first */
} Recent;

typedef struct {
    double P[REGRESSION_FEATURES][REGRESSION_FEATURES], b[REGRESSION_FEATURES];
} Squares;

typedef struct {
    double sum, mass; /* s, m */
} Noise;

/* A step: features, g = P x, x'b and q. */
typedef struct {
    Lanes x, g;
    double mean, q;
} RegressionStep;

static void squares_fresh(Squares *state, int features) {
    memset(state, 0, sizeof *state);
    for (int k = 0; k < features; k++) state->P[k][k] = REGRESSION_START;
}

static inline void recent_learn(Recent *of, double y) {
    of->lags[2] = of->lags[1], of->lags[1] = of->lags[0], of->lags[0] = y;
    for (int k = 0; k < 3; k++) of->averages[k] += REGRESSION_RATES[k] * (y - of->averages[k]);
}

static inline RegressionStep squares_predict(const Squares *state, const Recent *of, double mean, double lag) {
    double x[REGRESSION_FEATURES] = {of->lags[0],     of->lags[1],     of->lags[2], of->averages[0],
                                     of->averages[1], of->averages[2], mean,        lag};
    Lanes features = lanes_of(x), g = lanes_mul(lanes_fill(x[0]), lanes_load(state->P[0]));
    for (int j = 1; j < REGRESSION_FEATURES; j++)
        g = lanes_add(g, lanes_mul(lanes_fill(x[j]), lanes_load(state->P[j])));
    return (RegressionStep){features, g, lanes_sum(lanes_mul(features, lanes_load(state->b))),
                            lanes_sum(lanes_mul(features, g))};
}

/* 1 + q, or 1 if rounding has made q negative. */
static inline double noise_spread(double q) { return q >= 0.0 ? 1.0 + q : 1.0; }

static inline double noise_variance(const Noise *noise, double q) {
    double variance = noise->sum / noise->mass;
    return (variance > REGRESSION_LEAST ? variance : REGRESSION_LEAST) * noise_spread(q);
}

static inline void noise_learn(Noise *noise, double forgetting, double error, double q) {
    noise->sum = forgetting * noise->sum + error * error / noise_spread(q);
    noise->mass = forgetting * noise->mass + 1.0;
}

/* Reset P, for the features that are in use, if rounding has made x'P x negative. */
static void squares_restart(Squares *state) {
    for (int j = 0; j < REGRESSION_FEATURES; j++)
        for (int k = 0; k < REGRESSION_FEATURES; k++)
            state->P[j][k] = j == k && state->P[k][k] != 0.0 ? REGRESSION_START : 0.0;
}

/* k g g' is the product of h = sqrt(k) g with itself, so that P stays symmetric to the last bit. */
static inline void squares_learn(Squares *state, const RegressionStep *step, double forgetting, double error) {
    if (!(step->q >= 0.0)) {
        squares_restart(state);
        return;
    }
    double h[REGRESSION_FEATURES], gain = 1.0 / (forgetting + step->q), most = 0.0, factor = 1.0 / forgetting;
    Lanes part = lanes_mul(lanes_fill(sqrt(gain)), step->g);
    lanes_store(h, part);
    lanes_store(state->b, lanes_add(lanes_load(state->b), lanes_mul(lanes_fill(gain * error), step->g)));
    for (int j = 0; j < REGRESSION_FEATURES; j++) {
        double item = (state->P[j][j] - h[j] * h[j]) * factor;
        most = item > most ? item : most;
    }
    if (most > REGRESSION_LARGEST) factor *= REGRESSION_LARGEST / most;
    Lanes scale = lanes_fill(factor);
    for (int j = 0; j < REGRESSION_FEATURES; j++) {
        Lanes row = lanes_sub(lanes_load(state->P[j]), lanes_mul(lanes_fill(h[j]), part));
        lanes_store(state->P[j], lanes_mul(row, scale));
    }
}

/* volatility(state, rate, p, gains) */
static const char *volatility(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == 1, "state must hold 1 number");
    REQUIRE(in[2].size == in[3].size, "gains must be as long as p");
    double *v = float64s(&in[0]);
    for (int64_t i = 0; i < in[2].size; i++) {
        double z = normal_score(float64s(&in[2])[i]);
        float64s(&in[3])[i] = normal_log_density((Normal){0.0, volatility_variance(*v)}, z);
        *v = volatility_next(*v, in[1].real, z);
    }
    return NULL;
}

typedef struct {
    Squares squares;
    Recent recent;
    Noise noise;
} Regression;

static void regression_start(Regression *of, int features) {
    squares_fresh(&of->squares, features);
    of->noise = (Noise){REGRESSION_NOISE, REGRESSION_NOISE};
}

static inline Normal regression_law(const RegressionStep *step, const Noise *noise) {
    return (Normal){step->mean, noise_variance(noise, step->q)};
}

/* Learn a score. */
static inline void regression_learn(Regression *of, const RegressionStep *step, double forgetting,
                                    double noise_forgetting, double z) {
    double error = normal_cut(z, REGRESSION_CUT) - step->mean;
    squares_learn(&of->squares, step, forgetting, error);
    noise_learn(&of->noise, noise_forgetting, error, step->q);
    recent_learn(&of->recent, normal_cut(z, NORMAL_FEATURE));
}

/* With the seasons as features. */
static inline RegressionStep regression_seasonal(const Regression *of, const SeasonSeries *series,
                                                 const SeasonPredictors *with) {
    return squares_predict(&of->squares, &of->recent, season_feature(series, with, 0), season_feature(series, with, 1));
}

/* The whole state of the bet Regression. */
typedef struct {
    Regression core;
    Season season; /* only if asked for */
} RegressionBet;

enum {
    REGRESSION_STATE = offsetof(RegressionBet, season) / sizeof(double),
    REGRESSION_SEASONAL_STATE = sizeof(RegressionBet) / sizeof(double),
};

/* The prediction of the next score. `with` are the predictors of the seasons, if there are any. */
static inline RegressionStep regression_predict(const RegressionBet *state, const SeasonStep *now,
                                                SeasonPredictors *with) {
    double weights[SEASON_PADDED];
    if (!now) return squares_predict(&state->core.squares, &state->core.recent, 0.0, 0.0);
    season_weights(now, weights);
    season_predict(now, &state->season.series, weights, with);
    return regression_seasonal(&state->core, &state->season.series, with);
}

/* The log density at p; then learn p. `now` is NULL if there are no seasons. */
static double regression_gain(RegressionBet *state, SeasonStep *now, double forgetting, double noise_forgetting,
                              double p) {
    SeasonPredictors with;
    RegressionStep step = regression_predict(state, now, &with);
    double z = normal_score(p), gain = normal_log_density(regression_law(&step, &state->core.noise), z);
    regression_learn(&state->core, &step, forgetting, noise_forgetting, z);
    if (now) {
        season_learn(now, &state->season.series, &with, normal_cut(z, NORMAL_FEATURE));
        season_advance(now);
        season_review(now, &state->season.series);
    }
    return gain;
}

/* regression_fresh(state) */
static const char *regression_fresh(const Arg *in, Arg *out) {
    (void)out;
    bool seasonal = in[0].size == REGRESSION_SEASONAL_STATE;
    REQUIRE(seasonal || in[0].size == REGRESSION_STATE,
            "state must have REGRESSION_STATE items, or REGRESSION_SEASONAL_STATE");
    RegressionBet *state = in[0].data;
    memset(state, 0, (size_t)in[0].size * sizeof(double));
    regression_start(&state->core, seasonal ? REGRESSION_FEATURES : REGRESSION_PLAIN);
    if (seasonal) season_start(&state->season);
    return NULL;
}

/* regression(state, forgetting, noise_forgetting, p, gains) */
static const char *regression(const Arg *in, Arg *out) {
    (void)out;
    bool seasonal = in[0].size == REGRESSION_SEASONAL_STATE;
    REQUIRE(seasonal || in[0].size == REGRESSION_STATE,
            "state must have REGRESSION_STATE items, or REGRESSION_SEASONAL_STATE");
    REQUIRE(in[3].size == in[4].size, "gains must be as long as p");
    RegressionBet *state = in[0].data;
    SeasonStep now;
    if (seasonal) now = season_open(&state->season.clock);
    for (int64_t i = 0; i < in[3].size; i++)
        float64s(&in[4])[i] =
            regression_gain(state, seasonal ? &now : NULL, in[1].real, in[2].real, float64s(&in[3])[i]);
    if (seasonal) season_close(&state->season.clock, &now);
    return NULL;
}

/* regression_tails(state, p): the integrals from 0 to p and from p to 1 */
static const char *regression_tails(const Arg *in, Arg *out) {
    bool seasonal = in[0].size == REGRESSION_SEASONAL_STATE;
    REQUIRE(seasonal || in[0].size == REGRESSION_STATE,
            "state must have REGRESSION_STATE items, or REGRESSION_SEASONAL_STATE");
    RegressionBet *state = in[0].data;
    SeasonPredictors with;
    SeasonStep now;
    if (seasonal) now = season_open(&state->season.clock);
    RegressionStep step = regression_predict(state, seasonal ? &now : NULL, &with);
    Normal law = regression_law(&step, &state->core.noise);
    double z = normal_score(in[1].real);
    out[0].real = normal_integral(law, z, false), out[1].real = normal_integral(law, z, true);
    return NULL;
}

#define REGRESSION_KERNELS \
    ENTRY(volatility, "Dfpo"), ENTRY(regression_fresh, "D"), ENTRY(regression, "Dffpo"), \
        ENTRY(regression_tails, "df>ff"),
#define REGRESSION_CONSTANTS CONSTANT(REGRESSION_STATE), CONSTANT(REGRESSION_SEASONAL_STATE),
