/* Many streams with the same recipe, one for each key: row t of every table belongs to stream t.
 *
 * The events of stream t are items lo[t] .. hi[t] - 1 of the columns. The recursions are those of the other files.
 */

/* The integers of a stream: the record of its test (track.c); its seed (the bits); its first and its last sequence
 * number, and the number up to which missing ones are forgotten; flags; its position in the order of joining, from 1.
 */
enum {
    KEYED_SEED = TRACK_INTEGERS,
    KEYED_FIRST,
    KEYED_LAST,
    KEYED_HORIZON,
    KEYED_FLAGS,
    KEYED_JOINED,
    KEYED_INTEGERS /* how many there are */
};

/* And the reals: the record of its test; the log capital, as a compensated sum. */
enum { KEYED_SUM = TRACK_REALS, KEYED_CARRY, KEYED_REALS };

/* Flags: the last number was passed over; numbers have been forgotten; the test has ended because the pool is full. */
enum { KEYED_FLAG_PASSED = 1, KEYED_FLAG_FORGOT = 2, KEYED_FLAG_FULL = 4 };

enum { KEYED_SPANS = 16 }; /* ranges of missing numbers that a stream remembers */

/* Whether the `count` items from `start` on lie within `size` items. */
static inline bool keyed_within(int64_t start, int64_t count, int64_t size) {
    return start >= 0 && count >= 0 && start <= size && count <= size - start;
}

#define KEYED_COLUMNS "columns must be as long as there are events"

/* ------------------------------------------------------------------ pools */

typedef struct {
    int64_t greater, equal; /* scores greater than the new one, and equal to it, itself included */
} Keyed_rank;

/* keyed_rank_bins(counts, before, lo, hi, x, greater, equal, n)
 *
 * Add the bin numbers x to the pools and rank each: how many are greater, how many equal (itself included), and how
 * many there are in all.
 */
static const char *keyed_rank_bins(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[1].size, bins = in[0].shape[1], events = in[4].size;
    const int64_t *before = int64s(&in[1]), *lo = int64s(&in[2]), *hi = int64s(&in[3]);
    const double *x = float64s(&in[4]);
    REQUIRE(in[0].ndim == 2 && in[0].shape[0] == streams, "counts must have a row for each stream");
    REQUIRE(stream_ranges(&in[2], &in[3], streams, events), STREAM_RANGES);
    for (int k = 5; k < 8; k++) REQUIRE(in[k].size == events, KEYED_COLUMNS);
    for (int64_t t = 0; t < streams; t++)
        for (int64_t i = lo[t]; i < hi[t]; i++)
            REQUIRE(x[i] >= 0.0 && x[i] < (double)bins, "x must be numbers of bins");
    for (int64_t t = 0; t < streams; t++) {
        int64_t *counts = int64s(&in[0]) + t * bins;
        for (int64_t i = lo[t]; i < hi[t]; i++) {
            int64_t b = (int64_t)x[i], above = 0;
            counts[b]++;
            for (int64_t c = b + 1; c < bins; c++) above += counts[c];
            int64s(&in[5])[i] = above, int64s(&in[6])[i] = counts[b];
            int64s(&in[7])[i] = before[t] + i - lo[t] + 1;
        }
    }
    return NULL;
}

/* Add x to a pool of `total` scores, with `*used` distinct ones in increasing order. */
static Keyed_rank keyed_add(double *score, int64_t *count, int64_t *used, int64_t total, double x) {
    int64_t left = 0, right = *used, above;
    bool ties = *used < total;
    while (left < right) {
        int64_t middle = (left + right) / 2;
        if (score[middle] < x)
            left = middle + 1;
        else
            right = middle;
    }
    if (left == *used || score[left] != x) {
        memmove(score + left + 1, score + left, sizeof *score * (size_t)(*used - left));
        memmove(count + left + 1, count + left, sizeof *count * (size_t)(*used - left));
        score[left] = x, count[left] = 0;
        ++*used;
    }
    count[left]++;
    above = *used - left - 1;
    if (ties) {
        above = 0;
        for (int64_t j = left + 1; j < *used; j++) above += count[j];
    }
    return (Keyed_rank){above, count[left]};
}

/* keyed_rank_scores(score, count, start, used, most, before, lo, hi, x, greater, equal, n)
 *
 * The same for scores, until a pool holds `most` distinct ones: hi[t] becomes the end of those added. The pool of
 * stream t starts at start[t] of the columns `score` and `count`, where it has room to grow.
 */
static const char *keyed_rank_scores(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[2].size, events = in[8].size, *used = int64s(&in[3]), *hi = int64s(&in[7]);
    const int64_t *start = int64s(&in[2]), *before = int64s(&in[5]), *lo = int64s(&in[6]);
    REQUIRE(in[0].size == in[1].size, "score and count must be equally long");
    REQUIRE(in[3].size == streams && in[5].size == streams, "tables must have a row for each stream");
    REQUIRE(stream_ranges(&in[6], &in[7], streams, events), STREAM_RANGES);
    for (int k = 9; k < 12; k++) REQUIRE(in[k].size == events, KEYED_COLUMNS);
    for (int64_t t = 0; t < streams; t++)
        REQUIRE(used[t] >= 0 && used[t] <= in[0].size && keyed_within(start[t], used[t] + hi[t] - lo[t], in[0].size),
                "a pool must have room for its events");
    for (int64_t t = 0; t < streams; t++)
        for (int64_t i = lo[t]; i < hi[t]; i++) {
            if (used[t] >= in[4].integer) {
                hi[t] = i;
                break;
            }
            int64_t total = before[t] + i - lo[t];
            Keyed_rank rank = keyed_add(float64s(&in[0]) + start[t], int64s(&in[1]) + start[t], used + t, total,
                                        float64s(&in[8])[i]);
            int64s(&in[9])[i] = rank.greater, int64s(&in[10])[i] = rank.equal, int64s(&in[11])[i] = total + 1;
        }
    return NULL;
}

/* keyed_thetas(integers, lo, hi, out): the tie-breaking numbers of each stream, by its seed, from position n on */
static const char *keyed_thetas(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[1].size;
    const int64_t *integers = int64s(&in[0]), *lo = int64s(&in[1]), *hi = int64s(&in[2]);
    REQUIRE(in[0].size == streams * KEYED_INTEGERS, "integers must have a row for each stream");
    REQUIRE(stream_ranges(&in[1], &in[2], streams, in[3].size), STREAM_RANGES);
    for (int64_t t = 0; t < streams; t++, integers += KEYED_INTEGERS)
        philox_thetas((uint64_t)integers[KEYED_SEED], 0, (uint64_t)integers[TRACK_N], hi[t] - lo[t],
                      float64s(&in[3]) + lo[t]);
    return NULL;
}

/* ------------------------------------------------------------------ bets, capital and alarms: one recursion per row */

typedef struct {
    double *states;
    int64_t streams, width;
    const int64_t *lo, *hi;
    const double *values;
    double *out;
} Keyed;

/* Read the arguments (states, lo, hi, values, out). */
static const char *keyed_arguments(const Arg *in, Keyed *keyed) {
    REQUIRE(in[0].ndim == 2, "states must have a row for each stream");
    REQUIRE(stream_ranges(&in[1], &in[2], in[0].shape[0], in[3].size), STREAM_RANGES);
    REQUIRE(in[3].size == in[4].size, "out must be as long as the values");
    *keyed = (Keyed){float64s(&in[0]), in[0].shape[0],   in[0].shape[1],   int64s(&in[1]),
                     int64s(&in[2]),   float64s(&in[3]), float64s(&in[4])};
    return NULL;
}

typedef struct {
    double *state;
    const double *values;
    int64_t n;
    double *out;
} Keyed_row;

static inline Keyed_row keyed_row(const Keyed *all, int64_t t) {
    int64_t lo = all->lo[t];
    return (Keyed_row){all->states + t * all->width, all->values + lo, all->hi[t] - lo, all->out + lo};
}

/* Define keyed_NAME(parameters .., states, lo, hi, values, out), which runs the recursion of one stream in each row.
 *
 * `count` is the number of parameters, and `fits` says whether the width of a state is right.
 */
#define KEYED_LOOP(name, count, fits, recursion) \
    static const char *keyed_##name(const Arg *in, Arg *out) { \
        (void)out; \
        Keyed all = {0}; \
        const char *wrong = keyed_arguments(in + (count), &all); \
        if (wrong) return wrong; \
        REQUIRE(fits, "a state has the wrong size"); \
        for (int64_t t = 0; t < all.streams; t++) { \
            Keyed_row row = keyed_row(&all, t); \
            recursion; \
        } \
        return NULL; \
    }

KEYED_LOOP(simple_jumper, 1, all.width == SIMPLE_JUMPER, /* rate */
           simple_jumper_path(row.state, in[0].real, row.values, row.n, row.out))
KEYED_LOOP(sleepy_jumper, 2, all.width >= 2 && all.width % 2 == 0, /* waking, jumping */
           sleepy_jumper_path(row.state, all.width / 2, in[0].real, in[1].real, row.values, row.n, row.out))
KEYED_LOOP(sleeper_stayer, 2, /* waking, grid */
           sleeper_grid(in[1].integer) && all.width == 2 * sleeper_pairs(in[1].integer),
           sleeper_stayer_path(row.state, in[1].integer, in[0].real, row.values, row.n, row.out))
KEYED_LOOP(simple_mixture, 0, all.width == 4, mixture_extend(row.state, row.values, row.n, row.out))
KEYED_LOOP(gamma_mixture, 2, all.width == 3, /* shape, rate */
           gamma_mixture_extend(row.state, in[0].real, in[1].real, row.values, row.n, row.out))
KEYED_LOOP(histogram, 0, all.width >= 1, histogram_path(row.state, all.width, row.values, row.n, row.out))
KEYED_LOOP(sentinel, 1, all.width == SENTINEL_STATE && in[0].size == SENTINEL_TABLES, /* tables */
           sentinel_path(row.state, in[0].data, row.values, row.n, row.out))
KEYED_LOOP(accumulate, 0, all.width == KEYED_REALS, sum_path(row.state + KEYED_SUM, row.values, row.n, row.out))
KEYED_LOOP(cusum, 0, all.width == 2, cusum_path(row.state, row.values, row.n, row.out))
KEYED_LOOP(shiryaev_roberts, 0, all.width == 2, shiryaev_roberts_path(row.state, row.values, row.n, row.out))

/* Streams that are tested side by side, and where each of them stands. */
typedef struct {
    CompositeSide side;
    int64_t stream[SIDE], at[SIDE], stop[SIDE];
} Together;

/* Put the next stream that has values into place i; false if there is none. */
static bool keyed_next(const Keyed *all, Together *now, int i, int64_t *next) {
    while (*next < all->streams && all->lo[*next] >= all->hi[*next]) ++*next;
    if (*next >= all->streams) return false;
    now->stream[i] = *next, now->at[i] = all->lo[*next], now->stop[i] = all->hi[*next];
    composite_side_load(&now->side, i, all->states + *next * all->width);
    ++*next;
    return true;
}

/* Consume values of all places until one of them has reached its end. */
static void keyed_together(const Keyed *all, Together *now) {
    double p[SIDE], gain[SIDE];
    int64_t steps = INT64_MAX;
    for (int i = 0; i < SIDE; i++) steps = smaller(steps, now->stop[i] - now->at[i]);
    for (int64_t k = 0; k < steps; k++) {
        for (int i = 0; i < SIDE; i++) p[i] = all->values[now->at[i] + k];
        composite_side_step(&now->side, p, gain);
        for (int i = 0; i < SIDE; i++) all->out[now->at[i] + k] = gain[i];
    }
    for (int i = 0; i < SIDE; i++) now->at[i] += steps;
}

/* keyed_composite_jumper(states, lo, hi, values, out): eight streams at a time */
static const char *keyed_composite_jumper(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    Together now = {0};
    const char *wrong = keyed_arguments(in, &all);
    if (wrong) return wrong;
    REQUIRE(all.width == COMPOSITE_STATE, "a state has the wrong size");
    int64_t next = 0;
    int places = 0;
    while (places < SIDE && keyed_next(&all, &now, places, &next)) places++;
    bool full = places == SIDE;
    while (full) {
        keyed_together(&all, &now);
        for (int i = 0; i < SIDE; i++) {
            if (now.at[i] < now.stop[i]) continue;
            composite_side_store(&now.side, i, all.states + now.stream[i] * all.width);
            full &= keyed_next(&all, &now, i, &next);
        }
    }
    for (int i = 0; i < places; i++) { /* those that are left: one after the other */
        double *state = all.states + now.stream[i] * all.width;
        if (now.at[i] < now.stop[i]) composite_side_store(&now.side, i, state);
        composite_jumper_path(state, all.values + now.at[i], now.stop[i] - now.at[i], all.out + now.at[i]);
    }
    return NULL;
}

/* whole_ranks(lo, hi, x, greater, equal): the ranks of the scores of each stream, from its first one on
 *
 * Each score is compared with all before it, four scores at a time. That is O(n^2) without branches, and for up to two
 * thousand scores faster than a pool that is kept in order.
 */
enum { RANKED = 4 };

static void whole_ranks_path(const double *x, int64_t n, int64_t *greater, int64_t *equal) {
    for (int64_t i = 0; i < n; i += RANKED) {
        int64_t many = smaller(RANKED, n - i), above[RANKED] = {0}, same[RANKED] = {0};
        double now[RANKED] = {0};
        for (int64_t k = 0; k < many; k++) now[k] = x[i + k];
        for (int64_t j = 0; j < i; j++)
            for (int k = 0; k < RANKED; k++) above[k] += x[j] > now[k], same[k] += x[j] == now[k];
        for (int64_t k = 0; k < many; k++) {
            for (int64_t j = 0; j < k; j++) above[k] += now[j] > now[k], same[k] += now[j] == now[k];
            greater[i + k] = above[k], equal[i + k] = same[k] + 1;
        }
    }
}

static const char *whole_ranks(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[0].size, events = in[2].size;
    const int64_t *lo = int64s(&in[0]), *hi = int64s(&in[1]);
    REQUIRE(stream_ranges(&in[0], &in[1], streams, events), STREAM_RANGES);
    REQUIRE(in[3].size == events && in[4].size == events, KEYED_COLUMNS);
    for (int64_t t = 0; t < streams; t++)
        whole_ranks_path(float64s(&in[2]) + lo[t], hi[t] - lo[t], int64s(&in[3]) + lo[t], int64s(&in[4]) + lo[t]);
    return NULL;
}

#define KEYED_KERNELS \
    ENTRY(keyed_rank_bins, "QqqqdQQQ"), \
    ENTRY(keyed_rank_scores, "DQqQnqqQdQQQ"), \
    ENTRY(keyed_thetas, "qqqD"), \
    ENTRY(whole_ranks, "qqdQQ"), \
    ENTRY(keyed_simple_jumper, "fDqqdD"), \
    ENTRY(keyed_composite_jumper, "DqqdD"), \
    ENTRY(keyed_sleepy_jumper, "ffDqqdD"), \
    ENTRY(keyed_sleeper_stayer, "fnDqqdD"), \
    ENTRY(keyed_simple_mixture, "DqqdD"), \
    ENTRY(keyed_gamma_mixture, "ffDqqdD"), \
    ENTRY(keyed_histogram, "DqqdD"), \
    ENTRY(keyed_sentinel, "dDqqdD"), \
    ENTRY(keyed_accumulate, "DqqdD"), \
    ENTRY(keyed_cusum, "DqqdD"), \
    ENTRY(keyed_shiryaev_roberts, "DqqdD"),
#define KEYED_CONSTANTS \
    CONSTANT(KEYED_SEED), \
    CONSTANT(KEYED_FIRST), \
    CONSTANT(KEYED_LAST), \
    CONSTANT(KEYED_HORIZON), \
    CONSTANT(KEYED_FLAGS), \
    CONSTANT(KEYED_JOINED), \
    CONSTANT(KEYED_INTEGERS), \
    CONSTANT(KEYED_SUM), \
    CONSTANT(KEYED_CARRY), \
    CONSTANT(KEYED_REALS), \
    CONSTANT(KEYED_FLAG_PASSED), \
    CONSTANT(KEYED_FLAG_FORGOT), \
    CONSTANT(KEYED_FLAG_FULL), \
    CONSTANT(KEYED_SPANS),
