/* Evidence that the conditional mean of bounded losses has passed a limit, and a confidence sequence of the mean.
 *
 * Losses x and the limit c are scaled to [0, 1]. A bet with fraction f in [0, 1) multiplies its capital by
 *
 *     1 + lambda (x - c) = 1 - f + f x/c ,   lambda = f/c ,
 *
 * which is nonnegative, and at most 1 on average while the conditional mean is at most c, whatever the past. There are
 * fixed fractions on a geometric grid, and adaptive ones: c S/(Q + c (1 - c)), at least 0 and at most 1/2, where S and Q
 * are the sums of x - c and of its square over the past, with four rates of forgetting. With F_i^k the product of the
 * factors of bet k from loss i on, and v_k the weights of the bets,
 *
 *     evidence    E_n = sum_{i<=n} w_i sum_k v_k F_i^k + W_n ,   W_n = (n + 1)^(-1/4) ,   w_i = W_{i-1} - W_i ,
 *     statistic   M_n = sum_{i<=n} sum_k v_k F_i^k .
 *
 * E_n is a mixture of supermartingales that start with 1: the part W_n has not been bet yet. M_n is a Shiryaev-Roberts
 * statistic: E[M_n | past] <= M_{n-1} + 1.
 *
 * The confidence sequence of the mean m of the conditional means of losses 1 .. n: for each l in (0, 1),
 * exp(l sum (x_i - m_i) - psi(l) V) with psi(l) = -ln(1 - l) - l and V = sum (x_i - prediction_i)^2 is a
 * supermartingale (Howard et al. 2021), and so is the one with -l in the first term. A mixture over a geometric grid of
 * l reaches 2/alpha with a probability of at most alpha/2; |mean - m| is at most the D/n at which it does.
 *
 * Sums are rescaled as in rate.c, and parts that fall below 1e-290 are dropped, which lowers E_n and M_n. The change
 * point is the start of the largest single v_k F_i^k.
 */

enum {
    RISK_FIXED = 20,
    RISK_MEMORIES = 4,
    RISK_BETS = RISK_FIXED + RISK_MEMORIES,
    RISK_GRID = 32, /* of the confidence sequence */
    RISK_BAND = 256, /* rows of the history of the confidence sequence */
};
static const double RISK_LARGE = 1e100; /* beyond it the sums are rescaled to near one */
static const double RISK_TINY = 1e-290;
static const double RISK_FORGET[RISK_MEMORIES] = {1.0, 0.99, 0.97, 0.9};

typedef struct {
    double losses, sum, squares; /* how many, their sum, and V */
    double unit;                 /* sums are in units of exp(unit), which is at least one */
    double memory[RISK_MEMORIES][2]; /* S and Q */
    double starts[RISK_BETS];   /* the summands of M_n, by bet */
    double weighted[RISK_BETS]; /* the summands of E_n */
    double best[RISK_BETS];     /* the largest summand of M_n, */
    double begin[RISK_BETS];    /* the number of losses before its start, */
    double passed[RISK_BETS];   /* and their sum */
} Risk;

typedef struct {
    double fractions[RISK_BETS], weights[RISK_BETS];
    double lambda[RISK_GRID], psi[RISK_GRID], cost[RISK_GRID]; /* of the confidence sequence; cost = -log(weight) */
} RiskTables;

typedef struct {
    double rows, stride; /* how many rows are filled, and how many losses apart they are */
    double alarm[6]; /* at the latest alarm: losses, mean, ends of the interval, and means before and after the rise */
    double row[RISK_BAND][4]; /* the number of losses, the mean, and the ends of the interval */
} RiskBand;

enum {
    RISK_STATE = sizeof(Risk) / sizeof(double),
    RISK_TABLES = sizeof(RiskTables) / sizeof(double),
    RISK_HISTORY = sizeof(RiskBand) / sizeof(double),
    RISK_ROWS = offsetof(RiskBand, row) / sizeof(double),
};

/* ------------------------------------------------------------------ tables */

static double risk_psi(double l) {
    if (l > 0.1) return -ex_log1p(-l) - l;
    double power = l * l, sum = 0.0;
    for (int j = 2; j < 18; j++, power *= l) sum += power / j;
    return sum;
}

static void risk_tables_of(RiskTables *tables) {
    const double half = sqrt(0.5);
    double fraction = 0.96, l = 0.9, sum = 0.0;
    for (int k = 0; k < RISK_BETS; k++, fraction *= half) {
        tables->fractions[k] = k < RISK_FIXED ? fraction : 0.0; /* those of the others change */
        tables->weights[k] = k < RISK_FIXED ? 0.75 / RISK_FIXED : 0.25 / RISK_MEMORIES;
    }
    for (int k = 0; k < RISK_GRID; k++) sum += 1.0 / (k + 1);
    for (int k = 0; k < RISK_GRID; k++, l *= half)
        tables->lambda[k] = l, tables->psi[k] = risk_psi(l), tables->cost[k] = ex_log(sum * (k + 1));
}

/* ------------------------------------------------------------------ steps */

typedef struct {
    double evidence, statistic; /* log E_n and log M_n */
    double begin, passed;       /* the number of losses before the start of the largest summand of M_n, and their sum */
} RiskStep;

typedef struct {
    double mean, low, high;
} RiskInterval;

/* The interval of the mean conditional loss; log_level is log(2/alpha). */
static RiskInterval risk_interval_of(const Risk *state, const RiskTables *tables, double log_level) {
    double n = state->losses, mean = state->sum / n, reach = INFINITY;
    if (!(n > 0.0)) return (RiskInterval){0.5, 0.0, 1.0};
    for (int k = 0; k < RISK_GRID; k++) {
        double one = (log_level + tables->cost[k] + tables->psi[k] * state->squares) / tables->lambda[k];
        reach = one < reach ? one : reach;
    }
    for (int step = 0; step < 3; step++) { /* Newton's, from the right: the function is convex, so it stays there */
        double sum = 0.0, slope = 0.0;
        for (int k = 0; k < RISK_GRID; k++) {
            double part = tables->lambda[k] * reach - tables->psi[k] * state->squares - tables->cost[k] - log_level;
            double term = ex_exp(part);
            sum += term, slope += tables->lambda[k] * term;
        }
        reach -= sum * ex_log(sum) / slope;
    }
    double low = mean - reach / n, high = mean + reach / n;
    return (RiskInterval){mean, low > 0.0 ? low : 0.0, high < 1.0 ? high : 1.0};
}

/* The fractions of the adaptive bets, from the past. */
static inline void risk_fractions(const Risk *state, double limit, double *fractions) {
    for (int m = 0; m < RISK_MEMORIES; m++) {
        double f = limit * state->memory[m][0] / (state->memory[m][1] + limit * (1.0 - limit));
        fractions[m] = f > 0.0 ? f < 0.5 ? f : 0.5 : 0.0;
    }
}

/* Give back units: from here on the sums are in units of exp(level). */
static void risk_rescale(Risk *state, double level) {
    double factor = ex_exp(state->unit - level);
    for (int k = 0; k < RISK_BETS; k++)
        state->starts[k] *= factor, state->weighted[k] *= factor, state->best[k] *= factor;
    state->unit = level;
}

static inline double risk_kept(double part) { return part > RISK_TINY ? part : 0.0; }

/* Bet on one loss. */
static inline RiskStep risk_bet(Risk *state, const RiskTables *tables, double limit, double x) {
    double n = state->losses, log_rest = 0.25 * ex_log(n + 1.0), log_next = 0.25 * ex_log(n + 2.0);
    double fresh = ex_exp(-state->unit), share = -ex_expm1(log_rest - log_next) * ex_exp(-log_rest) * fresh;
    double fractions[RISK_BETS], total = 0.0, sum = 0.0, top = 0.0, ratio = x / limit;
    int best = 0;
    memcpy(fractions, tables->fractions, sizeof fractions);
    risk_fractions(state, limit, fractions + RISK_FIXED);
    for (int k = 0; k < RISK_BETS; k++) {
        double weight = tables->weights[k], factor = 1.0 - fractions[k] + fractions[k] * ratio, start = fresh * weight;
        bool first = start > state->best[k];
        state->starts[k] = risk_kept((state->starts[k] + start) * factor);
        state->weighted[k] = risk_kept((state->weighted[k] + share * weight) * factor);
        state->best[k] = risk_kept((first ? start : state->best[k]) * factor);
        state->begin[k] = first ? n : state->begin[k];
        state->passed[k] = first ? state->sum : state->passed[k];
        total += state->starts[k], sum += state->weighted[k];
        if (state->best[k] > top) top = state->best[k], best = k;
    }
    RiskStep step = {rate_log_add(ex_log(sum) + state->unit, -log_next), ex_log(total) + state->unit, state->begin[best],
                     state->passed[best]};
    for (int m = 0; m < RISK_MEMORIES; m++) {
        state->memory[m][0] = RISK_FORGET[m] * state->memory[m][0] + (x - limit);
        state->memory[m][1] = RISK_FORGET[m] * state->memory[m][1] + (x - limit) * (x - limit);
    }
    double error = x - (state->sum + 0.5) / (n + 1.0);
    state->losses = n + 1.0, state->sum += x, state->squares += error * error;
    if (total > RISK_LARGE) risk_rescale(state, state->unit + ex_log(total));
    if (total < 1.0 / RISK_LARGE && state->unit > 0.0) {
        double level = state->unit + ex_log(total);
        risk_rescale(state, level > 0.0 ? level : 0.0);
    }
    return step;
}

/* Add a row to the history of the interval, if it is time for one; when the history is full, every second row goes. */
static void risk_draw(RiskBand *band, const Risk *state, const RiskTables *tables, double log_interval, int64_t n) {
    int64_t rows = (int64_t)band->rows, stride = (int64_t)band->stride;
    if (n % stride) return;
    RiskInterval now = risk_interval_of(state, tables, log_interval);
    double row[4] = {(double)n, now.mean, now.low, now.high};
    memcpy(band->row[rows++], row, sizeof row);
    if (rows == RISK_BAND) {
        int64_t kept = 0;
        for (int64_t i = 0; i < rows; i++)
            if ((int64_t)band->row[i][0] % (2 * stride) == 0) memmove(band->row[kept++], band->row[i], sizeof row);
        memset(band->row[kept], 0, (size_t)(rows - kept) * sizeof row);
        rows = kept, band->stride = 2.0 * (double)stride;
    }
    band->rows = (double)rows;
}

/* Store what an alarm is about. Without a loss before the rise, the mean before it is stored as -1. */
static void risk_alarm(RiskBand *band, const Risk *state, RiskInterval now, double begin, double passed) {
    double after = (state->sum - passed) / (state->losses - begin), before = begin > 0.0 ? passed / begin : -1.0;
    double alarm[6] = {state->losses, now.mean, now.low, now.high, before, after};
    memcpy(band->alarm, alarm, sizeof alarm);
}

/* A test: its state, its record (see track.c), its alarm and the history of its interval. */
typedef struct {
    Risk *state;
    const RiskTables *tables;
    RiskBand *band;
    int64_t *integers;
    double *reals;
    bool restart, by_statistic; /* start a new test after an alarm; compare M_n, and not E_n, with the level */
    double log_level, log_interval, limit;
} RiskTest;

/* Bet on one loss and record it. With restarts the next loss after an alarm starts a new test. */
static inline RiskStep risk_record(const RiskTest *test, double x, bool *alarm, int64_t *change, RiskInterval *interval) {
    int64_t *integers = test->integers;
    RiskStep step = risk_bet(test->state, test->tables, test->limit, x);
    bool raised = (test->by_statistic ? step.statistic : step.evidence) >= test->log_level;
    double begin = step.begin >= 0.0 && step.begin < test->state->losses ? step.begin : 0.0; /* what was loaded may be wrong */
    integers[TRACK_LOWEST] = integers[TRACK_START] + (int64_t)begin;
    *alarm = track_example(integers, test->reals, test->restart, step.evidence, raised, change);
    bool first = *alarm && integers[TRACK_ALARM] == integers[TRACK_N];
    RiskInterval now = {0.0, 0.0, 1.0};
    if (interval || first) now = risk_interval_of(test->state, test->tables, test->log_interval);
    if (interval) *interval = now;
    if (first) risk_alarm(test->band, test->state, now, begin, step.passed);
    risk_draw(test->band, test->state, test->tables, test->log_interval, integers[TRACK_N]);
    if (raised && test->restart) memset(test->state, 0, sizeof *test->state);
    return step;
}

/* Read the arguments (state, tables, band, integers, reals, restart, by_statistic, log_level, log_interval, limit). */
static const char *risk_arguments(const Arg *in, RiskTest *test) {
    REQUIRE(in[0].size == RISK_STATE && in[1].size == RISK_TABLES && in[2].size == RISK_HISTORY,
            "state, tables and band must have RISK_STATE, RISK_TABLES and RISK_HISTORY items");
    REQUIRE(in[3].size == TRACK_INTEGERS && in[4].size == TRACK_REALS, "the record has the wrong size");
    const RiskBand *band = in[2].data;
    REQUIRE(band->rows >= 0.0 && band->rows < RISK_BAND && band->stride >= 1.0 && band->stride <= 0x1p53,
            "band must have fewer than RISK_BAND rows");
    *test = (RiskTest){in[0].data,    in[1].data,    in[2].data, int64s(&in[3]), float64s(&in[4]),
                       in[5].integer, in[6].integer, in[7].real, in[8].real,     in[9].real};
    return NULL;
}

/* risk_tables(tables) */
static const char *risk_tables(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == RISK_TABLES, "tables must have RISK_TABLES items");
    risk_tables_of(in[0].data);
    return NULL;
}

/* risk(state, tables, band, integers, reals, restart, by_statistic, log_level, log_interval, limit, losses, n, log_value,
 * statistic, alarm, lowest, test, mean, low, high) -> how many losses were used: with restarts only those up to an alarm
 */
static const char *risk(const Arg *in, Arg *out) {
    RiskTest test;
    const char *wrong = risk_arguments(in, &test);
    int64_t size = in[10].size, i = 0;
    bool alarm = false;
    if (wrong) return wrong;
    for (int k = 11; k < 20; k++) REQUIRE(in[k].size == size, "columns must be as long as there are losses");
    while (i < size && !(alarm && test.restart)) {
        RiskInterval interval;
        int64s(&in[16])[i] = test.integers[TRACK_TEST];
        RiskStep step = risk_record(&test, float64s(&in[10])[i], &alarm, int64s(&in[15]) + i, &interval);
        float64s(&in[12])[i] = step.evidence, float64s(&in[13])[i] = step.statistic;
        int64s(&in[11])[i] = test.integers[TRACK_N], bools(&in[14])[i] = alarm;
        float64s(&in[17])[i] = interval.mean, float64s(&in[18])[i] = interval.low, float64s(&in[19])[i] = interval.high;
        i++;
    }
    out[0].integer = i;
    return NULL;
}

/* risk_step(state, tables, band, integers, reals, restart, by_statistic, log_level, log_interval, limit, loss)
 * -> log evidence, log statistic, alarm
 */
static const char *risk_step(const Arg *in, Arg *out) {
    RiskTest test;
    int64_t change;
    bool alarm;
    const char *wrong = risk_arguments(in, &test);
    if (wrong) return wrong;
    RiskStep step = risk_record(&test, in[10].real, &alarm, &change, NULL);
    out[0].real = step.evidence, out[1].real = step.statistic, out[2].integer = alarm;
    return NULL;
}

/* risk_interval(state, tables, log_interval) -> mean, low, high */
static const char *risk_interval(const Arg *in, Arg *out) {
    REQUIRE(in[0].size == RISK_STATE && in[1].size == RISK_TABLES, "state and tables have the wrong size");
    RiskInterval interval = risk_interval_of(in[0].data, in[1].data, in[2].real);
    out[0].real = interval.mean, out[1].real = interval.low, out[2].real = interval.high;
    return NULL;
}

/* risk_bound(losses, tables, limit) -> log of the evidence that the mean of independent losses is below the limit
 *
 * sum_k prod_i (1 - f_k + f_k (1 - x_i)/(1 - c)) over the fixed fractions, averaged. It grows with the limit.
 */
static const char *risk_bound(const Arg *in, Arg *out) {
    REQUIRE(in[1].size == RISK_TABLES, "tables must have RISK_TABLES items");
    const RiskTables *tables = in[1].data;
    double all = -INFINITY;
    for (int k = 0; k < RISK_FIXED; k++) {
        double f = tables->fractions[k], log_product = 0.0, product = 1.0;
        for (int64_t i = 0; i < in[0].size; i++) {
            product *= 1.0 - f + f * ((1.0 - float64s(&in[0])[i]) / (1.0 - in[2].real));
            if (product > RISK_LARGE || product < 1.0 / RISK_LARGE) log_product += ex_log(product), product = 1.0;
        }
        all = rate_log_add(all, log_product + ex_log(product));
    }
    out[0].real = all - ex_log((double)RISK_FIXED);
    return NULL;
}

#define RISK_KERNELS \
    ENTRY(risk_tables, "D"), \
    ENTRY(risk, "DdDQDnnfffdQDDBQQDDD>n"), \
    ENTRY(risk_step, "!DdDQDnnffff>ffn"), \
    ENTRY(risk_interval, "!ddf>fff"), \
    ENTRY(risk_bound, "ddf>f"),
#define RISK_CONSTANTS CONSTANT(RISK_STATE), CONSTANT(RISK_TABLES), CONSTANT(RISK_HISTORY), CONSTANT(RISK_BAND), CONSTANT(RISK_ROWS),
