/* Jumpers: gamblers who change their strategy at random, with several strategies mixed exactly. */

/* The sleepy jumper. Sleeping capital a_eps does not bet; waking capital w_eps bets eps p^(eps - 1), eps = 1/G, .., 1.
 * With W = sum w, R = waking, J = jumping, and both updates at once,
 *
 *     w'_eps = (1 - J) w_eps + J W/G ,
 *     a_eps <- (1 - R) a_eps + R w'_eps ,   w_eps <- ((1 - R) w'_eps + R a_eps) eps p^(eps - 1) .
 *
 * `weights` = (a_1 .. a_G, w_1 .. w_G) sum to one. The factors of all bets lie between 1 and p^(1/G - 1), times eps. Its
 * square root is taken out, so that the total neither overflows nor underflows, however small p is. Returns the log
 * density at p.
 */
static inline double sleepy_jumper_step(double *weights, int64_t grid, double waking, double jumping, double p) {
    double G = (double)grid, *asleep = weights, *awake = weights + grid, all_awake = 0.0;
    for (int64_t j = 0; j < grid; j++) all_awake += awake[j];
    double log_p = ex_log(p), scale = 0.5 * (1.0 / G - 1.0) * log_p, idle = ex_exp(-scale);
    double power = ex_exp(scale), ratio = ex_exp(log_p / G), shared = jumping * all_awake / G, total = 0.0;
    for (int64_t j = 0; j < grid; j++) {
        double jumped = (1.0 - jumping) * awake[j] + shared, slept = asleep[j];
        asleep[j] = ((1.0 - waking) * slept + waking * jumped) * idle;
        awake[j] = ((1.0 - waking) * jumped + waking * slept) * ((double)(j + 1) / G) * power;
        total += asleep[j] + awake[j];
        power *= ratio;
    }
    for (int64_t j = 0; j < 2 * grid; j++) weights[j] /= total;
    return ex_log(total) + scale;
}

static void sleepy_jumper_path(double *weights, int64_t grid, double waking, double jumping, const double *p, int64_t n,
                               double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = sleepy_jumper_step(weights, grid, waking, jumping, p[i]);
}

#define SIMPLE_JUMPER 3 /* gamblers */

/* The simple jumper: f_e(p) = 1 + e (p - 1/2) with e = -1, 0, 1; the weights w sum to one.
 *
 *     w_e <- ((1 - rate) w_e + rate/3) f_e(p) / f(p) ,   f(p) = sum_e ((1 - rate) w_e + rate/3) f_e(p)
 */
static inline double simple_jumper_density(double *weights, double rate, double p) {
    double total = 0.0;
    for (int k = 0; k < SIMPLE_JUMPER; k++) {
        weights[k] = ((1.0 - rate) * weights[k] + rate / 3.0) * (1.0 + (k - 1.0) * (p - 0.5));
        total += weights[k];
    }
    for (int k = 0; k < SIMPLE_JUMPER; k++) weights[k] /= total;
    return total;
}

static void simple_jumper_path(double *weights, double rate, const double *p, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = simple_jumper_density(weights, rate, p[i]);
    for (int64_t i = 0; i < n; i++) out[i] = ex_log(out[i]); /* several at once */
}

/* The composite jumper: simple jumpers of several rates, blended. A state is their log shares, then their weights. */
enum { COMPOSITE_JUMPERS = 5, COMPOSITE_STATE = COMPOSITE_JUMPERS * (1 + SIMPLE_JUMPER) };
static const double COMPOSITE_RATES[COMPOSITE_JUMPERS] = {1e-4, 1e-3, 1e-2, 1e-1, 1.0};

static void composite_jumper_path(double *state, const double *p, int64_t n, double *out) {
    double gains[COMPOSITE_JUMPERS];
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < COMPOSITE_JUMPERS; k++)
            gains[k] = simple_jumper_density(state + COMPOSITE_JUMPERS + SIMPLE_JUMPER * k, COMPOSITE_RATES[k], p[i]);
        for (int k = 0; k < COMPOSITE_JUMPERS; k++) gains[k] = ex_log(gains[k]);
        out[i] = blend_step(state, gains, COMPOSITE_JUMPERS);
    }
}

/* Composite jumpers of several streams side by side, one step of each: a recursion waits for its own results, and those
 * of other streams fill the time. The operations are those of composite_jumper_path, so the bits are the same.
 */
enum { SIDE = 8 };
typedef struct {
    double share[COMPOSITE_JUMPERS][SIDE], weight[COMPOSITE_JUMPERS][SIMPLE_JUMPER][SIDE];
} CompositeSide;

static void composite_side_step(CompositeSide *side, const double *p, double *out) {
    double gains[COMPOSITE_JUMPERS][SIDE], top[SIDE], total[SIDE];
    for (int k = 0; k < COMPOSITE_JUMPERS; k++) {
        double kept = 1.0 - COMPOSITE_RATES[k], shared = COMPOSITE_RATES[k] / 3.0;
        double(*weight)[SIDE] = side->weight[k];
        for (int i = 0; i < SIDE; i++) {
            double slope = p[i] - 0.5;
            double low = (kept * weight[0][i] + shared) * (1.0 - slope), idle = kept * weight[1][i] + shared;
            double high = (kept * weight[2][i] + shared) * (1.0 + slope), density = low + idle + high;
            weight[0][i] = low / density, weight[1][i] = idle / density, weight[2][i] = high / density;
            gains[k][i] = density;
        }
        for (int i = 0; i < SIDE; i++) gains[k][i] = ex_log(gains[k][i]);
    }
    for (int i = 0; i < SIDE; i++) top[i] = -INFINITY, total[i] = 0.0;
    for (int k = 0; k < COMPOSITE_JUMPERS; k++)
        for (int i = 0; i < SIDE; i++) {
            double value = side->share[k][i] + gains[k][i];
            top[i] = value > top[i] ? value : top[i];
        }
    for (int k = 0; k < COMPOSITE_JUMPERS; k++)
        for (int i = 0; i < SIDE; i++) total[i] += ex_exp(side->share[k][i] + gains[k][i] - top[i]);
    for (int i = 0; i < SIDE; i++) out[i] = top[i] == -INFINITY ? -INFINITY : top[i] + ex_log(total[i]);
    for (int k = 0; k < COMPOSITE_JUMPERS; k++)
        for (int i = 0; i < SIDE; i++)
            side->share[k][i] = top[i] == -INFINITY ? -INFINITY : side->share[k][i] + (gains[k][i] - out[i]);
}

/* Copy the state of a stream from place i, or to it. */
static void composite_side_load(CompositeSide *side, int i, const double *state) {
    for (int k = 0; k < COMPOSITE_JUMPERS; k++) {
        side->share[k][i] = state[k];
        for (int e = 0; e < SIMPLE_JUMPER; e++)
            side->weight[k][e][i] = state[COMPOSITE_JUMPERS + SIMPLE_JUMPER * k + e];
    }
}

static void composite_side_store(const CompositeSide *side, int i, double *state) {
    for (int k = 0; k < COMPOSITE_JUMPERS; k++) {
        state[k] = side->share[k][i];
        for (int e = 0; e < SIMPLE_JUMPER; e++)
            state[COMPOSITE_JUMPERS + SIMPLE_JUMPER * k + e] = side->weight[k][e][i];
    }
}

/* sleepy_jumper(weights, waking, jumping, p, out) */
static const char *sleepy_jumper(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size >= 2 && in[0].size % 2 == 0, "weights must hold 2 numbers for each epsilon");
    REQUIRE(in[3].size == in[4].size, "out must be as long as p");
    sleepy_jumper_path(float64s(&in[0]), in[0].size / 2, in[1].real, in[2].real, float64s(&in[3]), in[3].size,
                       float64s(&in[4]));
    return NULL;
}

/* simple_jumper(weights, rate, p, out) */
static const char *simple_jumper(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == SIMPLE_JUMPER, "weights must hold 3 numbers");
    REQUIRE(in[2].size == in[3].size, "out must be as long as p");
    simple_jumper_path(float64s(&in[0]), in[1].real, float64s(&in[2]), in[2].size, float64s(&in[3]));
    return NULL;
}

/* composite_jumper(state, p, out) */
static const char *composite_jumper(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == COMPOSITE_STATE, "state must hold 20 numbers");
    REQUIRE(in[1].size == in[2].size, "out must be as long as p");
    composite_jumper_path(float64s(&in[0]), float64s(&in[1]), in[1].size, float64s(&in[2]));
    return NULL;
}

#define JUMPER_KERNELS \
    ENTRY(sleepy_jumper, "Dffpo"), \
    ENTRY(simple_jumper, "Dfpo"), \
    ENTRY(composite_jumper, "Dpo"),
#define JUMPER_CONSTANTS CONSTANT(COMPOSITE_JUMPERS),
