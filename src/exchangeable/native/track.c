/* The bookkeeping of a test: the lowest and highest capital, the alarm, its change point, and restarts.
 *
 * The record of a stream is a row of integers and a row of reals. A Monitor has one; in the tables of the keyed engine
 * it is the first part of each row (see keyed.c).
 */
enum {
    TRACK_N,      /* examples so far, those of earlier tests included */
    TRACK_START,  /* examples before the current test */
    TRACK_LOWEST, /* examples after which the capital of the current test was lowest; the last if there are several */
    TRACK_ALARM,  /* the example that raised the alarm, with restarts the latest one; -1 without an alarm */
    TRACK_CHANGE, /* the change point of that alarm; -1 without an alarm */
    TRACK_TEST,   /* the number of the current test, from 1 */
    TRACK_INTEGERS
};

enum {
    TRACK_LOW,  /* the lowest log capital of the current test */
    TRACK_HIGH, /* the highest log capital of the test that the latest example belongs to */
    TRACK_REALS
};

/* Record one example: the log capital after it, and whether the alarm was raised. Return whether the alarm is on.
 *
 * Without restarts an alarm stays on. With restarts the next example starts a new test. `lowest` is set to the change
 * point as judged at this example: argmin_{i<n} S_i, or that of the alarm once it is on.
 */
static bool track_example(int64_t *integers, double *reals, bool restart, double log_value, bool raised,
                          int64_t *lowest) {
    if (integers[TRACK_N] == integers[TRACK_START]) reals[TRACK_HIGH] = 0.0;
    integers[TRACK_N]++;
    if (log_value > reals[TRACK_HIGH]) reals[TRACK_HIGH] = log_value;
    if (raised && (restart || integers[TRACK_ALARM] < 0))
        integers[TRACK_ALARM] = integers[TRACK_N], integers[TRACK_CHANGE] = integers[TRACK_LOWEST];
    bool on = restart ? raised : integers[TRACK_ALARM] >= 0;
    *lowest = integers[on ? TRACK_CHANGE : TRACK_LOWEST];
    if (log_value <= reals[TRACK_LOW]) reals[TRACK_LOW] = log_value, integers[TRACK_LOWEST] = integers[TRACK_N];
    if (on && restart) {
        reals[TRACK_LOW] = 0.0;
        integers[TRACK_LOWEST] = integers[TRACK_START] = integers[TRACK_N];
        integers[TRACK_TEST]++;
    }
    return on;
}

/* track_step(integers, reals, restart, log_value, raised) -> whether the alarm is on */
static const char *track_step(const Arg *in, Arg *out) {
    int64_t lowest;
    REQUIRE(in[0].size == TRACK_INTEGERS && in[1].size == TRACK_REALS, "the record has the wrong size");
    out[0].integer = track_example(int64s(&in[0]), float64s(&in[1]), in[2].integer, in[3].real, in[4].integer, &lowest);
    return NULL;
}

/* Whether there is a range lo[t] .. hi[t] - 1 of `items` for each stream. */
static bool stream_ranges(const Arg *lo, const Arg *hi, int64_t streams, int64_t items) {
    if (lo->size != streams || hi->size != streams) return false;
    for (int64_t t = 0; t < streams; t++)
        if (int64s(lo)[t] < 0 || int64s(lo)[t] > int64s(hi)[t] || int64s(hi)[t] > items) return false;
    return true;
}

#define STREAM_RANGES "lo and hi must be ranges of the items, one for each stream"

/* track(integers, reals, restart, lo, hi, log_values, raised, restarted, n, alarm, lowest, test)
 *
 * Record the steps lo[t] .. hi[t] - 1 of the columns in row t of the tables. With restarts only those up to the first
 * alarm are recorded: hi[t] becomes their end, and restarted[t] is set.
 */
static const char *track(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[3].size, steps = in[5].size, *hi = int64s(&in[4]), *integers = int64s(&in[0]);
    double *reals = float64s(&in[1]);
    uint8_t *restarted = bools(&in[7]);
    bool restart = in[2].integer;
    REQUIRE(in[0].ndim == 2 && in[0].shape[0] == streams && in[0].shape[1] >= TRACK_INTEGERS && in[1].ndim == 2 &&
                in[1].shape[0] == streams && in[1].shape[1] >= TRACK_REALS && in[7].size == streams,
            "tables must have a row for each stream");
    REQUIRE(stream_ranges(&in[3], &in[4], streams, steps), STREAM_RANGES);
    for (int k = 6; k < 12; k++) REQUIRE(k == 7 || in[k].size == steps, "columns must be as long as there are steps");
    for (int64_t t = 0; t < streams; t++, integers += in[0].shape[1], reals += in[1].shape[1])
        for (int64_t i = int64s(&in[3])[t]; i < hi[t]; i++) {
            bool raised = bools(&in[6])[i];
            double log_value = float64s(&in[5])[i];
            int64s(&in[11])[i] = integers[TRACK_TEST];
            bools(&in[9])[i] = track_example(integers, reals, restart, log_value, raised, int64s(&in[10]) + i);
            int64s(&in[8])[i] = integers[TRACK_N];
            if (restart && raised) hi[t] = i + 1, restarted[t] = true;
        }
    return NULL;
}

#define TRACK_KERNELS ENTRY(track, "QDnqQdbBQBQQ"), ENTRY(track_step, "!QDnfn>n"),
#define TRACK_CONSTANTS \
    CONSTANT(TRACK_N), \
    CONSTANT(TRACK_START), \
    CONSTANT(TRACK_LOWEST), \
    CONSTANT(TRACK_ALARM), \
    CONSTANT(TRACK_CHANGE), \
    CONSTANT(TRACK_TEST), \
    CONSTANT(TRACK_INTEGERS), \
    CONSTANT(TRACK_LOW), \
    CONSTANT(TRACK_HIGH), \
    CONSTANT(TRACK_REALS),
