/* Evidence that the rate of events (0 or 1) has changed, for a rate that is not known.
 *
 * With KT the probabilities of Krichevsky and Trofimov, B_i those of the events after a change before event i, and n
 * events with k ones so far,
 *
 *     L_i = KT(y_1 .. y_{i-1}) B_i(y_i .. y_n) / max_q q^k (1 - q)^(n-k)
 *
 * is at most a likelihood ratio against the true rate, whatever it is. Two statistics are mixtures of them:
 *
 *     evidence    E_n = sum_{i<=n} w_i L_i + W_n L_{n+1} ,   W_n = (n + 1)^(-1/4) ,   w_i = W_{i-1} - W_i ,
 *     statistic   M_n = sum_{i<=n} s_i L_i ,   s_i = 5/4 sqrt(m/ln(1600 C^2 m)), m = min(i - 1, 2^20), or 1 if m < 32 .
 *
 * For C + 1 ordered values instead of 0 and 1, both are averages over the C events "the value is above the c-th". E_n is
 * at most a martingale that starts with 1. docs/promises.md proves what M_n guarantees.
 *
 * B_i mixes rates on a grid of log odds, 1/4 apart. Their weights depend on the distance d from the log odds of the rate
 * so far, (k + 1/2)/(n - k + 1/2) rounded to the grid: e^(-2 |d|), twice that towards a rate of 1/2, times
 * 1 - exp(-100 D), where D is the relative entropy of an event after the change, so that changes which take many
 * hundreds of events to show count for less. The weights sum to 1. If the log odds so far are beyond 9.25, which is a
 * rate of 1 in 10,000, they sum to less, in proportion to their sum before it is made 1: otherwise the statistic would
 * grow steadily while all events are equal. Since the grid is fixed, all starts with one rate share one sum:
 *
 *     psi_j <- (psi_j + s_n L V_j) r_j^y (1 - r_j)^(1-y) .
 *
 * All sums are divided by the greatest likelihood as they go. A sum that falls below 1e-290 is dropped, which lowers both
 * statistics: float64 has no smaller numbers that shrink by small factors, and the total is near one. So after a change
 * with overwhelming evidence, the evidence of a later change back is understated.
 *
 * The change point is the start of the largest single summand of M_n with at least one event before it, which is found
 * in the same way with a maximum in place of the sum.
 */

enum {
    RATE_COUNT = 111,
    RATE_GRID = 112, /* padded with a rate of weight 0 */
    RATE_MIDDLE = 55,
    RATE_RARE = 37, /* places from the middle to a rate of 1 in 10,000 */
    RATE_LIMIT = 1 << 20, /* events after which the weights of starts stay as they are */
};
static const double RATE_STEP = 0.25;
static const double RATE_LARGE = 1e100; /* beyond it the sums are rescaled to near one */
static const double RATE_TINY = 1e-290;

typedef struct {
    double events, ones;
    double ratio;    /* KT(y_1 .. y_n)/max_q q^k (1 - q)^(n-k) */
    double unit;     /* sums are in units of exp(unit), which is at least one */
    double starts[RATE_GRID];   /* the summands of M_n, by rate */
    double weighted[RATE_GRID]; /* the summands of E_n */
    double best[RATE_GRID];     /* the largest summand of M_n, */
    double begin[RATE_GRID];    /* the number of events before its start, */
    double before[RATE_GRID];   /* and the number of ones among them */
} Rate;

typedef struct {
    double rates[2][RATE_GRID]; /* the probabilities of 0 and of 1 */
    double weights[RATE_COUNT][RATE_GRID]; /* V, by the rate so far */
    double directions; /* 1 for higher rates, 2 for lower ones, 3 for both */
} RateTables;

enum { RATE_STATE = sizeof(Rate) / sizeof(double), RATE_TABLES = sizeof(RateTables) / sizeof(double) };

/* ------------------------------------------------------------------ tables */

/* The probability of an event with these log odds. */
static double rate_of(double log_odds) {
    double odds = ex_exp(-fabs(log_odds));
    return (log_odds < 0.0 ? odds : 1.0) / (1.0 + odds);
}

/* The weight of a change from log odds a to log odds b; `directions`: 1 for higher rates, 2 for lower ones. */
static double rate_weight(double a, double b, int directions) {
    if (a == b || !(directions & (b > a ? 1 : 2))) return 0.0;
    double towards = a == 0.0 ? 1.5 : (b > a) == (a < 0.0) ? 2.0 : 1.0;
    double entropy = rate_of(b) * (b - a) + ex_log(rate_of(-b) / rate_of(-a)); /* p ln(p/p0) + q ln(q/q0) */
    return towards * ex_exp(-2.0 * fabs(b - a)) * -ex_expm1(-100.0 * entropy);
}

static void rate_tables_of(RateTables *tables, int directions) {
    memset(tables, 0, sizeof *tables);
    for (int j = 0; j < RATE_COUNT; j++) {
        double log_odds = (j - RATE_MIDDLE) * RATE_STEP;
        tables->rates[0][j] = rate_of(-log_odds), tables->rates[1][j] = rate_of(log_odds);
    }
    double sums[RATE_COUNT] = {0};
    for (int g = 0; g < RATE_COUNT; g++)
        for (int j = 0; j < RATE_COUNT; j++) {
            double weight = rate_weight((g - RATE_MIDDLE) * RATE_STEP, (j - RATE_MIDDLE) * RATE_STEP, directions);
            tables->weights[g][j] = weight, sums[g] += weight;
        }
    for (int g = 0; g < RATE_COUNT; g++) {
        int rare = g < RATE_MIDDLE ? RATE_MIDDLE - RATE_RARE : RATE_MIDDLE + RATE_RARE;
        double sum = sums[abs(g - RATE_MIDDLE) > RATE_RARE ? rare : g];
        for (int j = 0; j < RATE_COUNT; j++) tables->weights[g][j] /= sum;
    }
    tables->directions = directions;
}

/* ------------------------------------------------------------------ steps */

/* The log of (x + 1)^(x + 1)/x^x, by which the greatest likelihood shrinks. */
static inline double rate_log_growth(double x) { return x > 0.0 ? ex_log(x + 1.0) + x * ex_log1p(1.0 / x) : 0.0; }

/* s_i, for a start after m events. */
static inline double rate_start(double m, int64_t cuts) {
    if (m < 32.0) return 1.0;
    m = m < RATE_LIMIT ? m : RATE_LIMIT;
    return 1.25 * sqrt(m / ex_log(1600.0 * (double)(cuts * cuts) * m));
}

/* The rate so far on the grid. */
static inline int64_t rate_place(double ones, double zeros) {
    double place = rint(ex_log((ones + 0.5) / (zeros + 0.5)) / RATE_STEP) + RATE_MIDDLE;
    return place >= 0.0 ? place < RATE_COUNT ? (int64_t)place : RATE_COUNT - 1 : 0;
}

static inline double rate_log_add(double a, double b) {
    double high = a > b ? a : b, low = a > b ? b : a;
    return low == -INFINITY ? high : high + ex_log1p(ex_exp(low - high));
}

/* Give back units: from here on the sums are in units of exp(level). */
static void rate_rescale(Rate *state, double level) {
    double factor = ex_exp(state->unit - level);
    for (int j = 0; j < RATE_GRID; j++)
        state->starts[j] *= factor, state->weighted[j] *= factor, state->best[j] *= factor;
    state->unit = level;
}

typedef struct {
    double evidence, statistic; /* log E_n and log M_n */
    double log_best;            /* the largest summand of M_n */
    double begin, before;       /* the number of events before its start, and of ones among them */
} RateStep;

/* Count one event. */
static inline RateStep rate_count(Rate *state, const RateTables *tables, int64_t cuts, bool y) {
    double n = state->events, k = state->ones, same = y ? k : n - k, scale = ex_exp(-state->unit);
    double log_rest = 0.25 * ex_log(n + 1.0), log_next = 0.25 * ex_log(n + 2.0);
    double start = rate_start(n, cuts) * state->ratio * scale;
    double share = -ex_expm1(-0.25 * ex_log1p(1.0 / (n + 1.0))) * ex_exp(-log_rest) * state->ratio * scale; /* w_{n+1} L */
    double growth = ex_exp(rate_log_growth(n) - rate_log_growth(same)), top = 0.0;
    const double *weights = tables->weights[rate_place(k, n - k)], *rates = tables->rates[y];
    Lanes starts = lanes_fill(start), shares = lanes_fill(share), factor = lanes_fill(growth);
    Lanes statistic = lanes_fill(0.0), evidence = lanes_fill(0.0);
    int best = 0;
    for (int j = 0; j < RATE_GRID; j += LANES) {
        Lanes weight = lanes_load(weights + j), by = lanes_mul(lanes_load(rates + j), factor);
        Lanes fresh = lanes_mul(starts, weight);
        Lanes psi = lanes_mul(lanes_add(lanes_load(state->starts + j), fresh), by);
        Lanes part = lanes_mul(lanes_add(lanes_load(state->weighted + j), lanes_mul(shares, weight)), by);
        lanes_store(state->starts + j, psi);
        lanes_store(state->weighted + j, part);
        statistic = lanes_add(statistic, psi);
        evidence = lanes_add(evidence, part);
    }
    for (int j = 0; j < RATE_GRID; j++) {
        double fresh = n > 0.0 ? start * weights[j] : 0.0;
        bool first = fresh > state->best[j];
        state->best[j] = (first ? fresh : state->best[j]) * (rates[j] * growth);
        state->best[j] = state->best[j] > RATE_TINY ? state->best[j] : 0.0;
        state->starts[j] = state->starts[j] > RATE_TINY ? state->starts[j] : 0.0;
        state->weighted[j] = state->weighted[j] > RATE_TINY ? state->weighted[j] : 0.0;
        state->begin[j] = first ? n : state->begin[j];
        state->before[j] = first ? k : state->before[j];
    }
    for (int j = 0; j < RATE_GRID; j++)
        if (state->best[j] > top) top = state->best[j], best = j;
    state->ratio *= growth * (same + 0.5) / (n + 1.0);
    state->events = n + 1.0, state->ones = k + (y ? 1.0 : 0.0);
    double total = lanes_sum(statistic), sum = ex_log(lanes_sum(evidence)) + state->unit;
    RateStep step = {rate_log_add(sum, ex_log(state->ratio) - log_next), ex_log(total) + state->unit,
                     ex_log(top) + state->unit, state->begin[best], state->before[best]};
    if (total > RATE_LARGE) rate_rescale(state, state->unit + ex_log(total));
    if (total < 1.0 / RATE_LARGE && state->unit > 0.0) {
        double level = state->unit + ex_log(total);
        rate_rescale(state, level > 0.0 ? level : 0.0);
    }
    return step;
}

/* A test: a state for each cut, its record (see track.c), and its alarm. */
typedef struct {
    Rate *states;
    int64_t cuts;
    const RateTables *tables;
    int64_t *integers;
    double *reals;
    double *found; /* at the alarm: the cut, and the rates of values above it before and after the change */
    bool restart, by_statistic; /* start a new test after an alarm; compare M_n, and not E_n, with the level */
    double log_level;
} RateTest;

static void rate_begin(Rate *states, int64_t cuts) {
    memset(states, 0, (size_t)cuts * sizeof *states);
    for (int64_t c = 0; c < cuts; c++) states[c].ratio = 1.0;
}

/* Count one value, given by its rank among the values, for all cuts; return the averages, and the best of all cuts. */
static inline RateStep rate_count_all(const RateTest *test, int64_t value, int64_t *best) {
    RateStep all = rate_count(test->states, test->tables, test->cuts, value > 0);
    *best = 0;
    for (int64_t c = 1; c < test->cuts; c++) {
        RateStep one = rate_count(test->states + c, test->tables, test->cuts, value > c);
        all.evidence = rate_log_add(all.evidence, one.evidence);
        all.statistic = rate_log_add(all.statistic, one.statistic);
        if (one.log_best > all.log_best)
            all.log_best = one.log_best, all.begin = one.begin, all.before = one.before, *best = c;
    }
    double log_cuts = test->cuts > 1 ? ex_log((double)test->cuts) : 0.0;
    all.evidence -= log_cuts, all.statistic -= log_cuts;
    return all;
}

/* Count one value and record it. With restarts the next value after an alarm starts a new test. There is no alarm if the
 * estimated change is none, or one in the other direction: so a stream of equal values has no alarm.
 */
static inline RateStep rate_record(const RateTest *test, int64_t value, bool *alarm, int64_t *change) {
    int64_t cut, *integers = test->integers;
    RateStep step = rate_count_all(test, value, &cut);
    const Rate *state = test->states + cut;
    bool raised = (test->by_statistic ? step.statistic : step.evidence) >= test->log_level;
    double begin = step.begin >= 0.0 && step.begin < state->events ? step.begin : 0.0; /* what was loaded may be wrong */
    double before = begin > 0.0 ? step.before / begin : 0.0, after = (state->ones - step.before) / (state->events - begin);
    int direction = after > before ? 1 : after < before ? 2 : 0;
    raised = raised && begin > 0.0 && ((int)test->tables->directions & direction);
    integers[TRACK_LOWEST] = integers[TRACK_START] + (int64_t)begin;
    *alarm = track_example(integers, test->reals, test->restart, step.evidence, raised, change);
    if (raised && integers[TRACK_ALARM] == integers[TRACK_N]) {
        test->found[0] = (double)cut, test->found[1] = before, test->found[2] = after;
        if (test->restart) rate_begin(test->states, test->cuts);
    }
    return step;
}

/* Read the arguments (states, tables, integers, reals, found, restart, by_statistic, log_level). */
static const char *rate_arguments(const Arg *in, RateTest *test) {
    int64_t cuts = in[0].size / RATE_STATE;
    Rate *states = in[0].data;
    REQUIRE(cuts >= 1 && in[0].size == cuts * RATE_STATE && in[1].size == RATE_TABLES,
            "states must have RATE_STATE items for each cut, and tables RATE_TABLES");
    REQUIRE(in[2].size == TRACK_INTEGERS && in[3].size == TRACK_REALS && in[4].size == 3, "the record has the wrong size");
    for (int64_t c = 0; c < cuts; c++)
        REQUIRE(states[c].ones >= 0.0 && states[c].ones <= states[c].events && states[c].events <= 0x1p53,
                "ones must be at most events");
    *test = (RateTest){states,          cuts,          in[1].data,    int64s(&in[2]), float64s(&in[3]),
                       float64s(&in[4]), in[5].integer, in[6].integer, in[7].real};
    return NULL;
}

/* rate_tables(tables, directions): 1 for higher rates only, 2 for lower ones, 3 for both */
static const char *rate_tables(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == RATE_TABLES, "tables must have RATE_TABLES items");
    rate_tables_of(in[0].data, (int)in[1].integer);
    return NULL;
}

/* rate_fresh(states) */
static const char *rate_fresh(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size % RATE_STATE == 0, "states must have RATE_STATE items for each cut");
    rate_begin(in[0].data, in[0].size / RATE_STATE);
    return NULL;
}

/* rate(states, tables, integers, reals, found, restart, by_statistic, log_level, values, n, log_value, statistic, alarm,
 * lowest, test) -> how many values were counted: with restarts only those up to an alarm
 */
static const char *rate(const Arg *in, Arg *out) {
    RateTest test;
    const char *wrong = rate_arguments(in, &test);
    int64_t size = in[8].size, i = 0;
    bool alarm = false;
    if (wrong) return wrong;
    for (int k = 9; k < 15; k++) REQUIRE(in[k].size == size, "columns must be as long as there are values");
    while (i < size && !(alarm && test.restart)) {
        int64s(&in[14])[i] = test.integers[TRACK_TEST];
        RateStep step = rate_record(&test, int64s(&in[8])[i], &alarm, int64s(&in[13]) + i);
        float64s(&in[10])[i] = step.evidence, float64s(&in[11])[i] = step.statistic;
        int64s(&in[9])[i] = test.integers[TRACK_N], bools(&in[12])[i] = alarm;
        i++;
    }
    out[0].integer = i;
    return NULL;
}

/* rate_step(states, tables, integers, reals, found, restart, by_statistic, log_level, value)
 * -> log evidence, log statistic, alarm
 */
static const char *rate_step(const Arg *in, Arg *out) {
    RateTest test;
    int64_t change;
    bool alarm;
    const char *wrong = rate_arguments(in, &test);
    if (wrong) return wrong;
    RateStep step = rate_record(&test, in[8].integer, &alarm, &change);
    out[0].real = step.evidence, out[1].real = step.statistic, out[2].integer = alarm;
    return NULL;
}

#define RATE_KERNELS \
    ENTRY(rate_tables, "Dn"), \
    ENTRY(rate_fresh, "D"), \
    ENTRY(rate, "DdQDDnnfqQDDBQQ>n"), \
    ENTRY(rate_step, "!DdQDDnnfn>ffn"),
#define RATE_CONSTANTS CONSTANT(RATE_STATE), CONSTANT(RATE_TABLES),
