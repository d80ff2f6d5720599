/* The lines of a table monitor: one martingale for each column and view, and the record of all of them together.
 *
 * Row t of every table belongs to line t. A line does with its values what a Monitor does with its examples, but counts
 * its alarm and its change point in rows of the table, and can leave rows out.
 */

enum {
    LINE_SEED,   /* of the tie-breaking numbers: its bits */
    LINE_N,      /* their positions so far */
    LINE_POOL,   /* values in the pool, if it consists of bins */
    LINE_LOWEST, /* the row after which the capital was lowest before the alarm; the last if there are several */
    LINE_ALARM,  /* the row that raised the alarm; -1 without an alarm */
    LINE_CHANGE, /* the change point of that alarm; -1 without an alarm */
    LINE_INTEGERS
};

enum {
    LINE_SUM,
    LINE_CARRY,     /* of the log capital: a compensated sum */
    LINE_LOW,       /* the lowest log capital before the alarm */
    LINE_WEIGHT,    /* the log of the weight */
    LINE_THRESHOLD, /* the log of the threshold of the alarm */
    LINE_REALS
};

enum { LINE_STATISTIC = 2 }; /* numbers in the state of an alarm with a period */

/* One line, and the rows that it is given. */
typedef struct {
    int64_t *integers;
    double *reals, *bet, *alarm; /* the state of the bet, and that of an alarm with a period, or NULL */
    int64_t rows;
    const int64_t *at;   /* the numbers of the rows */
    const uint8_t *used; /* which of them the line uses */
    const double *values, *edges;
    int64_t *counts, bins;                  /* its pool; without bins, */
    const int64_t *greater, *equal, *total; /* the rank of each value */
    double *evidence; /* the log of weight times capital after each row */
    uint8_t *on;      /* whether the alarm is on */
} Line;

/* ------------------------------------------------------------------ p-values */

/* The number of edges below x; they increase. */
static inline int64_t line_bin(const double *edges, int64_t count, double x) {
    int64_t left = 0, right = count;
    while (left < right) {
        int64_t middle = (left + right) / 2;
        if (edges[middle] < x)
            left = middle + 1;
        else
            right = middle;
    }
    return left;
}

/* Add a value to the bins; return (greater + theta equal)/n. */
static inline double line_binned(const Line *line, double value, double theta) {
    int64_t bin = line_bin(line->edges, line->bins - 1, value), above = 0, total = ++line->integers[LINE_POOL];
    int64_t equal = ++line->counts[bin];
    if (bin < line->bins / 2) { /* over the shorter side */
        for (int64_t b = 0; b < bin; b++) above += line->counts[b];
        above = total - equal - above;
    } else {
        for (int64_t b = bin + 1; b < line->bins; b++) above += line->counts[b];
    }
    return ((double)above + theta * (double)equal) / (double)total;
}

/* Write the p-values of the rows that are used to the front of `evidence`; return how many there are. */
static int64_t line_p_values(const Line *line) {
    double *p = line->evidence;
    int64_t used = 0;
    for (int64_t i = 0; i < line->rows; i++) used += line->used[i];
    philox_thetas((uint64_t)line->integers[LINE_SEED], 0, (uint64_t)line->integers[LINE_N], used, p);
    line->integers[LINE_N] += used;
    for (int64_t i = 0; i < line->rows; i++) {
        if (!line->used[i]) continue;
        if (line->bins)
            *p = line_binned(line, line->values[i], *p);
        else
            *p = ((double)line->greater[i] + *p * (double)line->equal[i]) / (double)line->total[i];
        p++;
    }
    return used;
}

/* ------------------------------------------------------------------ bets and alarms */

static void line_bet(const Line *line, const Arg *tables, int64_t n) {
    double *p = line->evidence; /* each p-value is read before its gain is written */
    if (tables->size == ADAPTIVE_TABLES)
        adaptive_path((Adaptive *)line->bet, tables->data, p, n, p);
    else
        sentinel_path(line->bet, tables->data, p, n, p);
    sum_path(line->reals + LINE_SUM, p, n, p);
}

/* Record the log capital after a row; return whether the alarm is on. */
static inline bool line_record(const Line *line, double log_value, int64_t at) {
    double statistic = log_value;
    if (line->alarm) shiryaev_roberts_path(line->alarm, &log_value, 1, &statistic);
    if (line->integers[LINE_ALARM] >= 0) return true;
    if (statistic >= line->reals[LINE_THRESHOLD]) {
        line->integers[LINE_ALARM] = at, line->integers[LINE_CHANGE] = line->integers[LINE_LOWEST];
        return true;
    }
    if (log_value <= line->reals[LINE_LOW]) line->reals[LINE_LOW] = log_value, line->integers[LINE_LOWEST] = at;
    return false;
}

/* Consume the rows. A row that is not used has the evidence of the one before. */
static const char *line_extend(const Line *line, const Arg *tables) {
    double before = line->reals[LINE_SUM] + line->reals[LINE_CARRY], *log_values = line->evidence;
    int64_t used = line_p_values(line), next = 0;
    bool on = line->integers[LINE_ALARM] >= 0, valid = true;
    line_bet(line, tables, used);
    for (int64_t i = 0; i < line->rows; i++) {
        if (line->used[i]) {
            valid &= !isnan(log_values[next]);
            on = line_record(line, log_values[next++], line->at[i]);
        }
        line->on[i] = on;
    }
    for (int64_t i = line->rows - 1; i >= 0; i--) {
        double log_value = used > 0 ? log_values[used - 1] : before;
        used -= line->used[i];
        line->evidence[i] = log_value + line->reals[LINE_WEIGHT];
    }
    return valid ? NULL : "a capital is not a number";
}

/* ------------------------------------------------------------------ entries */

#define LINE_TABLES "tables must have a row for each line"

static bool line_matrix(const Arg *arg, int64_t lines, int64_t width) {
    return arg->ndim == 2 && arg->shape[0] == lines && arg->shape[1] == width;
}

/* Whether all values that are used are numbers. */
static bool line_values_are_finite(const uint8_t *used, const double *values, int64_t n) {
    bool finite = true;
    for (int64_t i = 0; i < n; i++) finite &= !used[i] || isfinite(values[i]);
    return finite;
}

/* lines_extend(tables, at, used, values, edges, counts, greater, equal, total, integers, reals, bets, alarms, evidence,
 *              on)
 *
 * Consume rows of the table, whose numbers are `at`, in each line: `used` says which of them, and `tables` are those of
 * the bet, Adaptive or Sentinel. Values are ranked by their bins, which have an edge less than counts. Without counts
 * the ranks are read. Alarms without a state compare the capital with their threshold, the others the statistic of
 * Shiryaev and Roberts.
 */
static const char *lines_extend(const Arg *in, Arg *out) {
    (void)out;
    int64_t lines = in[9].shape[0], rows = in[1].size, cells = lines * rows, bins = in[5].shape[1];
    int64_t width = in[11].shape[1], statistic = in[12].shape[1];
    bool adaptive_bets = in[0].size == ADAPTIVE_TABLES && width == ADAPTIVE_STATE;
    REQUIRE(adaptive_bets || (in[0].size == SENTINEL_TABLES && width == SENTINEL_STATE), "tables must be those of the bets");
    REQUIRE(line_matrix(&in[9], lines, LINE_INTEGERS) && line_matrix(&in[10], lines, LINE_REALS), LINE_TABLES);
    REQUIRE(line_matrix(&in[11], lines, width) && line_matrix(&in[12], lines, statistic), LINE_TABLES);
    REQUIRE(statistic == 0 || statistic == LINE_STATISTIC, "the state of an alarm has the wrong size");
    REQUIRE(line_matrix(&in[5], lines, bins) && line_matrix(&in[4], lines, bins ? bins - 1 : 0), "bins must have edges");
    static const int COLUMNS[] = {2, 3, 6, 7, 8, 13, 14};
    for (int k = 0; k < 7; k++)
        REQUIRE(line_matrix(&in[COLUMNS[k]], lines, rows), "columns must be as long as there are rows");
    REQUIRE(!bins || line_values_are_finite(bools(&in[2]), float64s(&in[3]), cells), "values must be finite numbers");
    for (int64_t k = 0; k < (bins ? 0 : cells); k++)
        REQUIRE(!bools(&in[2])[k] || int64s(&in[8])[k] > 0, "ranks must be among at least one value");
    const char *wrong = NULL;
    for (int64_t t = 0; t < lines; t++) {
        Line line = {.integers = int64s(&in[9]) + t * LINE_INTEGERS,
                     .reals = float64s(&in[10]) + t * LINE_REALS,
                     .bet = float64s(&in[11]) + t * width,
                     .alarm = statistic ? float64s(&in[12]) + t * statistic : NULL,
                     .rows = rows,
                     .at = int64s(&in[1]),
                     .used = bools(&in[2]) + t * rows,
                     .values = float64s(&in[3]) + t * rows,
                     .edges = bins ? float64s(&in[4]) + t * (bins - 1) : NULL,
                     .counts = bins ? int64s(&in[5]) + t * bins : NULL,
                     .bins = bins,
                     .greater = int64s(&in[6]) + t * rows,
                     .equal = int64s(&in[7]) + t * rows,
                     .total = int64s(&in[8]) + t * rows,
                     .evidence = float64s(&in[13]) + t * rows,
                     .on = bools(&in[14]) + t * rows};
        const char *problem = line_extend(&line, &in[0]);
        wrong = wrong ? wrong : problem;
    }
    return wrong;
}

/* The largest evidence after each row, and whether any alarm is on. */
static void lines_strongest(const Arg *evidence, const Arg *on, double *log_values, uint8_t *raised) {
    int64_t lines = evidence->shape[0], rows = evidence->shape[1];
    for (int64_t i = 0; i < rows; i++) log_values[i] = -INFINITY, raised[i] = false;
    for (int64_t t = 0; t < lines; t++) {
        const double *line = float64s(evidence) + t * rows;
        for (int64_t i = 0; i < rows; i++) log_values[i] = line[i] > log_values[i] ? line[i] : log_values[i];
        for (int64_t i = 0; i < rows; i++) raised[i] |= bools(on)[t * rows + i];
    }
}

/* lines_record(integers, reals, points, marks, start, restart, evidence, on, line_points, line_marks, line_start,
 *              log_values, alarm, test) -> count
 *
 * Record rows of the table in its record (track.c) and its history, and in the histories of the lines, given the results
 * of lines_extend. With restarts only those up to the first alarm are recorded. Return how many.
 */
static const char *lines_record(const Arg *in, Arg *out) {
    int64_t lines = in[6].shape[0], rows = in[6].shape[1], *integers = int64s(&in[0]), count = 0, lowest;
    int64_t start = in[4].integer, line_start = in[10].integer;
    double *log_values = float64s(&in[11]);
    uint8_t *alarm = bools(&in[12]);
    bool restart = in[5].integer, ended = false;
    REQUIRE(in[0].size == TRACK_INTEGERS && in[1].size == TRACK_REALS, "the record has the wrong size");
    int64_t n = integers[TRACK_N];
    REQUIRE(line_matrix(&in[6], lines, rows) && line_matrix(&in[7], lines, rows) && in[11].size == rows &&
                in[12].size == rows && in[13].size == rows,
            "columns must be as long as there are rows");
    REQUIRE(in[2].size == HISTORY_BUCKETS * HISTORY_POINTS && in[3].size == HISTORY_BUCKETS &&
                in[8].size == lines * in[2].size && in[9].size == lines * in[3].size,
            "the history has the wrong size");
    REQUIRE(0 <= start && start <= n && 0 <= line_start && line_start <= n && n <= INT64_C(1) << 61,
            "start must be before the rows");
    lines_strongest(&in[6], &in[7], log_values, alarm);
    while (count < rows && !ended) {
        int64s(&in[13])[count] = integers[TRACK_TEST];
        ended = restart && alarm[count];
        alarm[count] = track_example(integers, float64s(&in[1]), restart, log_values[count], alarm[count], &lowest);
        count++;
    }
    history_path(integers, float32s(&in[2]), bools(&in[3]), start, restart, log_values, count);
    for (int64_t t = 0; t < lines; t++)
        history_path(integers, float32s(&in[8]) + t * HISTORY_BUCKETS * HISTORY_POINTS,
                     bools(&in[9]) + t * HISTORY_BUCKETS, line_start, restart, float64s(&in[6]) + t * rows, count);
    out[0].integer = count;
    return NULL;
}

#define LINES_KERNELS ENTRY(lines_extend, "dqbddQqqqQDDDDB"), ENTRY(lines_record, "QDSBnndbSBnDBQ>n"),
#define LINES_CONSTANTS \
    CONSTANT(LINE_SEED), \
    CONSTANT(LINE_N), \
    CONSTANT(LINE_POOL), \
    CONSTANT(LINE_LOWEST), \
    CONSTANT(LINE_ALARM), \
    CONSTANT(LINE_CHANGE), \
    CONSTANT(LINE_INTEGERS), \
    CONSTANT(LINE_SUM), \
    CONSTANT(LINE_CARRY), \
    CONSTANT(LINE_LOW), \
    CONSTANT(LINE_WEIGHT), \
    CONSTANT(LINE_THRESHOLD), \
    CONSTANT(LINE_REALS),
