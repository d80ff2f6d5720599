/* Histograms of the past p-values: of fixed width, and all dyadic ones at once. */

/* ------------------------------------------------------------------ trees */

/* Context-tree weighting over dyadic intervals: W = 1/2 + 1/2 KT W_left W_right, W = 1 at the leaves.
 *
 * Node 1 is [0, 1], nodes 2 s and 2 s + 1 are the halves of s. counts[s] p-values in s; log_own is the
 * Krichevsky-Trofimov gain of splitting s, with pseudo-counts (d + 1)^2 at depth d if smooth, else 1/2; log_mixed is
 * log W. Returns the log density at p, and learns p if it is to.
 */
static double tree_log_gain(double *counts, double *log_own, double *log_mixed, int64_t depth, bool smooth, double p,
                            bool learn) {
    double before = log_mixed[1], mixed = 0.0;
    int64_t bins = (int64_t)1 << depth, node = smaller((int64_t)(p * (double)bins), bins - 1) + bins;
    for (int64_t d = depth - 1; d >= 0; d--) {
        int64_t parent = node >> 1;
        double a = smooth ? ((double)d + 1.0) * ((double)d + 1.0) : 0.5;
        double own = log_own[parent] + ex_log(2.0 * (counts[node] + a) / (counts[parent] + 2.0 * a));
        double split = own + (mixed + log_mixed[node ^ 1]);
        mixed = (split > 0.0 ? split : 0.0) + ex_log1p(ex_exp(-fabs(split))) - LN2;
        if (learn) {
            counts[node] += 1.0;
            log_own[parent] = own;
            log_mixed[parent] = mixed;
        }
        node = parent;
    }
    if (learn) counts[1] += 1.0;
    return mixed - before;
}

static const char *tree_check(const Arg *in, int64_t depth) {
    REQUIRE(1 <= depth && depth <= 24, "depth must be from 1 to 24");
    for (int k = 0; k < 3; k++)
        REQUIRE(in[k].size == (int64_t)2 << depth, "counts, log_own and log_mixed must have 2^(depth + 1) items");
    return NULL;
}

/* tree(counts, log_own, log_mixed, depth, smooth, p, gains): bet on each p, then learn it. */
static const char *tree(const Arg *in, Arg *out) {
    (void)out;
    const char *wrong = tree_check(in, in[3].integer);
    if (wrong) return wrong;
    REQUIRE(in[5].size == in[6].size, "gains must be as long as p");
    for (int64_t i = 0; i < in[5].size; i++)
        float64s(&in[6])[i] = tree_log_gain(float64s(&in[0]), float64s(&in[1]), float64s(&in[2]), in[3].integer,
                                            in[4].integer, float64s(&in[5])[i], true);
    return NULL;
}

/* tree_step(counts, log_own, log_mixed, depth, smooth, p, learn) */
static const char *tree_step(const Arg *in, Arg *out) {
    const char *wrong = tree_check(in, in[3].integer);
    if (wrong) return wrong;
    out[0].real = tree_log_gain(float64s(&in[0]), float64s(&in[1]), float64s(&in[2]), in[3].integer, in[4].integer,
                                in[5].real, in[6].integer);
    return NULL;
}

#define TREE_KERNELS ENTRY(tree, "DDDnnpo"), ENTRY(tree_step, "DDDnnfn>f"),

#define HISTOGRAM_KERNELS TREE_KERNELS
#define HISTOGRAM_CONSTANTS
