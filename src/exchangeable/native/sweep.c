/* The ranks of all examples, from their first nearest distances and the later falls of these, in order of time.
 *
 * The two nearest squared distances of example j (side 0: own label, 1: others) have the slots 2 j + side. They are
 * first computed when j arrives, and fall when a later example is nearer than all before it; in between, the score of
 * j stays the same.
 */

/* sweep_gather(order, slot, time, distance, initial, near, true)
 *
 * Process the distances that the tiles have found, in order of increasing time: update the initial and the nearest
 * distance of each slot, and mark the true falls. A distance at the time of its own example is an initial one.
 */
static const char *sweep_gather(const Arg *in, Arg *out) {
    (void)out;
    int64_t m = in[0].size, slots = in[4].size;
    REQUIRE(in[1].size == m && in[2].size == m && in[3].size == m, "the falls must be of one length");
    REQUIRE(in[6].size == m, "true must be as long as the falls");
    REQUIRE(in[5].size == slots, "initial and near must be of one length");
    const int64_t *order = int64s(&in[0]);
    const uint32_t *slot = uint32s(&in[1]), *time = uint32s(&in[2]);
    const double *distance = float64s(&in[3]);
    double *initial = float64s(&in[4]), *near = float64s(&in[5]);
    for (int64_t k = 0; k < m; k++) {
        int64_t e = order[k];
        REQUIRE(e >= 0 && e < m && slot[e] < slots, "order and slot must point into the arrays");
        uint32_t at = slot[e];
        bool arrival = time[e] == at >> 1;
        if (arrival && distance[e] < initial[at]) initial[at] = distance[e];
        bools(&in[6])[e] = !arrival && distance[e] < near[at];
        if (distance[e] < near[at]) near[at] = distance[e];
    }
    return NULL;
}

/* sweep_scores(near, slot, distance, first, later)
 *
 * Compute the first score of each example, and its score after each fall of a nearest distance (in order of time). near
 * holds the initial distances, and at the end the distances after all falls. Scores are the ratios of nearest.c. */
static const char *sweep_scores(const Arg *in, Arg *out) {
    (void)out;
    int64_t n = in[3].size, m = in[1].size;
    REQUIRE(in[0].size == 2 * n, "near must have two distances for each example");
    REQUIRE(in[2].size == m && in[4].size == m, "the falls must be of one length");
    double *near = float64s(&in[0]);
    const uint32_t *slot = uint32s(&in[1]);
    for (int64_t j = 0; j < n; j++) float64s(&in[3])[j] = nearest_ratio(near[2 * j], near[2 * j + 1]);
    for (int64_t e = 0; e < m; e++) {
        REQUIRE(slot[e] < 2 * n, "slot must point into near");
        int64_t j = slot[e] >> 1;
        near[slot[e]] = float64s(&in[2])[e];
        float64s(&in[4])[e] = nearest_ratio(near[2 * j], near[2 * j + 1]);
    }
    return NULL;
}

/* A Fenwick tree counts how many examples are on each of the levels 1, 2, ...: a change or a sum costs O(log). */
static inline void sweep_add(int64_t *tree, int64_t levels, int64_t level, int64_t change) {
    for (; level <= levels; level += level & -level) tree[level] += change;
}

static inline int64_t sweep_up_to(const int64_t *tree, int64_t level) {
    int64_t total = 0;
    for (; level > 0; level -= level & -level) total += tree[level];
    return total;
}

/* sweep_ranks(levels, first, later, slot, time, counts)
 *
 * Rank every example at the time when it arrives: counts (3 x n) of the greater, the equal, and all. first and later
 * are the levels of the scores: their positions, from 1, among the `levels` distinct ones. O((n + falls) log). */
static const char *sweep_ranks(const Arg *in, Arg *out) {
    (void)out;
    int64_t levels = in[0].integer, n = in[1].size, m = in[2].size, e = 0;
    REQUIRE(in[3].size == m && in[4].size == m, "the falls must be of one length");
    REQUIRE(levels <= n + m, "levels must be at most the number of scores");
    REQUIRE(in[5].size == 3 * n, "counts must have three rows of n");
    const int64_t *first = int64s(&in[1]), *later = int64s(&in[2]);
    const uint32_t *slot = uint32s(&in[3]), *time = uint32s(&in[4]);
    int64_t *counts = int64s(&in[5]);
    for (int64_t j = 0; j < n; j++) REQUIRE(first[j] >= 1 && first[j] <= levels, "first must be from 1 to levels");
    for (int64_t k = 0; k < m; k++) {
        REQUIRE(later[k] >= 1 && later[k] <= levels, "later must be from 1 to levels");
        REQUIRE(slot[k] >> 1 < n, "slot must belong to an example");
    }
    int64_t *tree = calloc((size_t)(larger(levels, 0) + 1 + n), sizeof *tree), *now = tree + larger(levels, 0) + 1;
    if (!tree) return OUT_OF_MEMORY;
    memcpy(now, first, (size_t)n * sizeof *now);
    for (int64_t i = 0; i < n; i++) {
        for (; e < m && time[e] == i; e++) {
            int64_t j = slot[e] >> 1;
            sweep_add(tree, levels, now[j], -1);
            sweep_add(tree, levels, later[e], 1);
            now[j] = later[e];
        }
        sweep_add(tree, levels, first[i], 1);
        int64_t up_to = sweep_up_to(tree, first[i]);
        counts[i] = i + 1 - up_to, counts[n + i] = up_to - sweep_up_to(tree, first[i] - 1), counts[2 * n + i] = i + 1;
    }
    free(tree);
    return NULL;
}

#define SWEEP_KERNELS \
    ENTRY(sweep_gather, "qwwdDDB"), ENTRY(sweep_scores, "DwdDD"), ENTRY(sweep_ranks, "nqqwwQ"),
#define SWEEP_CONSTANTS
