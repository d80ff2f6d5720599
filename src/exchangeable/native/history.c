/* The log capital of a Monitor over time, thinned to a fixed number of buckets of equal length, for plots.
 *
 * A bucket is a row of three points: its lowest and its highest log capital, in the order in which they first occurred,
 * and the log capital at its latest alarm, if it is marked. When all buckets are full, neighbours are joined in pairs,
 * and a bucket has twice as many examples from there on. So the length of a bucket depends on the number of examples
 * alone, and no extreme value is ever lost. Points are rounded to float32, which is precise enough for a plot.
 */
enum { HISTORY_BUCKETS = 256, HISTORY_POINTS = 3 };

static void history_add(float *bucket, float log_value) {
    float low = bucket[0] < bucket[1] ? bucket[0] : bucket[1], high = bucket[0] < bucket[1] ? bucket[1] : bucket[0];
    if (log_value < low)
        bucket[0] = high, bucket[1] = log_value;
    else if (log_value > high)
        bucket[0] = low, bucket[1] = log_value;
}

/* Join neighbours: adding the points of the second one to the first gives the same as adding all its values. */
static void history_halve(float *points, uint8_t *marks) {
    int64_t half = HISTORY_BUCKETS / 2;
    for (int64_t b = 0; b < half; b++) {
        float *first = points + 2 * b * HISTORY_POINTS, *second = first + HISTORY_POINTS;
        history_add(first, second[0]);
        history_add(first, second[1]);
        if (marks[2 * b + 1]) first[2] = second[2];
        memmove(points + b * HISTORY_POINTS, first, HISTORY_POINTS * sizeof(float));
        marks[b] = marks[2 * b] || marks[2 * b + 1];
    }
    memset(points + half * HISTORY_POINTS, 0, (size_t)half * HISTORY_POINTS * sizeof(float));
    memset(marks + half, 0, (size_t)half);
}

/* Add the log capital after each of the latest examples. `integers` is the record of the test (see track.c) after them,
 * `start` the number of examples before the history. The bucket of an alarm is marked; with restarts the capital is 1
 * after an alarm, which is a value of its bucket too.
 */
static void history_path(const int64_t *integers, float *points, uint8_t *marks, int64_t start, bool restart,
                         const double *log_values, int64_t steps) {
    int64_t count = integers[TRACK_N] - start - steps, alarm = integers[TRACK_ALARM];
    int shift = 0; /* a bucket has 2^shift examples */
    while (INT64_C(1) * HISTORY_BUCKETS << shift < count) shift++;
    for (int64_t i = 0; i < steps; i++, count++) {
        if (count == INT64_C(1) * HISTORY_BUCKETS << shift) history_halve(points, marks), shift++;
        float log_value = (float)log_values[i], *bucket = points + (count >> shift) * HISTORY_POINTS;
        if (count & ((INT64_C(1) << shift) - 1))
            history_add(bucket, log_value);
        else
            bucket[0] = bucket[1] = log_value;
        if (start + count + 1 == alarm) {
            marks[count >> shift] = true;
            bucket[2] = log_value;
            if (restart) history_add(bucket, 0.0f);
        }
    }
}

/* history(integers, points, marks, start, restart, log_values) */
static const char *history(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size == TRACK_INTEGERS, "the record has the wrong size");
    REQUIRE(in[1].size == HISTORY_BUCKETS * HISTORY_POINTS && in[2].size == HISTORY_BUCKETS, "the history has the wrong size");
    int64_t n = int64s(&in[0])[TRACK_N], start = in[3].integer, steps = in[5].size;
    REQUIRE(0 <= start && start <= n && n <= INT64_C(1) << 62 && steps <= n - start, "start must be before the examples");
    history_path(int64s(&in[0]), float32s(&in[1]), bools(&in[2]), start, in[4].integer, float64s(&in[5]), steps);
    return NULL;
}

/* The same for one example, which is a number or an array. */
static const char *history_step(const Arg *in, Arg *out) { return history(in, out); }

#define HISTORY_KERNELS ENTRY(history, "qSBnnd"), ENTRY(history_step, "!qSBnnp"),
#define HISTORY_CONSTANTS CONSTANT(HISTORY_BUCKETS), CONSTANT(HISTORY_POINTS),
