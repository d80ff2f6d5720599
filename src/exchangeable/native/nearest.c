/* Nearest same-label and other-label distances, updated exactly as examples arrive.
 *
 * A float32 matrix product gives every inner product at the speed of BLAS. It is only a filter: wherever its error
 * bound cannot rule out that a nearest distance falls, the distance is computed directly in float64. So what is stored
 * and compared is always the direct float64 value, whatever the filter finds.
 *
 * The bound. Let u = 2^-24, f_i the float32 copy of the centred and scaled row, N_i = |f_i|^2. The inner product of d
 * terms is off by at most d u |f_i| |f_j| in any order of summation, the copies by u per coordinate, the three float32
 * operations of the test by a few u; together this is below (d + 32) u (N_i + N_j) plus an underflow term.
 * slack = (2 d + 64) u is twice that. With low_i = (1 - slack) N_i - tiny,
 *
 *     low_i + low_j - 2 f_i.f_j  <=  scale^2 |x_i - x_j|^2 ,
 *
 * and the difference of the two sides is at most 2 slack (N_i + N_j) + 4 tiny.
 *
 * Rows too large for float32 have low = -inf: they always go to the direct distance.
 *
 * All comparisons of the filter are written so that a NaN would go to the direct distance too.
 */
#include <float.h>

_Static_assert(FLT_EVAL_METHOD == 0, "the bound needs float32 operations that are rounded to float32");

enum {
    NEAREST_CHUNK = 128, /* columns that one survey can rule out */
    NEAREST_GROUP = 32,  /* rows that are surveyed before the first of them is added */
    NEAREST_SPAN = 8,    /* chunks whose columns stay in the cache from row to row */
    NEAREST_BATCH = 16   /* distances that are computed together */
};

static const double NEAREST_UP = 0x1p-22;    /* more than float32 rounding takes away */
static const double NEAREST_TINY = 0x1p-120; /* covers float32 underflow, per coordinate */
static const double NEAREST_NORM = 1e37;     /* squared norms beyond it could overflow in float32 */
static const double NEAREST_FAR = 0x1p512;   /* ratios beyond it, or below its inverse, could overflow or underflow */

/* Examples: d features each, labels as numbers, and low. */
typedef struct {
    int64_t n, d;
    const double *X;
    const int32_t *code;
    const float *low;
} Block;

/* ------------------------------------------------------------------ vectors */

#ifdef __AVX2__
enum { NEAREST_BYTES = 32 };
#else
enum { NEAREST_BYTES = 16 };
#endif
enum { NEAREST_LANES = NEAREST_BYTES / 4, NEAREST_PAIRS = NEAREST_BYTES / 8 };

typedef float VSingles __attribute__((vector_size(NEAREST_BYTES)));
typedef int32_t VMask __attribute__((vector_size(NEAREST_BYTES)));
typedef double VDoubles __attribute__((vector_size(NEAREST_BYTES)));

static inline VSingles v_singles(const float *from) {
    VSingles v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline VDoubles v_doubles(const double *from) {
    VDoubles v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline VMask v_integers(const int32_t *from) {
    VMask v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline VSingles v_select(VMask mask, VSingles yes, VSingles no) {
    return (VSingles)((mask & (VMask)yes) | (~mask & (VMask)no));
}

static inline VSingles v_least(VSingles a, VSingles b) { return v_select(a < b, a, b); }

static inline bool v_any(VMask mask) {
    uint64_t parts[NEAREST_BYTES / 8], all = 0;
    memcpy(parts, &mask, sizeof parts);
    for (int k = 0; k < NEAREST_BYTES / 8; k++) all |= parts[k];
    return all != 0;
}

/* ------------------------------------------------------------------ bounds */

/* Constants of the filter: slack and tiny, the highest low of the columns (at least 0), and scale^2. */
typedef struct {
    double slack, tiny, highest, scale2;
} Bounds;

static double nearest_slack(int64_t d) { return (double)(2 * d + 64) * 0x1p-24; }
static double nearest_tiny(int64_t d) { return (double)(d + 8) * NEAREST_TINY; }

/* The bounds for inner products with the first n rows of a block. */
static Bounds nearest_bounds(const Block *block, int64_t n, double scale) {
    const float *low = block->low;
    VSingles lanes = (VSingles){0.0f};
    float highest = 0.0f;
    int64_t j = 0;
    for (; j + NEAREST_LANES <= n; j += NEAREST_LANES) {
        VSingles more = v_singles(low + j);
        lanes = v_select(more > lanes, more, lanes);
    }
    for (; j < n; j++) highest = low[j] > highest ? low[j] : highest;
    for (int k = 0; k < NEAREST_LANES; k++) highest = lanes[k] > highest ? lanes[k] : highest;
    return (Bounds){nearest_slack(block->d), nearest_tiny(block->d), (double)highest, scale * scale};
}

/* ------------------------------------------------------------------ direct distances */

/* Sum of squared differences over at most 128 coordinates, added in the order in which NumPy adds them. */
static inline double nearest_leaf(const double *a, const double *b, int64_t d) {
    enum { PARTS = 8 / NEAREST_PAIRS };
    VDoubles sums[PARTS];
    double eight[8];
    int64_t whole = d - d % 8;
    for (int p = 0; p < PARTS; p++) sums[p] = (VDoubles){0.0};
    for (int64_t k = 0; k < whole; k += 8)
        for (int p = 0; p < PARTS; p++) {
            VDoubles difference = v_doubles(a + k + p * NEAREST_PAIRS) - v_doubles(b + k + p * NEAREST_PAIRS);
            sums[p] += difference * difference;
        }
    memcpy(eight, sums, sizeof eight);
    double total = ((eight[0] + eight[1]) + (eight[2] + eight[3])) + ((eight[4] + eight[5]) + (eight[6] + eight[7]));
    for (int64_t k = whole; k < d; k++) total += (a[k] - b[k]) * (a[k] - b[k]);
    return total;
}

/* ((a - b) ** 2).sum() in float64, bit for bit as NumPy sums a contiguous row.
 *
 * NumPy sums pairwise: it halves the row, at a multiple of 8, until at most 128 coordinates are left. */
static double nearest_squared(const double *a, const double *b, int64_t d) {
    if (d <= 128) return nearest_leaf(a, b, d);
    int64_t half = d / 2;
    half -= half % 8;
    return nearest_squared(a, b, half) + nearest_squared(a + half, b + half, d - half);
}

/* ------------------------------------------------------------------ scores */

/* same / other, where 0/0 and inf/inf are 1, x/inf is 0, x/0 and inf/x are inf. */
static inline double nearest_quotient(double same, double other) {
    if (same == other && (same == 0.0 || same == INFINITY)) return 1.0;
    return same / other;
}

/* The square of equation (1) of the paper, from squared distances: an increasing function of it, rounded once.
 *
 * Equal ratios have equal scores, because a correctly rounded quotient depends on the ratio alone. Where the quotient
 * q might overflow or underflow, the score is 2^384 q^(1/4) (above 2^512) or 2^-384 q^(1/4) (below 2^-512), from
 * fractions and exponents: it increases with q, and resolves 50 bits instead of 53. */
static double nearest_ratio(double same, double other) {
    double q = nearest_quotient(same, other);
    bool far = !(1.0 / NEAREST_FAR <= q && q <= NEAREST_FAR);
    if (!far || same == 0.0 || other == 0.0 || same == INFINITY || other == INFINITY) return q;
    int above, below;
    double top = frexp(same, &above), bottom = frexp(other, &below);
    int power = above - below, rest = ((power % 4) + 4) % 4; /* q = top / bottom * 2^power */
    double root = sqrt(sqrt(ldexp(top / bottom, rest)));
    return ldexp(root, (power - rest) / 4 + (q > 1.0 ? 384 : -384));
}

/* A rank: how many scores are greater than the newest, how many equal to it, and how many there are. */
typedef struct {
    int64_t greater, equal, n;
} Counts;

/* The rank of the last of the first n scores among them all. */
static Counts nearest_rank(const double *alpha, int64_t n) {
    double newest = alpha[n - 1];
    int64_t greater = 0, equal = 0;
    for (int64_t j = 0; j < n; j++) {
        greater += alpha[j] > newest;
        equal += alpha[j] == newest;
    }
    return (Counts){greater, equal, n};
}

/* Its rank among the scores of the same label only. */
static Counts nearest_rank_within(const double *alpha, const int32_t *code, int64_t n) {
    double newest = alpha[n - 1];
    int32_t own = code[n - 1];
    int64_t greater = 0, equal = 0, among = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t same = code[j] == own;
        greater += same & (alpha[j] > newest);
        equal += same & (alpha[j] == newest);
        among += same;
    }
    return (Counts){greater, equal, among};
}

/* Where the ranks go: a matrix of three rows, `stride` apart. */
typedef struct {
    int64_t *counts, stride;
    bool within; /* ranked among the same label only */
} Ranking;

static void ranking_add(const Ranking *to, int64_t r, const double *alpha, const int32_t *code, int64_t n) {
    Counts rank = to->within ? nearest_rank_within(alpha, code, n) : nearest_rank(alpha, n);
    to->counts[r] = rank.greater, to->counts[to->stride + r] = rank.equal, to->counts[2 * to->stride + r] = rank.n;
}

/* ------------------------------------------------------------------ the filter */

/* The largest low_i - 2 f_i.f_j at which the distance might still be below `squared`, rounded up. */
static inline float nearest_ceiling(double squared, double scale2, float low) {
    if (squared == 0.0) return -INFINITY; /* nothing is nearer than a duplicate */
    if (squared == INFINITY || low == -INFINITY) return INFINITY;
    double bound = squared * scale2 - (double)low;
    return (float)(bound + fabs(bound) * NEAREST_UP);
}

/* An upper bound of a scaled squared distance from its lower bound low_i + lowest and the width of the bounds. */
static float nearest_reach(float low_i, float lowest, const Bounds *bounds) {
    float sum = low_i + lowest;
    if (!(-INFINITY < sum && sum < INFINITY)) return INFINITY;
    double norms = (low_i > 0.0f ? (double)low_i : 0.0) + bounds->highest;
    double bound = (double)low_i + (double)lowest + 2.1 * bounds->slack * norms + 8.0 * bounds->tiny;
    return (float)(bound + fabs(bound) * NEAREST_UP);
}

/* The bound below which a squared distance enters a list that ends with `last`; just above it if ties may enter too. */
static inline double nearest_limit(double last, bool tied) { return tied ? nextafter(last, INFINITY) : last; }

/* What the survey of a chunk of columns finds: the least low_j - 2 f_i.f_j among the same label and among the others,
 * and whether a nearest distance of one of the columns may fall. */
typedef struct {
    float same, other;
    bool falls;
} Survey;

/* Survey the columns [from, to), whose inner products are g[from ..]. */
static Survey nearest_survey(const float *g, int64_t from, int64_t to, float low_i, int32_t code_i, const int32_t *code,
                           const float *low, const float *ceil_same, const float *ceil_other) {
    VSingles infinite = (VSingles){0.0f} + INFINITY, same = infinite, other = infinite;
    VMask hits = (VMask){0};
    int64_t j = from;
    for (; j + NEAREST_LANES <= to; j += NEAREST_LANES) {
        VMask same_label = v_integers(code + j) == code_i;
        VSingles twice = 2.0f * v_singles(g + j);
        hits |= ~(low_i - twice >= v_select(same_label, v_singles(ceil_same + j), v_singles(ceil_other + j)));
        VSingles value = v_singles(low + j) - twice;
        same = v_least(v_select(same_label, value, infinite), same);
        other = v_least(v_select(same_label, infinite, value), other);
    }
    Survey survey = {INFINITY, INFINITY, v_any(hits)};
    for (int k = 0; k < NEAREST_LANES; k++) {
        survey.same = same[k] < survey.same ? same[k] : survey.same;
        survey.other = other[k] < survey.other ? other[k] : survey.other;
    }
    for (; j < to; j++) {
        float twice = 2.0f * g[j], value = low[j] - twice;
        bool same_label = code[j] == code_i;
        survey.falls |= !(low_i - twice >= (same_label ? ceil_same[j] : ceil_other[j]));
        if (same_label)
            survey.same = value < survey.same ? value : survey.same;
        else
            survey.other = value < survey.other ? value : survey.other;
    }
    return survey;
}

/* The float32 copy of a centred and scaled row, and its low. A row too large for float32 is copied as zeros. `centred`
 * is scratch space, `zero` a row of zeros: the squared norm is the squared distance from it. */
static float nearest_copied(const double *x, const double *centre, double scale, int64_t d, double *centred,
                            const double *zero, float *f) {
    for (int64_t k = 0; k < d; k++) centred[k] = (x[k] - centre[k]) * scale;
    bool large = !(nearest_squared(centred, zero, d) <= NEAREST_NORM);
    for (int64_t k = 0; k < d; k++) {
        f[k] = large ? 0.0f : (float)centred[k];
        centred[k] = (double)f[k];
    }
    double low = nearest_squared(centred, zero, d);
    low -= nearest_slack(d) * low + nearest_tiny(d);
    low -= fabs(low) * NEAREST_UP;
    return large ? -INFINITY : (float)low;
}

/* ------------------------------------------------------------------ comparing examples */

/* The comparison of arriving rows with the columns of a block. */
typedef struct {
    Bounds bounds;
    const float *G; /* a row for each of the rows that arrive, `stride` apart */
    int64_t stride;
    Block rows, columns;
    double *near[2]; /* the nearest squared distances of the columns: of the same label, of the others; */
    float *ceil[2];  /* what the filter knows of them */
    Survey *surveys;     /* scratch space: for each row of a group what the chunks hold, `chunks` apart, */
    int64_t chunks;
    int64_t *fallen; /* and the columns whose distances fell at a row */
    int64_t computed; /* how many distances were computed directly */
} Comparison;

/* Survey the first `chunks` chunks for a group of rows, before the first of them is added.
 *
 * By the time the later rows are added, the distances of the columns can only have fallen: a chunk that is ruled out
 * now is still ruled out then. */
static void comparison_survey(const Comparison *m, int64_t first, int64_t rows, int64_t start, int64_t chunks) {
    const Block *c = &m->columns;
    for (int64_t span = 0; span < chunks; span += NEAREST_SPAN) {
        int64_t end = smaller(span + NEAREST_SPAN, chunks);
        for (int64_t r = 0; r < rows; r++) {
            const float *g = m->G + (first + r) * m->stride, *next = r + 1 < rows ? g + m->stride : g;
            float low_i = m->rows.low[start + first + r];
            int32_t code_i = m->rows.code[start + first + r];
            for (int64_t k = span; k < end; k++) {
                int64_t to = smaller((k + 1) * NEAREST_CHUNK, c->n);
                for (int64_t j = k * NEAREST_CHUNK; j < to; j += 16) __builtin_prefetch(next + j);
                m->surveys[r * m->chunks + k] = nearest_survey(g, k * NEAREST_CHUNK, to, low_i, code_i, c->code, c->low,
                                                             m->ceil[0], m->ceil[1]);
            }
        }
    }
}

/* Prefetch row j of the columns, which is probably not in the cache. */
static inline void comparison_prefetch(const Block *c, int64_t j) {
    enum { LINE = 8, LIMIT = 32 * LINE }; /* beyond it the processor prefetches automatically */
    const double *x = c->X + j * c->d;
    for (int64_t k = 0; k < c->d && k < LIMIT; k += LINE) __builtin_prefetch(x + k);
}

/* Find the columns in [from, to) that may be nearer to the row than `reach`, or to which the row may be nearer than any
 * so far. They are written to `candidates`; returns how many. */
static int64_t comparison_candidates(const Comparison *m, const float *g, int64_t from, int64_t to, float low_i,
                                  int32_t code_i, const float *reach, int64_t *candidates) {
    const Block *c = &m->columns;
    VSingles reach_same = (VSingles){0.0f} + reach[0], reach_other = (VSingles){0.0f} + reach[1];
    int64_t count = 0;
    for (int64_t j = from; j < to; j += NEAREST_LANES) {
        int64_t end = smaller(j + NEAREST_LANES, to);
        if (end == j + NEAREST_LANES) {
            VMask same_label = v_integers(c->code + j) == code_i;
            VSingles value = low_i - 2.0f * v_singles(g + j);
            VMask out = value >= v_select(same_label, v_singles(m->ceil[0] + j), v_singles(m->ceil[1] + j));
            out &= value >= v_select(same_label, reach_same, reach_other) - v_singles(c->low + j);
            if (!v_any(~out)) continue;
        }
        for (int64_t k = j; k < end; k++) {
            int side = c->code[k] != code_i;
            float value = low_i - 2.0f * g[k];
            if (value >= m->ceil[side][k] && value >= reach[side] - c->low[k]) continue;
            comparison_prefetch(c, k);
            candidates[count++] = k;
        }
    }
    return count;
}

/* Compute the distances of row i (inner products g) to the candidates, unless a nearer one was found since: its two
 * nearest distances `own` and theirs are updated. Those that have fallen are written to `fallen`, which may
 * be the array of the candidates; returns how many. */
static int64_t comparison_measure(Comparison *m, int64_t i, const float *g, const int64_t *candidates, int64_t count,
                               double *own, float *reach, int64_t *fallen) {
    const Block *c = &m->columns;
    double scale2 = m->bounds.scale2;
    int64_t fell = 0;
    for (int64_t e = 0; e < count; e++) {
        int64_t j = candidates[e];
        int side = c->code[j] != m->rows.code[i];
        float value = m->rows.low[i] - 2.0f * g[j], *ceil = m->ceil[side] + j;
        double *near = m->near[side] + j;
        if (value >= *ceil && value >= reach[side] - c->low[j]) continue;
        double distance = nearest_squared(m->rows.X + i * c->d, c->X + j * c->d, c->d);
        m->computed++;
        if (distance < own[side]) {
            own[side] = distance;
            float nearest = nearest_ceiling(distance, scale2, 0.0f);
            if (nearest < reach[side]) reach[side] = nearest;
        }
        if (distance < *near) {
            *near = distance;
            *ceil = nearest_ceiling(distance, scale2, c->low[j]);
            fallen[fell++] = j;
        }
    }
    return fell;
}

/* Upper bounds of the distances of row i to its nearest column of the same label and of the others: from what is known
 * of it, and from the surveys, except for rows that float32 cannot hold. */
static void comparison_reach(const Comparison *m, int64_t i, const Survey *surveys, int64_t chunks, const double *own,
                          float *reach) {
    float least[2] = {INFINITY, INFINITY};
    for (int64_t k = 0; k < chunks; k++) {
        float same = surveys[k].same, other = surveys[k].other;
        if (-INFINITY < same && same < least[0]) least[0] = same;
        if (-INFINITY < other && other < least[1]) least[1] = other;
    }
    for (int side = 0; side < 2; side++) {
        float nearest = nearest_reach(m->rows.low[i], least[side], &m->bounds);
        reach[side] = nearest_ceiling(own[side], m->bounds.scale2, 0.0f);
        if (nearest < reach[side]) reach[side] = nearest;
    }
}

/* Compare row i (inner products g) with the first n columns: its two nearest distances `own` and theirs are updated.
 * Distances that are not below `own` do not matter. Returns how many distances of columns have fallen. */
static int64_t comparison_run(Comparison *m, int64_t i, const float *g, int64_t n, const Survey *surveys, double *own) {
    float low_i = m->rows.low[i], reach[2];
    int32_t code_i = m->rows.code[i];
    int64_t chunks = (n + NEAREST_CHUNK - 1) / NEAREST_CHUNK, fell = 0, waiting = 0;
    comparison_reach(m, i, surveys, chunks, own, reach);
    for (int64_t k = 0; k < chunks; k++) {
        /* (not >=, so that minus infinity minus minus infinity, NaN, counts as a hit) */
        bool close = !(low_i + surveys[k].same >= reach[0]) || !(low_i + surveys[k].other >= reach[1]);
        if (!(surveys[k].falls || close)) continue;
        int64_t from = k * NEAREST_CHUNK, to = smaller(from + NEAREST_CHUNK, n), *candidates = m->fallen + fell;
        waiting += comparison_candidates(m, g, from, to, low_i, code_i, reach, candidates + waiting);
        if (waiting < NEAREST_BATCH) continue;
        fell += comparison_measure(m, i, g, candidates, waiting, own, reach, candidates);
        waiting = 0;
    }
    return fell + comparison_measure(m, i, g, m->fallen + fell, waiting, own, reach, m->fallen + fell);
}

/* Compare row r of G (example i) with the first n columns; the first `surveyed` chunks were surveyed before. */
static int64_t comparison_row(Comparison *m, int64_t i, int64_t r, int64_t n, Survey *surveys, int64_t surveyed,
                           double *own) {
    const Block *c = &m->columns;
    const float *g = m->G + r * m->stride;
    for (int64_t k = surveyed; k * NEAREST_CHUNK < n; k++) {
        int64_t to = smaller((k + 1) * NEAREST_CHUNK, n);
        surveys[k] = nearest_survey(g, k * NEAREST_CHUNK, to, m->rows.low[i], m->rows.code[i], c->code, c->low,
                                  m->ceil[0], m->ceil[1]);
    }
    return comparison_run(m, i, g, n, surveys, own);
}

/* Store the nearest distances of a row that is also one of the columns. */
static void comparison_store(const Comparison *m, int64_t i, const double *own) {
    for (int side = 0; side < 2; side++) {
        m->near[side][i] = own[side];
        m->ceil[side][i] = nearest_ceiling(own[side], m->bounds.scale2, m->columns.low[i]);
    }
}

/* Allocate the scratch space. */
static bool comparison_start(Comparison *m) {
    m->chunks = m->columns.n / NEAREST_CHUNK + 1;
    m->computed = 0;
    size_t surveys = (size_t)m->chunks * NEAREST_GROUP * sizeof *m->surveys;
    m->fallen = malloc((size_t)m->columns.n * sizeof *m->fallen + surveys);
    if (!m->fallen) return false;
    m->surveys = (Survey *)(m->fallen + m->columns.n);
    return true;
}

/* ------------------------------------------------------------------ entries */

/* Whether start .. start + count - 1 are indices of an array of n. */
static bool nearest_fits(int64_t start, int64_t count, int64_t n) {
    return start >= 0 && count <= n && start <= n - count;
}

/* A block from the arrays X, code, low. */
static const char *nearest_block(const Arg *in, Block *block) {
    REQUIRE(in[0].ndim == 2, "X must have two dimensions");
    REQUIRE(in[1].size == in[0].shape[0] && in[2].size == in[0].shape[0], "code and low must be as long as X");
    *block = (Block){in[0].shape[0], in[0].shape[1], float64s(&in[0]), int32s(&in[1]), float32s(&in[2])};
    return NULL;
}

/* squared_distance(a, b) -> ((a - b) ** 2).sum() */
static const char *squared_distance(const Arg *in, Arg *out) {
    REQUIRE(in[0].size == in[1].size, "a and b must be of the same length");
    out[0].real = nearest_squared(float64s(&in[0]), float64s(&in[1]), in[0].size);
    return NULL;
}

/* sample_distances(X, sample, out): the distance of each row of X to the nearest row of a sample. */
static const char *sample_distances(const Arg *in, Arg *out) {
    (void)out;
    int64_t d = in[0].shape[1], rows = in[0].shape[0];
    REQUIRE(in[0].ndim == 2 && in[1].ndim == 2 && in[1].shape[1] == d, "X and sample must have the same features");
    REQUIRE(in[2].size == rows, "out must hold a number for each row");
    for (int64_t i = 0; i < rows; i++) {
        double least = INFINITY;
        for (int64_t j = 0; j < in[1].shape[0]; j++) {
            double squared = nearest_squared(float64s(&in[0]) + i * d, float64s(&in[1]) + j * d, d);
            if (squared < least) least = squared;
        }
        float64s(&in[2])[i] = sqrt(least);
    }
    return NULL;
}

/* nearest_scores(near, alpha): the scores of all examples, from their nearest squared distances (2 x n x 1). */
static const char *nearest_scores(const Arg *in, Arg *out) {
    (void)out;
    int64_t n = in[1].size;
    REQUIRE(in[0].size == 2 * n, "near must hold two distances for each score");
    const double *near = float64s(&in[0]);
    for (int64_t j = 0; j < n; j++) float64s(&in[1])[j] = nearest_ratio(near[j], near[n + j]);
    return NULL;
}

/* nearest_copy(X, centre, scale, F, low): float32 copies of centred and scaled rows, and lower bounds of their squared
 * norms. */
static const char *nearest_copy(const Arg *in, Arg *out) {
    (void)out;
    int64_t n = in[0].shape[0], d = in[0].shape[1];
    REQUIRE(in[0].ndim == 2 && in[1].size == d, "X must have as many columns as centre");
    REQUIRE(in[3].size == n * d && in[4].size == n, "F and low must fit X");
    double *scratch = calloc((size_t)(2 * d + 1), sizeof *scratch);
    if (!scratch) return OUT_OF_MEMORY;
    for (int64_t i = 0; i < n; i++)
        float32s(&in[4])[i] = nearest_copied(float64s(&in[0]) + i * d, float64s(&in[1]), in[2].real, d, scratch + d,
                                             scratch, float32s(&in[3]) + i * d);
    free(scratch);
    return NULL;
}

/* nearest_refresh(n, scale, low, near, ceil, tied): express what is known of the first n rows in a new scale of the
 * filter. near is sides x capacity x k, ceil sides x capacity. */
static const char *nearest_refresh(const Arg *in, Arg *out) {
    (void)out;
    const Arg *near = in + 3, *ceil = in + 4;
    int64_t n = in[0].integer, sides = ceil->shape[0], capacity = ceil->shape[1], k = near->shape[2];
    REQUIRE(near->ndim == 3 && near->shape[0] == sides && near->shape[1] == capacity && k > 0, "near must fit ceil");
    REQUIRE(n >= 0 && n <= capacity && n <= in[2].size, "n must be at most the number of rows");
    double scale2 = in[1].real * in[1].real;
    for (int64_t side = 0; side < sides; side++)
        for (int64_t j = 0; j < n; j++) {
            int64_t at = side * capacity + j;
            double last = float64s(near)[at * k + k - 1];
            float32s(ceil)[at] = nearest_ceiling(nearest_limit(last, in[5].integer), scale2, float32s(&in[2])[j]);
        }
    return NULL;
}

/* Add the rows from `start` on, and rank each when it is added. */
static void nearest_join(Comparison *m, int64_t start, int64_t rows, double *alpha, Ranking ranking) {
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = start + r, in_group = r % NEAREST_GROUP, surveyed = (i - in_group) / NEAREST_CHUNK;
        if (!in_group) comparison_survey(m, r, smaller(NEAREST_GROUP, rows - r), start, surveyed);
        double own[2] = {INFINITY, INFINITY};
        int64_t fell = comparison_row(m, i, r, i, m->surveys + in_group * m->chunks, surveyed, own);
        comparison_store(m, i, own);
        for (int64_t e = 0; e < fell; e++) {
            int64_t j = m->fallen[e];
            alpha[j] = nearest_ratio(m->near[0][j], m->near[1][j]);
        }
        alpha[i] = nearest_ratio(own[0], own[1]);
        ranking_add(&ranking, r, alpha, m->columns.code, i + 1);
    }
}

/* nearest_extend(start, G, scale, X, code, low, alpha, near, ceil, within, counts, at) -> computed
 *
 * Add the rows from `start` on, whose inner products are the rows of G. Each is ranked when it is added, among all or
 * among those of its label (within); the ranks are written to the columns of counts (3 x any) from `at` on. near
 * (2 x n x 1) holds the nearest squared distances. Returns how many distances were computed directly. */
static const char *nearest_extend(const Arg *in, Arg *out) {
    const Arg *G = in + 1, *near = in + 7, *ceil = in + 8, *ranks = in + 10;
    int64_t start = in[0].integer, rows = G->shape[0], at = in[11].integer, total = ranks->shape[1];
    Block block;
    const char *wrong = nearest_block(in + 3, &block);
    if (wrong) return wrong;
    int64_t n = block.n;
    REQUIRE(nearest_fits(start, rows, n) && G->shape[1] >= start + rows, "G must have a column for each row so far");
    REQUIRE(in[6].size == n && near->size == 2 * n && ceil->size == 2 * n, "alpha, near and ceil must fit X");
    REQUIRE(ranks->ndim == 2 && ranks->shape[0] == 3 && nearest_fits(at, rows, total), "counts must have three rows");
    block.n = start + rows;
    Comparison m = {.G = float32s(G), .stride = G->stride, .rows = block, .columns = block};
    m.bounds = nearest_bounds(&block, block.n, in[2].real);
    for (int side = 0; side < 2; side++)
        m.near[side] = float64s(near) + side * n, m.ceil[side] = float32s(ceil) + side * n;
    if (!comparison_start(&m)) return OUT_OF_MEMORY;
    nearest_join(&m, start, rows, float64s(&in[6]), (Ranking){int64s(ranks) + at, total, in[9].integer});
    free(m.fallen);
    out[0].integer = m.computed;
    return NULL;
}

/* Read and check the arguments of nearest_tile. */
static const char *tile_comparison(const Arg *in, Comparison *m) {
    const Arg *G = in + 1, *initial = in + 6, *near = in + 10, *ceil = in + 11, *slot = in + 13;
    int64_t start = in[0].integer, rows = G->shape[0], room = slot->size;
    bool within = in[12].integer;
    const char *wrong = nearest_block(in + 3, &m->rows);
    if (!wrong) wrong = nearest_block(in + 7, &m->columns);
    if (wrong) return wrong;
    int64_t n = m->columns.n;
    REQUIRE(m->rows.d == m->columns.d, "the blocks must have the same features");
    REQUIRE(!within || m->rows.n == n, "both blocks must be the same within a block");
    REQUIRE(nearest_fits(start, rows, m->rows.n), "G must have a row for each arriving row");
    REQUIRE(G->shape[1] >= (within ? start + rows : n), "G must have a column for each column of the tile");
    REQUIRE(initial->size == 2 * m->rows.n, "initial must have two distances for each row");
    REQUIRE(near->size == 2 * n && ceil->size == 2 * n, "near and ceil must have two numbers for each column");
    REQUIRE(in[14].size == room && in[15].size == room, "slot, time and distance must be of the same length");
    REQUIRE(room >= n, "slot, time and distance must have room for a fall of each column");
    for (int side = 0; side < 2; side++)
        m->near[side] = float64s(near) + side * n, m->ceil[side] = float32s(ceil) + side * n;
    return NULL;
}

/* nearest_tile(start, G, scale, X, code, low, initial, X, code, low, near, ceil, within, slot, time, distance)
 *     -> (done, used)
 *
 * Compare the rows from `start` on of one block, whose inner products are the rows of G, with the rows of another
 * block, the columns: with all of them if that is an earlier block, with those before the row if it is the same one
 * (within). initial (rows x 2) holds the nearest squared distances of the rows so far, near (2 x columns) those of the
 * columns at that time. Every fall of a column is written to the last three arrays: slot 2 column + side, row,
 * distance. The work stops before these are full. Returns the number of rows that are done, and the number of falls.
 */
static const char *nearest_tile(const Arg *in, Arg *out) {
    const Arg *G = in + 1;
    int64_t start = in[0].integer, rows = G->shape[0], room = in[13].size, used = 0, r;
    bool within = in[12].integer;
    Comparison m = {.G = float32s(G), .stride = G->stride};
    const char *wrong = tile_comparison(in, &m);
    if (wrong) return wrong;
    if (!comparison_start(&m)) return OUT_OF_MEMORY;
    int64_t n = m.columns.n;
    m.bounds = nearest_bounds(&m.columns, within ? start + rows : n, in[2].real);
    for (r = 0; r < rows; r++) {
        int64_t i = start + r, in_group = r % NEAREST_GROUP, met = within ? i : n;
        int64_t surveyed = within ? (i - in_group) / NEAREST_CHUNK : (n + NEAREST_CHUNK - 1) / NEAREST_CHUNK;
        if (used + met > room) break;
        if (!in_group) comparison_survey(&m, r, smaller(NEAREST_GROUP, rows - r), start, surveyed);
        double *own = float64s(&in[6]) + 2 * i;
        int64_t fell = comparison_row(&m, i, r, met, m.surveys + in_group * m.chunks, surveyed, own);
        for (int64_t e = 0; e < fell; e++, used++) {
            int64_t j = m.fallen[e], side = m.columns.code[j] != m.rows.code[i];
            uint32s(&in[13])[used] = (uint32_t)(2 * j + side);
            uint32s(&in[14])[used] = (uint32_t)i;
            float64s(&in[15])[used] = m.near[side][j];
        }
        if (within) comparison_store(&m, i, own);
    }
    free(m.fallen);
    out[0].integer = r, out[1].integer = used;
    return NULL;
}

#define NEAREST_KERNELS \
    ENTRY(squared_distance, "dd>f"), ENTRY(sample_distances, "ddD"), ENTRY(nearest_scores, "dD"), ENTRY(nearest_copy, "ddfSS"), \
        ENTRY(nearest_refresh, "nfsdSn"), ENTRY(nearest_extend, "ngfdlsDDSnQn>n"), \
        ENTRY(nearest_tile, "ngfdlsDdlsDSnWWD>nn"),
#define NEAREST_CONSTANTS
