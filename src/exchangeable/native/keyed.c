/* Many streams with the same recipe, one for each key: row t of every table belongs to stream t.
 *
 * The events of stream t are items lo[t] .. hi[t] - 1 of the columns. The recursions are those of the other files.
 */

/* The integers that describe a stream: the seed (its bits); how many events were bet on, and how many of them before
 * the latest restart; the first and the last sequence number, and the one up to which missing ones are no longer
 * remembered; after how many events the capital was lowest; the alarm (-1: none) and its change point; the number of
 * the test; flags.
 */
enum {
    KEYED_SEED,
    KEYED_N,
    KEYED_SINCE,
    KEYED_FIRST,
    KEYED_LAST,
    KEYED_HORIZON,
    KEYED_LOWEST,
    KEYED_ALARM,
    KEYED_CHANGE,
    KEYED_TEST,
    KEYED_FLAGS,
    KEYED_INTEGERS /* how many there are */
};

/* And the real numbers: the lowest and the highest log capital; the log capital itself, as a compensated sum. */
enum { KEYED_LOW, KEYED_HIGH, KEYED_SUM, KEYED_CARRY, KEYED_REALS };

/* Flags: the last number was passed over; the horizon is set; the test has ended because the pool is full. */
enum { KEYED_FLAG_PASSED = 1, KEYED_FLAG_FORGOT = 2, KEYED_FLAG_FULL = 4 };

/* Kinds of rows. KEYED_NONE is an event without a row of its own. */
enum {
    KEYED_STEP,
    KEYED_DUPLICATE,
    KEYED_LATE,
    KEYED_GAP,
    KEYED_CONFLICT,
    KEYED_BAD,
    KEYED_FULL,
    KEYED_NONE
};

enum { KEYED_SPANS = 16 }; /* ranges of missing numbers that a stream remembers */

/* ------------------------------------------------------------------ shapes */

/* Whether the `count` items from `start` on lie within `size` items. */
static inline bool keyed_within(int64_t start, int64_t count, int64_t size) {
    return start >= 0 && count >= 0 && start <= size && count <= size - start;
}

/* Whether there is a range lo[t] .. hi[t] - 1 of `events` for each stream. */
static bool keyed_ranges(const Arg *lo, const Arg *hi, int64_t streams, int64_t events) {
    if (lo->size != streams || hi->size != streams) return false;
    for (int64_t t = 0; t < streams; t++)
        if (int64s(lo)[t] < 0 || int64s(lo)[t] > int64s(hi)[t] || int64s(hi)[t] > events) return false;
    return true;
}

#define KEYED_RANGES "lo and hi must be ranges of the events, one for each stream"
#define KEYED_COLUMNS "columns must be as long as there are events"

/* ------------------------------------------------------------------ sequence numbers */

typedef struct {
    int64_t *numbers;   /* those of the stream, KEYED_INTEGERS of them */
    int64_t (*spans)[2]; /* the first and the last of each range of missing numbers, increasing */
    int64_t *used;      /* how many ranges there are */
    bool contiguous;    /* whether a number that is left out is missing */
} Keyed_stream;

/* Remember that the numbers from start to stop, all above those noted before, are missing. */
static void keyed_note(const Keyed_stream *stream, int64_t start, int64_t stop) {
    int64_t(*spans)[2] = stream->spans, used = *stream->used;
    if (used && (uint64_t)spans[used - 1][1] + 1 == (uint64_t)start) {
        spans[used - 1][1] = stop;
        return;
    }
    if (used == KEYED_SPANS) {
        stream->numbers[KEYED_HORIZON] = spans[0][1];
        stream->numbers[KEYED_FLAGS] |= KEYED_FLAG_FORGOT;
        memmove(spans, spans + 1, sizeof *spans * (KEYED_SPANS - 1));
        used--;
    }
    spans[used][0] = start, spans[used][1] = stop;
    *stream->used = used + 1;
}

/* What a number not above the last one is: KEYED_DUPLICATE or KEYED_LATE; KEYED_NONE if that is no longer known. */
static int keyed_seen(const Keyed_stream *stream, int64_t number) {
    const int64_t *numbers = stream->numbers;
    if (!stream->contiguous) {
        bool passed = numbers[KEYED_FLAGS] & KEYED_FLAG_PASSED;
        return number == numbers[KEYED_LAST] && !passed ? KEYED_DUPLICATE : KEYED_LATE;
    }
    if (number < numbers[KEYED_FIRST]) return KEYED_LATE;
    for (int64_t j = 0; j < *stream->used; j++)
        if (stream->spans[j][0] <= number && number <= stream->spans[j][1]) return KEYED_LATE;
    bool forgot = numbers[KEYED_FLAGS] & KEYED_FLAG_FORGOT;
    return forgot && number <= numbers[KEYED_HORIZON] ? KEYED_NONE : KEYED_DUPLICATE;
}

/* Go on to a number above the last one: how many are missing between the two (this may exceed int64). */
static uint64_t keyed_pass(const Keyed_stream *stream, int64_t number, bool new) {
    int64_t *numbers = stream->numbers;
    uint64_t missing = 0;
    if (new) {
        numbers[KEYED_FIRST] = number;
    } else if (stream->contiguous && number - 1 > numbers[KEYED_LAST]) {
        missing = (uint64_t)number - (uint64_t)numbers[KEYED_LAST] - 1;
        keyed_note(stream, numbers[KEYED_LAST] + 1, number - 1);
    }
    numbers[KEYED_LAST] = number;
    numbers[KEYED_FLAGS] &= ~(int64_t)KEYED_FLAG_PASSED;
    return missing;
}

/* What the events with a number are: step, conflict, duplicate, late or none; and how many numbers are missing. */
static int keyed_arrive(const Keyed_stream *stream, int64_t number, bool alike, bool new, uint64_t *missing) {
    *missing = 0;
    if (!new && number <= stream->numbers[KEYED_LAST]) return keyed_seen(stream, number);
    *missing = keyed_pass(stream, number, new);
    if (alike) return KEYED_STEP;
    stream->numbers[KEYED_FLAGS] |= KEYED_FLAG_PASSED;
    if (stream->contiguous) keyed_note(stream, number, number);
    return KEYED_CONFLICT;
}

typedef struct {
    const int64_t *order;
    const double *x;
    const int64_t *content;
    const uint8_t *bad;
    int8_t *kind;
    int64_t *count;
    uint64_t *missing;
    uint8_t *unsure;
} Keyed_events;

typedef struct {
    int64_t first, valid, end; /* the valid ones end where the bad ones begin */
    bool alike;                /* whether all are valid and equal */
} Keyed_group;

/* The events with the same number as the first. */
static Keyed_group keyed_group(const Keyed_events *events, int64_t first, int64_t stop) {
    Keyed_group group = {first, first, first, true};
    for (; group.end < stop && events->order[group.end] == events->order[first]; group.end++) {
        int64_t i = group.end;
        bool same = events->x[i] == events->x[first] && events->content[i] == events->content[first];
        group.alike = group.alike && !events->bad[i] && same;
        group.valid += !events->bad[i];
    }
    return group;
}

/* Set the kind of each event of a group; duplicates of one stream are counted at the first of them. */
static void keyed_classify(const Keyed_events *events, Keyed_group group, int what, int64_t *duplicate) {
    int64_t first = group.first;
    for (int64_t i = first; i < group.end; i++) {
        bool late = what == KEYED_LATE || what == KEYED_NONE;
        events->kind[i] = i >= group.valid ? KEYED_BAD : late ? KEYED_LATE : KEYED_NONE;
        events->unsure[i] = what == KEYED_NONE && i < group.valid;
    }
    if (what == KEYED_CONFLICT && first < group.valid)
        events->kind[first] = KEYED_CONFLICT, events->count[first] = group.valid - first;
    if (what == KEYED_STEP) events->kind[first++] = KEYED_STEP;
    if ((what == KEYED_STEP || what == KEYED_DUPLICATE) && first < group.valid) {
        if (*duplicate < 0) {
            *duplicate = first;
            events->kind[first] = KEYED_DUPLICATE, events->count[first] = 0;
        }
        events->count[*duplicate] += group.valid - first;
    }
}

/* keyed_sequence(bounds, order, x, content, bad, new, contiguous, numbers, spans, used, kind, count, missing, unsure)
 *
 * Classify each event. The events of stream t are bounds[t] .. bounds[t + 1] - 1, sorted by number, with bad ones last.
 * Of the duplicates of a stream, and of the events of a conflict, only the first has a row, with their `count`.
 * `missing` is how many numbers are missing just before the event.
 */
static const char *keyed_sequence(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[0].size - 1, n = in[1].size;
    const int64_t *bounds = int64s(&in[0]);
    const uint8_t *new = bools(&in[5]);
    for (int k = 2; k < 14; k++)
        if (k < 5 || k > 9) REQUIRE(in[k].size == n, KEYED_COLUMNS);
    REQUIRE(streams >= 0 && in[5].size == streams && in[7].size == streams * KEYED_INTEGERS &&
                in[8].size == streams * KEYED_SPANS * 2 && in[9].size == streams,
            "tables must have a row for each stream");
    REQUIRE(bounds[0] >= 0 && bounds[streams] <= n, "bounds must lie within the events");
    for (int64_t t = 0; t < streams; t++) {
        REQUIRE(bounds[t] <= bounds[t + 1], "bounds must not decrease");
        int64_t used = int64s(&in[9])[t];
        REQUIRE(used >= 0 && used <= KEYED_SPANS, "used must be how many ranges there are");
    }
    Keyed_events events = {int64s(&in[1]), float64s(&in[2]), int64s(&in[3]),  bools(&in[4]),
                           int8s(&in[10]), int64s(&in[11]),  uint64s(&in[12]), bools(&in[13])};
    for (int64_t t = 0; t < streams; t++) {
        int64_t(*spans)[2] = (int64_t(*)[2])int64s(&in[8]) + t * KEYED_SPANS, duplicate = -1;
        Keyed_stream stream = {int64s(&in[7]) + t * KEYED_INTEGERS, spans, int64s(&in[9]) + t, in[6].integer};
        for (int64_t first = bounds[t]; first < bounds[t + 1];) {
            Keyed_group group = keyed_group(&events, first, bounds[t + 1]);
            bool begins = new[t] && first == bounds[t];
            int what = keyed_arrive(&stream, events.order[first], group.alike, begins, events.missing + first);
            keyed_classify(&events, group, what, &duplicate);
            first = group.end;
        }
    }
    return NULL;
}

/* keyed_unfold(bounds, order, kind, count, missing, row, stream, event, kinds, orders, counts) -> how many rows
 *
 * Rows of events and gaps; `row` gets the row of each event, -1 if it has none. A gap of more numbers than int64 can
 * count becomes two rows. As no stream has two such gaps, two rows an event and one a stream are enough.
 */
static const char *keyed_unfold(const Arg *in, Arg *out) {
    int64_t streams = in[0].size - 1, n = in[1].size, room = in[6].size, at = 0;
    const int64_t *bounds = int64s(&in[0]), *order = int64s(&in[1]), *count = int64s(&in[3]);
    const int8_t *kind = int8s(&in[2]);
    const uint64_t *missing = uint64s(&in[4]);
    int64_t *row = int64s(&in[5]), *stream = int64s(&in[6]), *event = int64s(&in[7]);
    int64_t *orders = int64s(&in[9]), *counts = int64s(&in[10]);
    for (int k = 2; k < 6; k++) REQUIRE(in[k].size == n, KEYED_COLUMNS);
    for (int k = 7; k < 11; k++) REQUIRE(in[k].size == room, "the columns of rows must be equally long");
    REQUIRE(streams >= 0 && bounds[0] >= 0 && bounds[streams] <= n, "bounds must lie within the events");
    for (int64_t t = 0; t < streams; t++) REQUIRE(bounds[t] <= bounds[t + 1], "bounds must not decrease");
    for (int64_t t = 0; t < streams; t++)
        for (int64_t i = bounds[t]; i < bounds[t + 1]; i++) {
            for (uint64_t left = missing[i]; left > 0; at++) {
                uint64_t part = left < INT64_MAX ? left : INT64_MAX;
                REQUIRE(at < room, "there must be room for all rows");
                stream[at] = t, event[at] = -1, int8s(&in[8])[at] = KEYED_GAP;
                orders[at] = (int64_t)((uint64_t)order[i] - left), counts[at] = (int64_t)part;
                left -= part;
            }
            row[i] = -1;
            if (kind[i] == KEYED_NONE) continue;
            REQUIRE(at < room, "there must be room for all rows");
            stream[at] = t, event[at] = i, int8s(&in[8])[at] = kind[i], orders[at] = order[i], counts[at] = count[i];
            row[i] = at++;
        }
    out[0].integer = at;
    return NULL;
}

/* ------------------------------------------------------------------ pools */

typedef struct {
    int64_t greater, equal; /* scores above the new one, and equal to it, itself included */
} Keyed_rank;

/* keyed_rank_bins(counts, before, lo, hi, x, greater, equal, n)
 *
 * Let the bin numbers x join: how many are greater, how many equal, itself included, and how many there are in all.
 */
static const char *keyed_rank_bins(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[1].size, bins = in[0].shape[1], events = in[4].size;
    const int64_t *before = int64s(&in[1]), *lo = int64s(&in[2]), *hi = int64s(&in[3]);
    const double *x = float64s(&in[4]);
    REQUIRE(in[0].ndim == 2 && in[0].shape[0] == streams, "counts must have a row for each stream");
    REQUIRE(keyed_ranges(&in[2], &in[3], streams, events), KEYED_RANGES);
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

/* Let x join a pool of `total` scores, with `*used` distinct ones in increasing order. */
static Keyed_rank keyed_join(double *score, int64_t *count, int64_t *used, int64_t total, double x) {
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
 * The same for scores, until a pool holds `most` distinct ones: hi[t] becomes the end of those that joined. The pool of
 * stream t begins at start[t] of the columns `score` and `count`, where it has room to grow.
 */
static const char *keyed_rank_scores(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[2].size, events = in[8].size, *used = int64s(&in[3]), *hi = int64s(&in[7]);
    const int64_t *start = int64s(&in[2]), *before = int64s(&in[5]), *lo = int64s(&in[6]);
    REQUIRE(in[0].size == in[1].size, "score and count must be equally long");
    REQUIRE(in[3].size == streams && in[5].size == streams, "tables must have a row for each stream");
    REQUIRE(keyed_ranges(&in[6], &in[7], streams, events), KEYED_RANGES);
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
            Keyed_rank rank = keyed_join(float64s(&in[0]) + start[t], int64s(&in[1]) + start[t], used + t, total,
                                         float64s(&in[8])[i]);
            int64s(&in[9])[i] = rank.greater, int64s(&in[10])[i] = rank.equal, int64s(&in[11])[i] = total + 1;
        }
    return NULL;
}

/* keyed_thetas(numbers, lo, hi, out): the tie-breaking numbers of each stream, by its seed, from position n on */
static const char *keyed_thetas(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[1].size;
    const int64_t *numbers = int64s(&in[0]), *lo = int64s(&in[1]), *hi = int64s(&in[2]);
    REQUIRE(in[0].size == streams * KEYED_INTEGERS, "numbers must have a row for each stream");
    REQUIRE(keyed_ranges(&in[1], &in[2], streams, in[3].size), KEYED_RANGES);
    for (int64_t t = 0; t < streams; t++, numbers += KEYED_INTEGERS)
        philox_thetas((uint64_t)numbers[KEYED_SEED], 0, (uint64_t)numbers[KEYED_N], hi[t] - lo[t],
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

/* Take (states, lo, hi, values, out), where a state has `width` numbers (0: any number of them). */
static const char *keyed_take(const Arg *in, int64_t width, Keyed *keyed) {
    REQUIRE(in[0].ndim == 2 && in[0].shape[1] > 0 && (!width || in[0].shape[1] == width), "a state has the wrong size");
    REQUIRE(keyed_ranges(&in[1], &in[2], in[0].shape[0], in[3].size), KEYED_RANGES);
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

/* keyed_simple_jumper(rate, states, lo, hi, p, out) */
static const char *keyed_simple_jumper(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    const char *wrong = keyed_take(in + 1, SIMPLE_JUMPER, &all);
    for (int64_t t = 0; !wrong && t < all.streams; t++) {
        Keyed_row row = keyed_row(&all, t);
        simple_jumper_path(row.state, in[0].real, row.values, row.n, row.out);
    }
    return wrong;
}

/* keyed_composite_jumper(states, lo, hi, p, out) */
static const char *keyed_composite_jumper(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    const char *wrong = keyed_take(in, COMPOSITE_STATE, &all);
    for (int64_t t = 0; !wrong && t < all.streams; t++) {
        Keyed_row row = keyed_row(&all, t);
        composite_jumper_path(row.state, row.values, row.n, row.out);
    }
    return wrong;
}

/* keyed_sleepy_jumper(waking, jumping, states, lo, hi, p, out) */
static const char *keyed_sleepy_jumper(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    const char *wrong = keyed_take(in + 2, 0, &all);
    if (!wrong && all.width < 2) wrong = "a state has the wrong size";
    for (int64_t t = 0; !wrong && t < all.streams; t++) {
        Keyed_row row = keyed_row(&all, t);
        sleepy_jumper_path(row.state, all.width - 1, in[0].real, in[1].real, row.values, row.n, row.out);
    }
    return wrong;
}

/* keyed_simple_mixture(states, lo, hi, p, out) */
static const char *keyed_simple_mixture(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    const char *wrong = keyed_take(in, 4, &all);
    for (int64_t t = 0; !wrong && t < all.streams; t++) {
        Keyed_row row = keyed_row(&all, t);
        mixture_extend(row.state, row.values, row.n, row.out);
    }
    return wrong;
}

/* keyed_gamma_mixture(shape, rate, states, lo, hi, p, out) */
static const char *keyed_gamma_mixture(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    const char *wrong = keyed_take(in + 2, 4, &all);
    for (int64_t t = 0; !wrong && t < all.streams; t++) {
        Keyed_row row = keyed_row(&all, t);
        mixture_gamma_extend(row.state, in[0].real, in[1].real, row.values, row.n, row.out);
    }
    return wrong;
}

/* keyed_histogram(states, lo, hi, p, out) */
static const char *keyed_histogram(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    const char *wrong = keyed_take(in, 0, &all);
    for (int64_t t = 0; !wrong && t < all.streams; t++) {
        Keyed_row row = keyed_row(&all, t);
        histogram_path(row.state, all.width, row.values, row.n, row.out);
    }
    return wrong;
}

/* keyed_accumulate(reals, lo, hi, gains, out): the log capital after each gain */
static const char *keyed_accumulate(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    const char *wrong = keyed_take(in, KEYED_REALS, &all);
    for (int64_t t = 0; !wrong && t < all.streams; t++) {
        Keyed_row row = keyed_row(&all, t);
        sum_path(row.state + KEYED_SUM, row.values, row.n, row.out);
    }
    return wrong;
}

/* keyed_cusum(states, lo, hi, log_values, out) */
static const char *keyed_cusum(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    const char *wrong = keyed_take(in, 2, &all);
    for (int64_t t = 0; !wrong && t < all.streams; t++) {
        Keyed_row row = keyed_row(&all, t);
        cusum_path(row.state, row.values, row.n, row.out);
    }
    return wrong;
}

/* keyed_shiryaev_roberts(states, lo, hi, log_values, out) */
static const char *keyed_shiryaev_roberts(const Arg *in, Arg *out) {
    (void)out;
    Keyed all = {0};
    const char *wrong = keyed_take(in, 2, &all);
    for (int64_t t = 0; !wrong && t < all.streams; t++) {
        Keyed_row row = keyed_row(&all, t);
        shiryaev_roberts_path(row.state, row.values, row.n, row.out);
    }
    return wrong;
}

/* Count one step of a stream, and keep what a monitor keeps of it: extremes, the alarm, and where the change began.
 * Returns whether the alarm is on after the step.
 */
static bool keyed_count(int64_t *numbers, double *reals, bool restart, double log_value, bool sounds) {
    if (numbers[KEYED_N] == numbers[KEYED_SINCE]) reals[KEYED_HIGH] = 0.0;
    numbers[KEYED_N]++;
    if (log_value > reals[KEYED_HIGH]) reals[KEYED_HIGH] = log_value;
    if (sounds && (restart || numbers[KEYED_ALARM] < 0))
        numbers[KEYED_ALARM] = numbers[KEYED_N], numbers[KEYED_CHANGE] = numbers[KEYED_LOWEST];
    if (log_value <= reals[KEYED_LOW]) reals[KEYED_LOW] = log_value, numbers[KEYED_LOWEST] = numbers[KEYED_N];
    return restart ? sounds : numbers[KEYED_ALARM] >= 0;
}

/* Begin the next test of a stream. */
static void keyed_restart(int64_t *numbers, double *reals) {
    reals[KEYED_LOW] = reals[KEYED_SUM] = reals[KEYED_CARRY] = 0.0;
    numbers[KEYED_LOWEST] = numbers[KEYED_SINCE] = numbers[KEYED_N];
    numbers[KEYED_TEST]++;
}

/* keyed_settle(numbers, reals, restart, lo, hi, log_values, sounds, begun, n, alarm, change, test)
 *
 * Count the steps. With restarts hi[t] becomes the end of the steps up to the first alarm, after which a new test has
 * `begun`.
 */
static const char *keyed_settle(const Arg *in, Arg *out) {
    (void)out;
    int64_t streams = in[3].size, events = in[5].size, *hi = int64s(&in[4]), *numbers = int64s(&in[0]);
    double *reals = float64s(&in[1]);
    bool restart = in[2].integer;
    REQUIRE(in[0].size == streams * KEYED_INTEGERS && in[1].size == streams * KEYED_REALS && in[7].size == streams,
            "tables must have a row for each stream");
    REQUIRE(keyed_ranges(&in[3], &in[4], streams, events), KEYED_RANGES);
    for (int k = 6; k < 12; k++) REQUIRE(k == 7 || in[k].size == events, KEYED_COLUMNS);
    for (int64_t t = 0; t < streams; t++, numbers += KEYED_INTEGERS, reals += KEYED_REALS)
        for (int64_t i = int64s(&in[3])[t]; i < hi[t]; i++) {
            bool sounds = bools(&in[6])[i];
            bool on = keyed_count(numbers, reals, restart, float64s(&in[5])[i], sounds);
            int64s(&in[8])[i] = numbers[KEYED_N], int64s(&in[11])[i] = numbers[KEYED_TEST];
            bools(&in[9])[i] = on;
            int64s(&in[10])[i] = on ? numbers[KEYED_CHANGE] : -1;
            if (restart && sounds) {
                keyed_restart(numbers, reals);
                hi[t] = i + 1, bools(&in[7])[t] = true;
            }
        }
    return NULL;
}

/* ------------------------------------------------------------------ rows of different lengths, end to end */

static inline void keyed_copy(int64_t *to, const int64_t *from, int64_t count) {
    memcpy(to, from, sizeof *to * (size_t)count);
}

/* keyed_lift(column, start, used, places, to, out)
 *
 * Copy the rows at these places, each to its own start. Numbers are copied as bits: pass reals as a view of int64.
 */
static const char *keyed_lift(const Arg *in, Arg *out) {
    (void)out;
    const int64_t *start = int64s(&in[1]), *used = int64s(&in[2]), *places = int64s(&in[3]), *to = int64s(&in[4]);
    REQUIRE(in[1].size == in[2].size && in[3].size == in[4].size, "start and used, places and to must be equally long");
    for (int64_t t = 0; t < in[3].size; t++) {
        int64_t k = places[t];
        REQUIRE(k >= 0 && k < in[1].size, "places must be those of rows");
        REQUIRE(keyed_within(start[k], used[k], in[0].size), "rows must lie within the column");
        REQUIRE(keyed_within(to[t], used[k], in[5].size), "rows must find room in out");
        keyed_copy(int64s(&in[5]) + to[t], int64s(&in[0]) + start[k], used[k]);
    }
    return NULL;
}

/* keyed_splice(column, start, changed, rows, begin, used, out)
 *
 * All rows end to end. Row k is row changed[k] of `rows`, which starts at begin[changed[k]], unless that is negative.
 */
static const char *keyed_splice(const Arg *in, Arg *out) {
    (void)out;
    int64_t count = in[5].size, at = 0;
    const int64_t *start = int64s(&in[1]), *changed = int64s(&in[2]), *begin = int64s(&in[4]), *used = int64s(&in[5]);
    REQUIRE(in[1].size == count && in[2].size == count, "start, changed and used must be equally long");
    for (int64_t k = 0; k < count; k++) {
        REQUIRE(changed[k] < in[4].size, "changed must be numbers of rows");
        const Arg *source = changed[k] < 0 ? &in[0] : &in[3];
        int64_t from = changed[k] < 0 ? start[k] : begin[changed[k]];
        REQUIRE(keyed_within(from, used[k], source->size), "rows must lie within their columns");
        REQUIRE(keyed_within(at, used[k], in[6].size), "rows must find room in out");
        keyed_copy(int64s(&in[6]) + at, int64s(source) + from, used[k]);
        at += used[k];
    }
    return NULL;
}

#define KEYED_KERNELS \
    ENTRY(keyed_sequence, "qqdqbbnQQQCQUB"), \
    ENTRY(keyed_unfold, "qqcquQQQCQQ>n"), \
    ENTRY(keyed_rank_bins, "QqqqdQQQ"), \
    ENTRY(keyed_rank_scores, "DQqQnqqQdQQQ"), \
    ENTRY(keyed_thetas, "qqqD"), \
    ENTRY(keyed_simple_jumper, "fDqqdD"), \
    ENTRY(keyed_composite_jumper, "DqqdD"), \
    ENTRY(keyed_sleepy_jumper, "ffDqqdD"), \
    ENTRY(keyed_simple_mixture, "DqqdD"), \
    ENTRY(keyed_gamma_mixture, "ffDqqdD"), \
    ENTRY(keyed_histogram, "DqqdD"), \
    ENTRY(keyed_accumulate, "DqqdD"), \
    ENTRY(keyed_cusum, "DqqdD"), \
    ENTRY(keyed_shiryaev_roberts, "DqqdD"), \
    ENTRY(keyed_settle, "QDnqQdbBQBQQ"), \
    ENTRY(keyed_lift, "qqqqqQ"), \
    ENTRY(keyed_splice, "qqqqqqQ"),
#define KEYED_CONSTANTS \
    CONSTANT(KEYED_SEED), \
    CONSTANT(KEYED_N), \
    CONSTANT(KEYED_SINCE), \
    CONSTANT(KEYED_FIRST), \
    CONSTANT(KEYED_LAST), \
    CONSTANT(KEYED_HORIZON), \
    CONSTANT(KEYED_LOWEST), \
    CONSTANT(KEYED_ALARM), \
    CONSTANT(KEYED_CHANGE), \
    CONSTANT(KEYED_TEST), \
    CONSTANT(KEYED_FLAGS), \
    CONSTANT(KEYED_INTEGERS), \
    CONSTANT(KEYED_LOW), \
    CONSTANT(KEYED_HIGH), \
    CONSTANT(KEYED_SUM), \
    CONSTANT(KEYED_CARRY), \
    CONSTANT(KEYED_REALS), \
    CONSTANT(KEYED_FLAG_PASSED), \
    CONSTANT(KEYED_FLAG_FORGOT), \
    CONSTANT(KEYED_FLAG_FULL), \
    CONSTANT(KEYED_STEP), \
    CONSTANT(KEYED_DUPLICATE), \
    CONSTANT(KEYED_LATE), \
    CONSTANT(KEYED_GAP), \
    CONSTANT(KEYED_CONFLICT), \
    CONSTANT(KEYED_BAD), \
    CONSTANT(KEYED_FULL), \
    CONSTANT(KEYED_NONE), \
    CONSTANT(KEYED_SPANS),
