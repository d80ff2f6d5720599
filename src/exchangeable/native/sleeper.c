/* Sleepers: capital that sleeps, wakes up bit by bit, and then bets for ever that the p-values have changed.
 *
 * For each of (G - 1)^2 pairs (a, b) of the grid 1/G, 2/G, .., (G - 1)/G there is a bet that p <= a has probability b,
 *
 *     f_ab(p) = b/a  if p <= a,  else  (1 - b)/(1 - a) .
 *
 * Nothing returns to the sleeping capital, and capital of one pair never moves to another, so amounts of very different
 * size matter later. An amount is value 2^(800 power), with value in [2^-400, 2^400] and an integer power.
 */

enum { SLEEPER_GRID = 1000 }; /* the largest G */
static const double SLEEPER_MIN = 0x1p-400, SLEEPER_MAX = 0x1p400, SLEEPER_STEP = 0x1p800;
static const double SLEEPER_LOG_STEP = 0x1.1542457337d43p+9; /* 800 ln 2 */

typedef struct {
    double value, power;
} Amount;

static inline Amount amount_of(double value, double power) {
    if (value > SLEEPER_MAX) return (Amount){value * (1.0 / SLEEPER_STEP), power + 1.0};
    if (value < SLEEPER_MIN) return (Amount){value * SLEEPER_STEP, power - 1.0};
    return (Amount){value, power};
}

/* The sum, whose value may lie above 2^400. Where the powers differ by more than one, the smaller amount is lost in
 * rounding.
 */
static inline Amount amount_plus(Amount a, Amount b) {
    if (a.power == b.power) return (Amount){a.value + b.value, a.power};
    Amount most = a.power > b.power ? a : b, least = a.power > b.power ? b : a;
    if (most.power - least.power == 1.0) most.value += least.value * (1.0 / SLEEPER_STEP);
    return most;
}

static inline double amount_log_ratio(Amount a, Amount b) {
    return ex_log(a.value / b.value) + (a.power - b.power) * SLEEPER_LOG_STEP;
}

static inline int64_t sleeper_pairs(int64_t grid) { return (grid - 1) * (grid - 1); }

static inline bool sleeper_grid(int64_t grid) { return 2 <= grid && grid <= SLEEPER_GRID; }

#define SLEEPER_GRID_RULE "grid must be from 2 to 1000"

/* ------------------------------------------------------------------ Stayer */

/* Before each step, the part R of the sleeping capital A is spread evenly over the K pairs:
 *
 *     A <- (1 - R) A ,   w_ab <- (w_ab + R A/K) f_ab(p) .
 *
 * `values` and `powers` hold the amounts x = w/A, so that A itself is not needed: x <- (x + R/K) f_ab(p)/(1 - R). They
 * are at least R/K times the least f_ab, which is larger than 2^-400, so no power is negative. Returns the log density.
 */
static double sleeper_stayer_step(double *values, double *powers, int64_t grid, double waking, double p) {
    double G = (double)grid, woken = waking / (double)sleeper_pairs(grid), grown = 1.0 / (1.0 - waking);
    Amount before = {1.0, 0.0}, after = {1.0, 0.0};
    for (int64_t a = 1; a < grid; a++) {
        bool below = p <= (double)a / G;
        double unit = grown / (double)(below ? a : grid - a);
        for (int64_t b = 1; b < grid; b++, values++, powers++) {
            Amount x = {*values, *powers};
            before = amount_plus(before, x);
            double awake = x.power > 0.0 ? x.value : x.value + woken;
            x = amount_of(awake * ((double)(below ? b : grid - b) * unit), x.power);
            after = amount_plus(after, x);
            *values = x.value, *powers = x.power;
        }
    }
    after.value *= 1.0 - waking;
    return amount_log_ratio(after, before);
}

static void sleeper_stayer_path(double *amounts, int64_t grid, double waking, const double *p, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++)
        out[i] = sleeper_stayer_step(amounts, amounts + sleeper_pairs(grid), grid, waking, p[i]);
}

/* sleeper_stayer(amounts, waking, grid, p, out) */
static const char *sleeper_stayer(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(sleeper_grid(in[2].integer), SLEEPER_GRID_RULE);
    REQUIRE(in[0].size == 2 * sleeper_pairs(in[2].integer), "amounts must have 2 rows of (grid - 1)^2 numbers");
    REQUIRE(in[3].size == in[4].size, "out must be as long as p");
    sleeper_stayer_path(float64s(&in[0]), in[2].integer, in[1].real, float64s(&in[3]), in[3].size, float64s(&in[4]));
    return NULL;
}

/* ------------------------------------------------------------------ Drifter */

/* After steps s = M, 2M, .. the part R of the sleeping capital is spread evenly over the pairs. If the values changed
 * after step s, so that a part b of them, and not a, is at least as large as some threshold, then ranks in the pool of
 * i values are at most
 *
 *     a' = a s/i + b (1 - s/i)
 *
 * with probability b: what woke up after step s bets f_a'b in step i. All amounts are absolute.
 */
typedef struct {
    double *head;   /* the number of steps, the sleeping amount, and the total */
    double *blocks; /* for each wake-up: the values of the pairs, then their powers */
    int64_t grid, every;
    double waking;
} Drifter;

/* The values of all b with this a after a bet in step i, where `share` is s/i. */
static void drifter_row(const double *values, int64_t grid, double a, double share, double p, double *out) {
    double G = (double)grid, position = p * G;
    for (int j = 0; j < (int)grid - 1; j++) { /* AVX2 converts only integers of 32 bits */
        double b = (double)(j + 1), drifted = b + (a - b) * share; /* G a' */
        double part = position <= drifted ? b : G - b, width = position <= drifted ? drifted : G - drifted;
        out[j] = values[j] * (part / width);
    }
}

/* Let the amounts of one wake-up bet; learn p, if asked to. Returns `total` plus what they become. */
static Amount drifter_bet(int64_t grid, double *values, double share, double p, bool learn, Amount total) {
    double grown[SLEEPER_GRID], *powers = values + sleeper_pairs(grid);
    for (int64_t a = 1; a < grid; a++, values += grid - 1, powers += grid - 1) {
        drifter_row(values, grid, (double)a, share, p, grown);
        for (int64_t j = 0; j < grid - 1; j++) {
            Amount x = amount_of(grown[j], powers[j]);
            total = amount_plus(total, x);
            if (learn) values[j] = x.value, powers[j] = x.power;
        }
    }
    return total;
}

/* Wake up a part of the sleeping capital, in the block of this number. */
static void drifter_wake(const Drifter *bet, int64_t number) {
    int64_t pairs = sleeper_pairs(bet->grid);
    double *values = bet->blocks + 2 * pairs * number, *asleep = bet->head + 1;
    Amount woken = amount_of(bet->waking * asleep[0] / (double)pairs, asleep[1]);
    Amount rest = amount_of((1.0 - bet->waking) * asleep[0], asleep[1]);
    for (int64_t j = 0; j < pairs; j++) values[j] = woken.value, values[pairs + j] = woken.power;
    asleep[0] = rest.value, asleep[1] = rest.power;
}

/* The log density at p; then learn p, if asked to. */
static double drifter_step(const Drifter *bet, double p, bool learn) {
    double *head = bet->head;
    int64_t step = (int64_t)head[0] + 1, awake = (step - 1) / bet->every, block = 2 * sleeper_pairs(bet->grid);
    Amount before = {head[3], head[4]}, after = {head[1], head[2]};
    for (int64_t k = 0; k < awake; k++) {
        double share = (double)((k + 1) * bet->every) / (double)step; /* s/i */
        after = drifter_bet(bet->grid, bet->blocks + block * k, share, p, learn, after);
    }
    if (learn) head[0] = (double)step, head[3] = after.value, head[4] = after.power;
    if (learn && step % bet->every == 0) drifter_wake(bet, step / bet->every - 1);
    return amount_log_ratio(after, before);
}

/* Read the arguments (head, blocks, waking, every, grid), for this many further steps. */
static const char *drifter_arguments(const Arg *in, int64_t steps, Drifter *bet) {
    *bet = (Drifter){float64s(&in[0]), float64s(&in[1]), in[4].integer, in[3].integer, in[2].real};
    REQUIRE(sleeper_grid(bet->grid), SLEEPER_GRID_RULE);
    REQUIRE(bet->every >= 1 && bet->every <= (int64_t)1 << 53, "every must be from 1 to 2^53");
    REQUIRE(in[0].size == 5, "head must hold 5 numbers");
    REQUIRE(bet->head[0] >= 0.0 && bet->head[0] <= 0x1p53, "the number of steps must be from 0 to 2^53");
    int64_t wake_ups = ((int64_t)bet->head[0] + steps) / bet->every, block = 2 * sleeper_pairs(bet->grid);
    REQUIRE(in[1].size % block == 0 && in[1].size / block == wake_ups,
            "blocks must have 2 rows of (grid - 1)^2 numbers for each wake-up");
    return NULL;
}

/* sleeper_drifter(head, blocks, waking, every, grid, p, out): with blocks for the wake-ups of these steps, too */
static const char *sleeper_drifter(const Arg *in, Arg *out) {
    (void)out;
    Drifter bet;
    const char *wrong = drifter_arguments(in, in[5].size, &bet);
    if (wrong) return wrong;
    REQUIRE(in[5].size == in[6].size, "out must be as long as p");
    for (int64_t i = 0; i < in[5].size; i++) float64s(&in[6])[i] = drifter_step(&bet, float64s(&in[5])[i], true);
    return NULL;
}

/* sleeper_drifter_at(head, blocks, waking, every, grid, p): the log density at p, learning nothing */
static const char *sleeper_drifter_at(const Arg *in, Arg *out) {
    Drifter bet;
    const char *wrong = drifter_arguments(in, 0, &bet);
    if (wrong) return wrong;
    out[0].real = drifter_step(&bet, in[5].real, false);
    return NULL;
}

#define SLEEPER_KERNELS \
    ENTRY(sleeper_stayer, "Dfnpo"), \
    ENTRY(sleeper_drifter, "DDfnnpo"), \
    ENTRY(sleeper_drifter_at, "ddfnnf>f"),
#define SLEEPER_CONSTANTS CONSTANT(SLEEPER_GRID),
