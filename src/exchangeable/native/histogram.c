/* Histograms of the past p-values: of fixed width, and all dyadic ones at once. */

/* ------------------------------------------------------------------ fixed width */

/* Krichevsky-Trofimov: f = B (c_b + 1/2) / (n + B/2) in bin b, with c_b of the n past p-values in it. */
static void histogram_path(double *counts, int64_t bins, const double *p, int64_t steps, double *out) {
    double B = (double)bins, n = 0.0;
    for (int64_t b = 0; b < bins; b++) n += counts[b];
    for (int64_t i = 0; i < steps; i++) {
        double position = p[i] * B; /* any p, even an invalid one, stays within the counts */
        int64_t b = position >= B ? bins - 1 : position > 0.0 ? (int64_t)position : 0;
        out[i] = B * (counts[b] + 0.5) / (n + 0.5 * B);
        counts[b] += 1.0;
        n += 1.0;
    }
    for (int64_t i = 0; i < steps; i++) out[i] = ex_log(out[i]); /* several at once */
}

/* histogram(counts, p, out) */
static const char *histogram(const Arg *in, Arg *out) {
    (void)out;
    REQUIRE(in[0].size > 0, "counts must hold at least 1 number");
    REQUIRE(in[1].size == in[2].size, "out must be as long as p");
    histogram_path(float64s(&in[0]), in[0].size, float64s(&in[1]), in[1].size, float64s(&in[2]));
    return NULL;
}

/* ------------------------------------------------------------------ trees */

/* Context-tree weighting over dyadic intervals: S_n = W of [0, 1], and with B_s = KT_s W_left W_right
 *
 *     W_s = (1 + B_s)/2 ,   W = 1 at the leaves,   KT_s = prod 2 (c + a)/(n_s + 2 a) ,
 *
 * where n_s counts the past p-values in s, and c those in the half of s that contains p. The pseudo-count a is
 * (d + 1)^2 at depth d if the tree is smooth, else 1/2. B_s are the odds that s is split.
 *
 * A new p changes W only along its path from the root. There KT_s is multiplied by kappa = 2 (c + a)/(n_s + 2 a) and W
 * of the half by its own gain g, hence B_s by x = kappa g, and
 *
 *     gain of s = (1 + B_s x)/(1 + B_s) ,   1 at the leaves; the density at p is the gain of [0, 1].
 *
 * So there is no exp or log, and W itself is not needed. B_s = b 2^(800 k) with b in [2^-400, 2^400] and an integer k;
 * unless k = 0, either 1 or B_s is lost in rounding when they are added. The gain is computed twice: directly, and as
 * 1 + e with e = q (kappa - 1 + kappa e_half), q = B_s/(1 + B_s), which is more accurate near 1.
 *
 * Node 1 is [0, 1], nodes 2 s and 2 s + 1 are the halves of s. A node holds the number of p-values in its left half, b
 * and k; node 0 holds the number of all p-values.
 */

enum { TREE_DEEPEST = 24 };
static const double TREE_MIN = 0x1p-400, TREE_MAX = 0x1p400, TREE_STEP = 0x1p800;

typedef struct {
    double left, odds, power;
} TreeNode;

typedef struct {
    double excess, gain;
} TreeGain;

static inline double tree_density(TreeGain g) { return g.excess > -0.5 ? 1.0 + g.excess : g.gain; }
static inline double tree_log_density(TreeGain g) { return g.excess > -0.5 ? ex_log1p(g.excess) : ex_log(g.gain); }

static inline double tree_pseudo(int64_t d, bool smooth) { return smooth ? (double)((d + 1) * (d + 1)) : 0.5; }

/* The leaf of p; any p, even an invalid one, stays within the tree. */
static inline int64_t tree_leaf(double p, int64_t depth) {
    int64_t bins = (int64_t)1 << depth;
    double position = p * (double)bins;
    return position >= (double)bins ? bins - 1 : position > 0.0 ? (int64_t)position : 0;
}

static inline void tree_multiply(TreeNode *node, double x) {
    double odds = node->odds * x;
    if (odds > TREE_MAX)
        odds *= 1.0 / TREE_STEP, node->power += 1.0;
    else if (odds < TREE_MIN)
        odds *= TREE_STEP, node->power -= 1.0;
    node->odds = odds;
}

/* The gain at p; then learn p, if asked to. */
static inline TreeGain tree_step(TreeNode *nodes, int64_t depth, bool smooth, double p, bool learn) {
    double kappa[TREE_DEEPEST], more[TREE_DEEPEST], part[TREE_DEEPEST], rest[TREE_DEEPEST], n = nodes[0].left;
    int64_t leaf = tree_leaf(p, depth) + ((int64_t)1 << depth);
    for (int64_t d = 0; d < depth; d++) {
        const TreeNode *node = nodes + (leaf >> (depth - d));
        double c = leaf >> (depth - d - 1) & 1 ? n - node->left : node->left, a = tree_pseudo(d, smooth);
        double all = n + 2.0 * a, one = 1.0 + node->odds, both = 1.0 / (one * all); /* one division instead of two */
        double q = node->power == 0.0 ? node->odds * all * both : node->power > 0.0 ? 1.0 : 0.0;
        kappa[d] = 2.0 * (c + a) * (one * both);
        more[d] = q * ((2.0 * c - n) * (one * both));
        part[d] = q * kappa[d];
        rest[d] = node->power == 0.0 ? all * both : node->power > 0.0 ? 0.0 : 1.0;
        n = c;
    }
    TreeGain g = {0.0, 1.0};
    for (int64_t d = depth - 1; d >= 0; d--) {
        if (learn) {
            TreeNode *node = nodes + (leaf >> (depth - d));
            tree_multiply(node, kappa[d] * g.gain);
            node->left += leaf >> (depth - d - 1) & 1 ? 0.0 : 1.0;
        }
        g.excess = more[d] + part[d] * g.excess;
        g.gain = rest[d] + part[d] * g.gain;
    }
    if (learn) nodes[0].left += 1.0;
    return g;
}

static const char *tree_check(const Arg *nodes, int64_t depth) {
    REQUIRE(1 <= depth && depth <= TREE_DEEPEST, "depth must be from 1 to 24");
    REQUIRE(nodes->size == (int64_t)3 << depth, "nodes must have 2^depth rows of 3");
    return NULL;
}

/* tree(nodes, depth, smooth, p, gains) */
static const char *tree(const Arg *in, Arg *out) {
    (void)out;
    const char *wrong = tree_check(in, in[1].integer);
    if (wrong) return wrong;
    REQUIRE(in[3].size == in[4].size, "gains must be as long as p");
    for (int64_t i = 0; i < in[3].size; i++)
        float64s(&in[4])[i] =
            tree_log_density(tree_step(in[0].data, in[1].integer, in[2].integer, float64s(&in[3])[i], true));
    return NULL;
}

/* tree_at(nodes, depth, smooth, p): the log density at p, learning nothing. */
static const char *tree_at(const Arg *in, Arg *out) {
    const char *wrong = tree_check(in, in[1].integer);
    if (wrong) return wrong;
    out[0].real = tree_log_density(tree_step(in[0].data, in[1].integer, in[2].integer, in[3].real, false));
    return NULL;
}

#define TREE_KERNELS ENTRY(tree, "Dnnpo"), ENTRY(tree_at, "dnnf>f"),

#define HISTOGRAM_KERNELS ENTRY(histogram, "Dpo"), TREE_KERNELS
#define HISTOGRAM_CONSTANTS
