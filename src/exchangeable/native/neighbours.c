/* The k nearest neighbours of every example, updated exactly as examples arrive, and the scores computed from them.
 *
 * The filter is that of nearest.c: float32 inner products decide which distances are computed, in float64.
 *
 * Every example has, on each side, a sorted list of its k smallest squared distances (infinite where there are fewer).
 * Labelled examples have two sides, their own label (0) and the others (1); unlabelled ones have one. Where the
 * neighbours' labels enter the score, the list is sorted by (distance, label), so that it does not depend on the order
 * of arrival.
 */

enum { NEIGHBOUR_CHUNK = 32 }; /* smaller than for one neighbour: lists of k change more often */

typedef struct {
    Bounds bounds;
    const float *G; /* inner products: a row for each example that arrives, `stride` apart */
    int64_t stride;
    Block block;         /* all examples; code matters if there are two sides */
    const double *label; /* the labels where they enter the score, as tags of the distances */
    int sides;
    int64_t k;
    double *near; /* sides x n x k */
    double *tags; /* the same, or NULL */
    float *ceil;  /* sides x n: what the filter knows of the lists */
    Survey *surveys;  /* scratch space: what the chunks hold, */
    float *best;  /* k numbers, */
    int64_t *changed; /* and the examples whose lists have changed */
    int64_t computed; /* how many distances were computed directly */
} Lists;

/* nearest_survey for one side: the least low_j - 2 f_i.f_j, and whether a list of one of the columns may change. */
static Survey neighbour_survey(const float *g, int64_t from, int64_t to, float low_i, const float *low,
                             const float *ceil) {
    VSingles least = (VSingles){0.0f} + INFINITY;
    VMask hits = (VMask){0};
    int64_t j = from;
    for (; j + NEAREST_LANES <= to; j += NEAREST_LANES) {
        VSingles twice = 2.0f * v_singles(g + j);
        hits |= ~(low_i - twice >= v_singles(ceil + j));
        least = v_least(v_singles(low + j) - twice, least);
    }
    Survey survey = {INFINITY, INFINITY, v_any(hits)};
    for (int k = 0; k < NEAREST_LANES; k++) survey.same = least[k] < survey.same ? least[k] : survey.same;
    for (; j < to; j++) {
        float twice = 2.0f * g[j], value = low[j] - twice;
        survey.falls |= !(low_i - twice >= ceil[j]);
        survey.same = value < survey.same ? value : survey.same;
    }
    return survey;
}

/* The k-th least finite low_j - 2 f_i.f_j of a side among the first i examples. */
static float neighbour_kth_least(const Lists *s, int64_t i, const float *g, int side) {
    int64_t last = s->k - 1;
    float *best = s->best;
    for (int64_t m = 0; m <= last; m++) best[m] = INFINITY;
    for (int64_t c = 0; c * NEIGHBOUR_CHUNK < i; c++) {
        if ((side ? s->surveys[c].other : s->surveys[c].same) >= best[last]) continue;
        int64_t to = smaller((c + 1) * NEIGHBOUR_CHUNK, i);
        for (int64_t j = c * NEIGHBOUR_CHUNK; j < to; j++) {
            float value = s->block.low[j] - 2.0f * g[j];
            if (!(-INFINITY < value && value < best[last])) continue;
            if (s->sides == 2 && (s->block.code[j] != s->block.code[i]) != side) continue;
            int64_t at = last;
            for (; at > 0 && value < best[at - 1]; at--) best[at] = best[at - 1];
            best[at] = value;
        }
    }
    return best[last];
}

/* Insert a distance, and its tag if there are tags, into a sorted list of k; return whether the list has changed. */
static bool neighbour_place(double *near, double *tags, int64_t k, double distance, double tag) {
    int64_t at = k;
    while (at > 0 && (distance < near[at - 1] || (tags && distance == near[at - 1] && tag < tags[at - 1]))) at--;
    if (at == k) return false;
    memmove(near + at + 1, near + at, (size_t)(k - 1 - at) * sizeof *near);
    near[at] = distance;
    if (!tags) return true;
    memmove(tags + at + 1, tags + at, (size_t)(k - 1 - at) * sizeof *tags);
    tags[at] = tag;
    return true;
}

/* Whether a list may have room for a distance: one that is full of duplicates has room only for smaller tags. */
static inline bool neighbour_open(const double *near, const double *tags, int64_t k, double tag) {
    return !tags || near[k - 1] > 0.0 || tag < tags[k - 1];
}

/* Survey all chunks of earlier examples for example i. */
static void neighbour_survey_chunks(Lists *s, int64_t i, const float *g) {
    const Block *b = &s->block;
    float low_i = b->low[i];
    for (int64_t c = 0; c * NEIGHBOUR_CHUNK < i; c++) {
        int64_t from = c * NEIGHBOUR_CHUNK, to = smaller(from + NEIGHBOUR_CHUNK, i);
        s->surveys[c] = s->sides == 1 ? neighbour_survey(g, from, to, low_i, b->low, s->ceil)
                                    : nearest_survey(g, from, to, low_i, b->code[i], b->code, b->low, s->ceil,
                                                     s->ceil + b->n);
    }
}

/* Compare examples i and j, unless the filter rules out that one enters the list of the other: their lists and the
 * bound `own` of the list of i are updated. Returns whether the list of j has changed. */
static inline bool neighbour_compare(Lists *s, int64_t i, int64_t j, const float *g, float *own) {
    const Block *b = &s->block;
    int side = s->sides == 2 && b->code[j] != b->code[i];
    int64_t k = s->k, first = side * b->n;
    float value = b->low[i] - 2.0f * g[j], *ceil = s->ceil + first + j;
    bool theirs = !(value >= *ceil), mine = !(value >= own[side] - b->low[j]);
    if (!theirs && !mine) return false;
    double *near_i = s->near + (first + i) * k, *tags_i = s->tags ? s->tags + (first + i) * k : NULL;
    double *near_j = s->near + (first + j) * k, *tags_j = s->tags ? s->tags + (first + j) * k : NULL;
    double tag_i = s->label ? s->label[i] : 0.0, tag_j = s->label ? s->label[j] : 0.0;
    theirs = theirs && neighbour_open(near_j, tags_j, k, tag_i);
    mine = mine && neighbour_open(near_i, tags_i, k, tag_j);
    if (!theirs && !mine) return false;
    double distance = nearest_squared(b->X + i * b->d, b->X + j * b->d, b->d), scale2 = s->bounds.scale2;
    s->computed++;
    if (mine && neighbour_place(near_i, tags_i, k, distance, tag_j)) {
        float nearer = nearest_ceiling(nearest_limit(near_i[k - 1], s->tags), scale2, 0.0f);
        if (nearer < own[side]) own[side] = nearer;
    }
    if (!theirs || !neighbour_place(near_j, tags_j, k, distance, tag_i)) return false;
    *ceil = nearest_ceiling(nearest_limit(near_j[k - 1], s->tags), scale2, b->low[j]);
    return true;
}

/* Add example i (inner products g with all earlier ones): update every list of neighbours.
 *
 * Returns how many lists have changed; the first items of `changed` are the numbers of their examples. */
static int64_t neighbour_absorb(Lists *s, int64_t i, const float *g) {
    const Block *b = &s->block;
    int64_t k = s->k, count = 0;
    float low_i = b->low[i], own[2] = {INFINITY, INFINITY};
    neighbour_survey_chunks(s, i, g);
    for (int side = 0; side < s->sides; side++) {
        double *near = s->near + (side * b->n + i) * k;
        for (int64_t m = 0; m < k; m++) near[m] = INFINITY;
        own[side] = nearest_reach(low_i, neighbour_kth_least(s, i, g, side), &s->bounds);
    }
    for (int64_t c = 0; c * NEIGHBOUR_CHUNK < i; c++) {
        /* (not >=, so that minus infinity minus minus infinity, NaN, counts as a hit) */
        bool close = !(low_i + s->surveys[c].same >= own[0]) || !(low_i + s->surveys[c].other >= own[1]);
        if (!(s->surveys[c].falls || close)) continue;
        int64_t to = smaller((c + 1) * NEIGHBOUR_CHUNK, i);
        for (int64_t j = c * NEIGHBOUR_CHUNK; j < to; j++)
            if (neighbour_compare(s, i, j, g, own)) s->changed[count++] = j;
    }
    for (int side = 0; side < s->sides; side++) {
        double last = s->near[(side * b->n + i) * k + k - 1];
        s->ceil[side * b->n + i] = nearest_ceiling(nearest_limit(last, s->tags), s->bounds.scale2, low_i);
    }
    s->changed[count] = i;
    return count + 1;
}

/* ------------------------------------------------------------------ scores */

/* Mean distance to the neighbours found, summed from the nearest on; infinite if there is none. */
static double neighbour_mean_distance(const double *near, int64_t k) {
    double total = 0.0;
    int64_t count = 0;
    for (; count < k && near[count] < INFINITY; count++) total += sqrt(near[count]);
    return count ? total / (double)count : INFINITY;
}

/* The label minus the mean label of the neighbours, summed from the nearest on; 0 if there is none. */
static double neighbour_residual(double label, const double *near, const double *tags, int64_t k) {
    double total = 0.0;
    int64_t count = 0;
    for (; count < k && near[count] < INFINITY; count++) total += tags[count];
    return count ? label - total / (double)count : 0.0;
}

/* Label minus mean label of the neighbours; or mean distance to the same label divided by mean distance to the others;
 * or mean distance. */
static double neighbour_score(const Lists *s, int64_t j) {
    const double *near = s->near + j * s->k;
    if (s->tags) return neighbour_residual(s->label[j], near, s->tags + j * s->k, s->k);
    double mean = neighbour_mean_distance(near, s->k);
    return s->sides == 1 ? mean : nearest_quotient(mean, neighbour_mean_distance(near + s->block.n * s->k, s->k));
}

/* ------------------------------------------------------------------ entry */

/* Scratch space. */
static bool neighbour_begin(Lists *s, int64_t n) {
    size_t changed = (size_t)n * sizeof *s->changed, surveys = (size_t)(n / NEIGHBOUR_CHUNK + 1) * sizeof *s->surveys;
    s->changed = malloc(changed + surveys + (size_t)s->k * sizeof *s->best);
    if (!s->changed) return false;
    s->surveys = (Survey *)(s->changed + n);
    s->best = (float *)(s->surveys + n / NEIGHBOUR_CHUNK + 1);
    return true;
}

/* neighbours_extend(start, G, scale, X, code, low, label, alpha, near, tags, ceil, within, counts, at) -> computed
 *
 * Add the rows from `start` on, whose inner products are the rows of G. Each is ranked when it is added, among all or
 * among those of its code (within); the ranks are written to the columns of counts (3 x any) from `at` on. near has the
 * shape sides x n x k; code may be empty if there is one side. If labels enter the score, tags has the shape of near,
 * and label is as long as X; otherwise they are empty. Returns how many distances were computed directly. */
static const char *neighbours_extend(const Arg *in, Arg *out) {
    const Arg *G = in + 1, *X = in + 3, *label = in + 6, *near = in + 8, *tags = in + 9, *ceil = in + 10;
    const Arg *ranks = in + 12;
    int64_t start = in[0].integer, rows = G->shape[0], n = X->shape[0], sides = near->shape[0];
    int64_t at = in[13].integer, total = ranks->shape[1];
    bool within = in[11].integer;
    Lists s = {.G = float32s(G), .stride = G->stride, .k = near->shape[2], .sides = (int)sides};
    REQUIRE(X->ndim == 2 && in[5].size == n, "X must have two dimensions, and low be as long");
    REQUIRE(in[4].size == n || (sides == 1 && !within), "code must be as long as X where it is used");
    REQUIRE(nearest_fits(start, rows, n) && G->shape[1] >= start + rows, "G must have a column for each row so far");
    REQUIRE(near->ndim == 3 && (sides == 1 || sides == 2) && near->shape[1] == n && s.k >= 1, "near must fit X");
    REQUIRE(in[7].size == n && ceil->size == sides * n, "alpha and ceil must fit X");
    REQUIRE(tags->size == 0 || tags->size == near->size, "tags must have the shape of near, or be empty");
    REQUIRE(tags->size == 0 || (label->size == n && sides == 1), "label must fit X where there are tags, on one side");
    REQUIRE(ranks->ndim == 2 && ranks->shape[0] == 3 && nearest_fits(at, rows, total), "counts must have three rows");
    s.block = (Block){n, X->shape[1], float64s(X), int32s(&in[4]), float32s(&in[5])};
    s.bounds = nearest_bounds(&s.block, start + rows, in[2].real);
    s.near = float64s(near), s.ceil = float32s(ceil);
    if (tags->size) s.tags = float64s(tags), s.label = float64s(label);
    if (!neighbour_begin(&s, start + rows)) return OUT_OF_MEMORY;
    double *alpha = float64s(&in[7]);
    Ranking ranking = {int64s(ranks) + at, total, within};
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = start + r, changed = neighbour_absorb(&s, i, s.G + r * s.stride);
        for (int64_t e = 0; e < changed; e++) alpha[s.changed[e]] = neighbour_score(&s, s.changed[e]);
        ranking_add(&ranking, r, alpha, s.block.code, i + 1);
    }
    free(s.changed);
    out[0].integer = s.computed;
    return NULL;
}

#define NEIGHBOURS_KERNELS ENTRY(neighbours_extend, "ngfdlsdDDDSnQn>n"),
#define NEIGHBOURS_CONSTANTS
