/* The sequence numbers of many keyed streams: which events are steps, duplicates, late, missing, or in conflict. */

/* Kinds of report rows. KEYED_NONE is an event without a row of its own. */
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

typedef struct {
    int64_t *numbers;    /* the integers of the stream: see keyed.c */
    int64_t (*spans)[2]; /* the first and the last of each range of missing numbers, increasing */
    int64_t *used;       /* how many ranges there are */
    bool contiguous;     /* whether a skipped number is missing */
} Keyed_stream;

/* Remember that the numbers from start to stop are missing; they are larger than all earlier missing ones. */
static void keyed_remember_missing(const Keyed_stream *stream, int64_t start, int64_t stop) {
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

/* Classify a number not above the last one: KEYED_DUPLICATE or KEYED_LATE; KEYED_NONE if that is no longer known. */
static int keyed_classify_old(const Keyed_stream *stream, int64_t number) {
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

/* Advance to a number above the last one; return how many are missing between the two (this may exceed int64). */
static uint64_t keyed_advance(const Keyed_stream *stream, int64_t number, bool new) {
    int64_t *numbers = stream->numbers;
    uint64_t missing = 0;
    if (new) {
        numbers[KEYED_FIRST] = number;
    } else if (stream->contiguous && number - 1 > numbers[KEYED_LAST]) {
        missing = (uint64_t)number - (uint64_t)numbers[KEYED_LAST] - 1;
        keyed_remember_missing(stream, numbers[KEYED_LAST] + 1, number - 1);
    }
    numbers[KEYED_LAST] = number;
    numbers[KEYED_FLAGS] &= ~(int64_t)KEYED_FLAG_PASSED;
    return missing;
}

/* Classify the events with one number as step, conflict, duplicate, late or none; count the missing numbers before. */
static int keyed_classify_number(const Keyed_stream *stream, int64_t number, bool equal, bool new, uint64_t *missing) {
    *missing = 0;
    if (!new && number <= stream->numbers[KEYED_LAST]) return keyed_classify_old(stream, number);
    *missing = keyed_advance(stream, number, new);
    if (equal) return KEYED_STEP;
    stream->numbers[KEYED_FLAGS] |= KEYED_FLAG_PASSED;
    if (stream->contiguous) keyed_remember_missing(stream, number, number);
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
    int64_t first, valid, end; /* the valid events are first .. valid - 1, the bad ones valid .. end - 1 */
    bool equal;                /* whether all are valid and equal */
} Keyed_group;

/* Collect the events with the same number as the first. */
static Keyed_group keyed_group(const Keyed_events *events, int64_t first, int64_t stop) {
    Keyed_group group = {first, first, first, true};
    for (; group.end < stop && events->order[group.end] == events->order[first]; group.end++) {
        int64_t i = group.end;
        bool same = events->x[i] == events->x[first] && events->content[i] == events->content[first];
        group.equal = group.equal && !events->bad[i] && same;
        group.valid += !events->bad[i];
    }
    return group;
}

/* Set the kind of each event of a group; duplicates of one stream are counted at the first of them. */
static void keyed_set_kinds(const Keyed_events *events, Keyed_group group, int kind, int64_t *duplicate) {
    int64_t first = group.first;
    for (int64_t i = first; i < group.end; i++) {
        bool late = kind == KEYED_LATE || kind == KEYED_NONE;
        events->kind[i] = i >= group.valid ? KEYED_BAD : late ? KEYED_LATE : KEYED_NONE;
        events->unsure[i] = kind == KEYED_NONE && i < group.valid;
    }
    if (kind == KEYED_CONFLICT && first < group.valid)
        events->kind[first] = KEYED_CONFLICT, events->count[first] = group.valid - first;
    if (kind == KEYED_STEP) events->kind[first++] = KEYED_STEP;
    if ((kind == KEYED_STEP || kind == KEYED_DUPLICATE) && first < group.valid) {
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
            int kind = keyed_classify_number(&stream, events.order[first], group.equal, begins, events.missing + first);
            keyed_set_kinds(&events, group, kind, &duplicate);
            first = group.end;
        }
    }
    return NULL;
}

/* keyed_unfold(bounds, order, kind, count, missing, row, stream, event, kinds, orders, counts) -> how many rows
 *
 * List the rows of events and gaps; `row` gets the row of each event, -1 if it has none. A gap of more numbers than
 * int64 can count becomes two rows. No stream has two such gaps, so two rows an event and one a stream are enough.
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

#define KEYED_SEQUENCE_KERNELS ENTRY(keyed_sequence, "qqdqbbnQQQCQUB"), ENTRY(keyed_unfold, "qqcquQQQCQQ>n"),
#define KEYED_SEQUENCE_CONSTANTS \
    CONSTANT(KEYED_STEP), \
    CONSTANT(KEYED_DUPLICATE), \
    CONSTANT(KEYED_LATE), \
    CONSTANT(KEYED_GAP), \
    CONSTANT(KEYED_CONFLICT), \
    CONSTANT(KEYED_BAD), \
    CONSTANT(KEYED_FULL), \
    CONSTANT(KEYED_NONE),
